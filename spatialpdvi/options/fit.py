"""Every option of a fit, its default, its help and its check; the command line and Python are made from it."""

from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from spatialpdvi.errors import InputError
from spatialpdvi.options.k_range import read_k
from spatialpdvi.options.validation import check_range, check_type, flag_of, kind_of
from spatialpdvi.runtime.memory import parse_size

__all__ = [
    "CORRECTIONS",
    "RESTARTS",
    "SOLVERS",
    "SOLVER_OPTIONS",
    "TRANSFORMS",
    "FitOptions",
    "idle_options",
    "option_table",
]

LEAST_N_PCS = 15  # of what is chosen by default
TRANSFORMS = ("none", "log1p", "sqrt", "pearson")
RESTARTS = ("merge", "best")
CORRECTIONS = ("none", "center", "harmony")

# The names alone: the solvers themselves are compiled code, and `--help` must not wait for it. A test holds this
# against the registry.
SOLVERS = (
    "p2dvi",
    "pdvi",
    "cavi",
    "rs-cavi",
    "memoized",
    "svi",
    "svi-rm",
    "pg-svi",
    "sngvi",
    "sgd",
    "rmsprop",
    "adam",
    "cv",
)


def _option(default: Any, text: str, *, group: str) -> Any:
    return field(default=default, metadata={"help": text, "group": group})


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What a user may set; the texts are the command line's help.

    Raises
    ------
    InputError
        Where a value is out of range, naming the command line's option.

    Examples
    --------
    >>> spv.FitOptions(k=7, n_top_genes=2000).beta
    1.0
    >>> spv.FitOptions(k=1)
    Traceback (most recent call last):
        ...
    spatialpdvi.errors.InputError: Expected ...
    """

    k: int | str = field(
        metadata={
            "help": "Number of domains, at least 2; of `fit` also a range such as 4:15, or auto: one is chosen.",
            "group": "Model",
            "type": str,
        }
    )

    layer: str | None = _option(
        None,
        "Where the raw counts are: a layer, or X or raw.X. Default: the first of layers count, counts, X, raw.X "
        "that holds non-negative integers.",
        group="Input",
    )
    spatial_key: str = _option(
        "spatial", "Key in obsm of the coordinates, 2-D or 3-D; or columns of obs, as in x,y,z.", group="Input"
    )
    label_key: str | None = _option(
        None,
        "Column of obs with known labels, for scoring only. Default: annotation, where there is one.",
        group="Input",
    )
    sample_key: str | None = _option(
        None,
        "Column of obs that says which of several sections a spot is of: one set of domains, no edges, averages or "
        "patches across sections (but see --across-sections). Default: a single section.",
        group="Input",
    )
    rep: str | None = _option(
        None,
        "Key in obsm of features to fit as they are (X_pca, X_scVI, ...); skips preprocessing. Default: none.",
        group="Input",
    )

    n_top_genes: int = _option(3_000, "Highly variable genes kept (seurat_v3).", group="Features")
    target_sum: float = _option(1e4, "Total counts of a spot after normalisation.", group="Features")
    transform: str = _option(
        "none", f"Of normalised counts, before they are scaled: {', '.join(TRANSFORMS)}.", group="Features"
    )
    clip: float = _option(10.0, "Largest scaled expression value.", group="Features")
    n_pcs: int | None = _option(
        None,
        f"Principal components fitted; 0 fits the scaled genes themselves, sparse all the way. "
        f"Default: {LEAST_N_PCS}, or K - 1 where that is more; with --rep all its columns, but so many of a PCA's.",
        group="Features",
    )
    smooth: int | None = _option(
        None,
        "Nearest spots that features are averaged over; 0 for none. Default: as many as predict a spot best.",
        group="Features",
    )
    correct: str = _option(
        "none",
        "Between sections: none; center, which takes each section's mean off its components; or harmony, which "
        "corrects clusters of alike spots (needs the package harmonypy, leaves no model).",
        group="Features",
    )
    whiten: bool = _option(
        True, "Rotate and scale features so that noise within domains is alike in all directions.", group="Features"
    )

    init: str | None = _option(
        None, "Column of obs with labels to start from. Default: what restarts on the features agree on.", group="Start"
    )
    n_init: int = _option(
        6, "Restarts by a Gaussian mixture on each of three scales; a third as many by k-means.", group="Start"
    )
    restarts: str = _option(
        "merge", "merge: start from what the restarts agree on; best: fit from each, keep the lowest F.", group="Start"
    )

    n_neighbors: int = _option(10, "k of the mutual k-nearest-neighbour graph.", group="Graph")
    flow_neighbors: int = _option(100, "Nearest spots that a flow direction is estimated from.", group="Graph")
    across_sections: bool = _option(
        False,
        "Let averages, edges and patches reach across sections, which share one system of 3-D coordinates.",
        group="Graph",
    )
    graph: str | None = _option(
        None,
        "Key in obsp of a graph to use instead (spatial_connectivities, ...); its values multiply the edge weights. "
        "Default: none.",
        group="Graph",
    )
    tau: float = _option(1.0, "Weight of feature similarity in an edge's weight.", group="Graph")
    beta: float = _option(1.0, "Potts strength: how much neighbours pull on each other.", group="Model")

    n_patches: int | None = _option(
        None,
        "Patches of spots. Default: 30 at 150,000 spots, fewer when small (cube root); times --batch-patches.",
        group="Patches",
    )
    cross_patch_edges: bool = _option(True, "Keep or drop edges between patches.", group="Patches")

    solver: str = _option(
        "p2dvi",
        f"How the model is fitted: {', '.join(SOLVERS)}.",
        group="Solver",
    )
    batch_patches: int | None = _option(
        None, "Patches updated at once (mini-batch solvers). Default: 1.", group="Solver"
    )
    inner_rounds: int | None = _option(
        None, "Rounds of local updates in a visit of a patch (mini-batch solvers). Default: 3.", group="Solver"
    )
    step_factor: float | None = _option(
        None, "c in step = 1 / (c x curvature); larger is more cautious (p2dvi, pdvi). Default: 1.", group="Solver"
    )
    step_size: float | None = _option(
        None, "Step of svi, svi-rm, pg-svi, sngvi, sgd, rmsprop, adam, cv. Default: the solver's own.", group="Solver"
    )
    step_mean: float | None = _option(
        None, "Fixed step of the means instead (p2dvi, pdvi). Default: from the curvature.", group="Solver"
    )
    step_log_variance: float | None = _option(
        None, "Fixed step of the log variances instead (p2dvi, pdvi). Default: from the curvature.", group="Solver"
    )
    max_epochs: int = _option(500, "Visits of every patch at the most.", group="Solver")
    tol: float = _option(
        1e-4, "Converged when means, log variances and posteriors are stationary to this.", group="Solver"
    )
    tol_objective: float = _option(
        1e-7, "... and the objective's relative change over an epoch is at most this.", group="Solver"
    )
    seed: int = _option(0, "Seed of everything random.", group="Run")

    memory: str | None = _option(
        None,
        "Memory that the fit may take, as 8GB; counts too large for it are read block by block. Default: what is free.",
        group="Run",
    )

    key_added: str = _option("pdvi", "Prefix of the keys that are written.", group="Output")
    save_graph: bool = _option(False, "Write the edge weights and flow directions too.", group="Output")

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", read_k(self.k))
        for f in fields(self):
            if f.name != "k":
                check_type(f, getattr(self, f.name))
        for f in fields(self):
            check_range(f.name, getattr(self, f.name))
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                msg = f"Expected `{flag_of(name)}` to be one of {', '.join(known)}, found {getattr(self, name)!r}."
                raise InputError(msg)
        if self.memory is not None:
            parse_size(self.memory, "--memory")
        if self.correct != "none" and self.n_pcs == 0:
            msg = (
                f"Expected `--n-pcs` of at least 1 with `--correct {self.correct}`, found 0: genes that are fitted "
                "themselves stay sparse, and nothing is taken off them. Choose --correct none or another --n-pcs."
            )
            raise InputError(msg)
        if isinstance(self.k, str) and self.init is not None:
            msg = (
                f"Expected one number for `--k` with `--init`, found {self.k}: labels to start from are of one number "
                "of domains. Give that, or leave --init out."
            )
            raise InputError(msg)
        if self.transform == "pearson" and self.n_pcs == 0:
            msg = (
                "Expected `--n-pcs` of at least 1 with `--transform pearson`, found 0: residuals are dense, and too "
                "large to be fitted gene by gene. Choose another --transform or --n-pcs."
            )
            raise InputError(msg)

    def components_of(self, k: int) -> int:
        """Principal components for k domains: those asked for, or K - 1, which K means span, but at least 15."""
        return self.n_pcs or max(LEAST_N_PCS, k - 1)

    @property
    def n_domains(self) -> int:
        """K, where it is one number; a range of them is an `InputError`."""
        if isinstance(self.k, str):
            msg = (
                f"Expected one number of domains with `--k` here, found {self.k}. Give a number; `spatialpdvi fit "
                f"--k {self.k}` recommends one."
            )
            raise InputError(msg)
        return self.k


_CHOICES = {"solver": SOLVERS, "transform": TRANSFORMS, "restarts": RESTARTS, "correct": CORRECTIONS}

# options that some solvers have and others do not
SOLVER_OPTIONS = ("batch_patches", "inner_rounds", "step_factor", "step_size", "step_mean", "step_log_variance")

# an option -> those that have nothing to do when it is given
_IDLE = {
    "rep": ("layer", "n_top_genes", "target_sum", "transform", "clip"),
    "init": ("n_init", "restarts"),
    "graph": ("n_neighbors",),
}


def idle_options(options: FitOptions) -> list[tuple[str, str]]:
    """Return the options that were set but have no effect, each with the option that is the reason, by name."""
    return [
        (f.name, chosen)
        for chosen, idle in _IDLE.items()
        for f in fields(options)
        if getattr(options, chosen) is not None and f.name in idle and getattr(options, f.name) != f.default
    ]


def option_table() -> list[dict[str, Any]]:
    """One row per option: name, flag, type, default, help, group, in the order they are shown."""
    rows = []
    for f in fields(FitOptions):
        default = None if f.default is MISSING else f.default
        rows.append(
            {
                "name": f.name,
                "flag": flag_of(f.name),
                "type": kind_of(f),
                "required": f.default is MISSING,
                "default": default,
                **f.metadata,
            }
        )
    return rows
