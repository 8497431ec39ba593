"""Sets of options under one name. Each option of a set can also be given by itself."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spatialpdvi.options.fit import KMEANS, SOLVER_OPTIONS, FitOptions
from spatialpdvi.options.idle import idle_options
from spatialpdvi.options.k_range import read_k
from spatialpdvi.options.validation import check_choice

__all__ = ["PRESETS", "preset_options", "set_by"]

PRESETS: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        # appendix C.1 of Lyu, Yu, Ma and Shi, arXiv 2602.07632 (docs/math.md, "Differences from the paper")
        "paper": {
            "n_top_genes": 5_000,
            "totals": "selected",
            "transform": "log1p",
            "n_pcs": 0,
            "smooth": 0,
            "whiten": False,
            "states": "off",
            "init": KMEANS,
            "n_patches": 30,
            "cross_patch_edges": False,
            "duals": "zero",
            "step_size": 1.0,
        }
    }
)
_PRIMAL_DUAL = ("p2dvi", "pdvi")  # the solvers whose options a preset sets


def preset_options(preset: str, **given: Any) -> FitOptions:
    """Return the options of a preset, of which those that are given win.

    What a preset sets without effect beside the given options is left at its default.

    Parameters
    ----------
    preset
        ``"paper"``, the setting of the paper on P2D-VI (Lyu, Yu, Ma and Shi 2026, appendix C.1).
    given
        Options by name, at least ``k``.

    Raises
    ------
    InputError
        Where there is no such preset, or the options cannot be used.

    Examples
    --------
    >>> options = spv.preset_options("paper", k=7, n_top_genes=3000)
    >>> options.transform, options.init, options.n_top_genes
    ('log1p', 'kmeans', 3000)
    """
    check_choice("preset", preset, PRESETS)
    chosen = {name: value for name, value in PRESETS[preset].items() if name not in given}
    if given.get("rep") is not None:
        chosen.pop("n_pcs", None)  # says which features are made from counts
    if isinstance(read_k(given.get("k")), str):
        chosen.pop("init", None)  # every number of a range has a start of its own
    if given.get("solver", FitOptions.solver) not in _PRIMAL_DUAL:
        chosen = {name: value for name, value in chosen.items() if name not in SOLVER_OPTIONS}
    idle = {name for name, _ in idle_options(FitOptions(**chosen, **given))}
    return FitOptions(**{name: value for name, value in chosen.items() if name not in idle}, **given)


def set_by(preset: str, options: FitOptions) -> dict[str, Any]:
    """Return the options that have the value of a preset, by name."""
    return {name: value for name, value in PRESETS[preset].items() if getattr(options, name) == value}
