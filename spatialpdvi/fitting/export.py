"""The model of a fit, which finds its domains in other sections, and the fits that have none."""

import numpy as np

from spatialpdvi.errors import InputError, option
from spatialpdvi.fitting.prepare import Prepared
from spatialpdvi.initialization.states import means_of_spots
from spatialpdvi.io.section.section import Section
from spatialpdvi.metrics.calibration import Calibration
from spatialpdvi.model import SPOTWISE_TRANSFORMS, Model, SharedStates
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.problems.base import Blocks
from spatialpdvi.problems.potts_mixture import PottsGlobals, nearest_domain
from spatialpdvi.runtime.threads import single_threaded
from spatialpdvi.version import __version__

__all__ = ["make_model", "why_no_model"]

_REACH = 0.999  # of the spots of a fit: spots farther from every domain are unlike them


def why_no_model(section: Section, options: FitOptions) -> InputError | None:
    """Return the error that says why a fit has no model for other sections; None where it has one.

    Parameters
    ----------
    section, options
        Of the fit.
    """
    needed_by = option("save_model")
    other = f"Leave {needed_by} out, or choose another"
    if options.graph is not None:
        return InputError(
            f"no {option('graph')} with {needed_by}",
            repr(options.graph),
            "Another section has neighbours of its own. Leave one of the two out.",
        )
    if options.correct == "harmony":
        return InputError(
            f"none or center with {needed_by}",
            "harmony, which uses all spots of all sections at once and cannot be repeated for another section",
            f"{other} {option('correct')}.",
            option="correct",
        )
    if section.features is None:
        return _why_no_projection(section, options)
    if not isinstance(section.features, np.ndarray):
        return InputError(f"dense features with {needed_by}", f"a sparse {section.rep!r}", f"{other} {option('rep')}.")
    return None


def _why_no_projection(section: Section, options: FitOptions) -> InputError | None:
    """Why counts of another section cannot be brought to the features of this one."""
    needed_by = option("save_model")
    other = f"Leave {needed_by} out, or choose another"
    if options.transform not in SPOTWISE_TRANSFORMS:
        return InputError(
            f"one of {', '.join(SPOTWISE_TRANSFORMS)} with {needed_by}",
            f"{options.transform}, which uses all spots of a section",
            f"{other} {option('transform')}.",
            option="transform",
        )
    if options.n_pcs == 0:
        return InputError(
            f"at least 1 with {needed_by}",
            "0",
            f"A model is not made of genes that are fitted themselves. {other} {option('n_pcs')}.",
            option="n_pcs",
        )
    if section.gene_names.has_duplicates:
        twice = section.gene_names[section.gene_names.duplicated()][0]
        return InputError(
            f"unique gene names with {needed_by}, to match genes by",
            f"{twice!r} twice",
            f"Rename it, or leave {needed_by} out.",
        )
    return None


def make_model(
    prepared: Prepared,
    lam: Blocks,
    options: FitOptions,
    *,
    calibration: Calibration | None,
    colours: tuple[str, ...],
) -> Model:
    """Return the model of a fit for which `why_no_model` found no reason.

    Parameters
    ----------
    prepared
        The problem that was fitted.
    lam
        The globals at the end, in the order of the domains.
    options
        Of the fit.
    calibration
        Of the posteriors; None without restarts.
    colours
        (K,) hexadecimal, of the domains.
    """
    space, hyperparameters = prepared.features.space, prepared.start.hyperparameters
    fitted, rotation = prepared.initialization.fitted, prepared.initialization.rotation
    assert space is not None
    assert prepared.n_neighbors is not None  # the graph was not given
    assert isinstance(fitted, np.ndarray)
    found, shared = prepared.initialization.states, None
    if found is None:
        distance = nearest_domain(fitted, lam, hyperparameters)
    else:
        assert prepared.start.prior_weight is not None
        distance = found.distance
        with single_threaded():
            spot_mean = means_of_spots(fitted, PottsGlobals(lam.m, lam.rho), prepared.start.prior_weight)
        shared = SharedStates(found.limit, prepared.start.prior_weight, found.detrended > 0.0, spot_mean)
    return Model(
        space=space,
        rotation=np.eye(space.n_features) if rotation is None else rotation,
        lam=lam,
        hyperparameters=hyperparameters,
        reach=float(np.quantile(distance, _REACH)),
        # states are those of single spots: nothing is averaged before they are found
        options=Model.stored_options(
            options,
            smooth=0 if shared else prepared.features.found["smooth"],
            n_neighbors=prepared.n_neighbors,
            with_states=shared is not None,
        ),
        version=__version__,
        colours=colours,
        temperature=None if calibration is None else calibration.temperature,
        states=shared,
    )
