"""Which fits leave a model that can be used on another section, and that model."""

import numpy as np

from spatialpdvi.errors import InputError
from spatialpdvi.fitting.prepare import Prepared
from spatialpdvi.io.section.section import Section
from spatialpdvi.metrics.calibration import Calibration
from spatialpdvi.model import PER_SPOT, Model, nearest_domain
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.problems.potts_mixture import PottsGlobals
from spatialpdvi.version import __version__

__all__ = ["check_keepable", "keep", "unkept"]

_REACH = 0.999  # of the spots of a fit: what is farther from every domain is unlike them


def check_keepable(section: Section, options: FitOptions) -> None:
    """Refuse, before a fit, to keep a model that could not be used on another section."""
    reason = unkept(section, options)
    if reason:
        raise InputError(reason)


def unkept(section: Section, options: FitOptions) -> str:
    """Why a fit's model could not be used on another section, as an error says it; empty where it can."""
    if options.graph is not None:
        return (
            f"Expected no --graph with --save-model, found {options.graph!r}: another section has neighbours of its "
            "own. Leave one of them out."
        )
    if options.correct == "harmony":
        return (
            "Expected --correct none or center with --save-model, found harmony, which asks all spots of all sections "
            "at once and cannot be repeated for another section. Leave --save-model out, or choose another --correct."
        )
    if section.features is None:
        return _unkept_genes(section, options)
    if not isinstance(section.features, np.ndarray):
        return (
            f"Expected dense features with --save-model, found a sparse {section.rep!r}. Leave --save-model out, or "
            "choose another --rep."
        )
    return ""


def _unkept_genes(section: Section, options: FitOptions) -> str:
    if options.transform not in PER_SPOT:
        return (
            f"Expected a --transform of each spot by itself with --save-model, found {options.transform}, which asks "
            "all spots of a section. Leave --save-model out, or choose another --transform."
        )
    if options.n_pcs == 0:
        return (
            "Expected `--n-pcs` of at least 1 with --save-model, found 0: genes that are fitted themselves are not "
            "kept. Leave --save-model out, or choose another --n-pcs."
        )
    if section.gene_names.has_duplicates:
        twice = section.gene_names[section.gene_names.duplicated()][0]
        return (
            f"Expected genes to have a name each with --save-model, to be matched by, found {twice!r} twice. Rename "
            "it, or leave --save-model out."
        )
    return ""


def keep(
    prepared: Prepared,
    lam: PottsGlobals,
    options: FitOptions,
    *,
    calibration: Calibration | None,
    colours: tuple[str, ...],
) -> Model:
    """Model of a fit that ended with the globals ``lam``, for which `unkept` has found no reason; ``colours`` (K,)."""
    space, hyperparameters = prepared.features.space, prepared.start.hyperparameters
    assert space is not None
    assert isinstance(prepared.fitted, np.ndarray)
    distance = nearest_domain(prepared.fitted, lam, hyperparameters)
    return Model(
        space=space,
        rotation=np.eye(space.n_features) if prepared.rotation is None else prepared.rotation,
        lam=lam,
        hyperparameters=hyperparameters,
        reach=float(np.quantile(distance, _REACH)),
        options=Model.kept_options(options, smooth=prepared.features.found["smooth"]),
        version=__version__,
        colours=colours,
        temperature=None if calibration is None else calibration.temperature,
    )
