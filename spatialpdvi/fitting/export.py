"""Which fits leave a model that can be used on another section, and that model."""

import numpy as np

from spatialpdvi.errors import InputError, option
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
    """Raise, before a fit begins, where its model could not be used on another section."""
    reason = unkept(section, options)
    if reason is not None:
        raise reason


def unkept(section: Section, options: FitOptions) -> InputError | None:
    """Return why the model of a fit could not be used on another section, as an error; None where it can."""
    saving, other = option("save_model"), f"Leave {option('save_model')} out, or choose another"
    if options.graph is not None:
        return InputError(
            f"no {option('graph')} with {saving}",
            repr(options.graph),
            "The neighbours of another section are not in it. Leave one of them out.",
        )
    if options.correct == "harmony":
        return InputError(
            f"{option('correct', 'none')} or {option('correct', 'center')} with {saving}",
            option("correct", "harmony"),
            "Harmony uses the spots of all sections at once, and cannot be repeated for another section. "
            f"{other} correction.",
        )
    if section.features is None:
        return _unkept_genes(section, options)
    if not isinstance(section.features, np.ndarray):
        return InputError(f"dense features with {saving}", f"a sparse {section.rep!r}", f"{other} {option('rep')}.")
    return None


def _unkept_genes(section: Section, options: FitOptions) -> InputError | None:
    saving, other = option("save_model"), f"Leave {option('save_model')} out, or choose another"
    if options.transform not in PER_SPOT:
        return InputError(
            f"{option('transform')} to be one of {', '.join(PER_SPOT)} with {saving}",
            options.transform,
            f"It needs all spots of a section. {other} {option('transform')}.",
        )
    if options.n_pcs == 0:
        return InputError(
            f"at least 1 with {saving}",
            "0",
            f"A fit of the genes themselves has no model to save. {other} {option('n_pcs')}.",
            option="n_pcs",
        )
    if section.gene_names.has_duplicates:
        twice = section.gene_names[section.gene_names.duplicated()][0]
        return InputError(
            f"genes with different names with {saving}, which matches genes by name",
            f"{twice!r} twice",
            f"Rename one of them, or leave {saving} out.",
        )
    return None


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
