"""Corrections of the differences between sections: a common mean, or Harmony (Korsunsky et al. 2019)."""

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

from spatialpdvi.errors import InputError, missing_package, option
from spatialpdvi.runtime.threads import single_threaded

__all__ = ["FEWEST_CORRECTED", "centre_samples", "check_harmony", "correct_sections", "harmonise"]

FEWEST_CORRECTED = 20  # spots, by Harmony: harmonypy does not return from clusters of one spot each
_CLUSTERS = 100  # at most, and one for each 30 spots: Harmony's own default


def correct_sections(x: np.ndarray, samples: Sequence[np.ndarray], *, method: str, seed: int) -> np.ndarray:
    """Return dense features (n, d) of several sections, corrected for what differs between these.

    Parameters
    ----------
    x
        (n, d).
    samples
        Spots of each section.
    method
        "none", "center" (`centre_samples`) or "harmony" (`harmonise`).
    seed
        Of Harmony.
    """
    if method == "center":
        return centre_samples(x, samples)
    if method == "harmony":
        with single_threaded():
            return harmonise(x, samples, seed=seed)
    return x


def centre_samples(x: np.ndarray, samples: Sequence[np.ndarray], centre: np.ndarray | None = None) -> np.ndarray:
    """Return features (n, d) whose mean is the same in every section: ``centre`` (d,), or the mean of all spots."""
    centred = x.astype(np.float64)
    if centre is None:
        centre = centred.mean(axis=0)
    for spots in samples:
        centred[spots] += centre - centred[spots].mean(axis=0)
    return centred.astype(x.dtype)


def check_harmony() -> None:
    """Raise a `ResourceError` where the optional package of Harmony is missing."""
    if find_spec("harmonypy") is None:
        raise missing_package("harmonypy", f"for {option('correct', 'harmony')}", "'spatialpdvi[harmony]'")


def harmonise(x: np.ndarray, samples: Sequence[np.ndarray], *, seed: int) -> np.ndarray:
    """Return components (n, d) from which Harmony has removed what separates sections within soft clusters of spots.

    It runs on one thread with Harmony's own defaults, and is reproducible.

    Parameters
    ----------
    x
        (n, d) uncorrected components.
    samples
        Spots of each section.
    seed
        Of the clusters' first centres and of the order in which spots are visited.

    Raises
    ------
    InputError
        Where there are fewer than 20 spots.
    """
    from harmonypy import run_harmony

    n = x.shape[0]
    if n < FEWEST_CORRECTED:
        raise InputError(
            f"at least {FEWEST_CORRECTED} spots with {option('correct', 'harmony')}",
            str(n),
            f"Choose {option('correct', 'center')} or {option('correct', 'none')}.",
        )
    codes = np.empty(n, dtype=np.int64)
    for code, spots in enumerate(samples):
        codes[spots] = code
    found = run_harmony(
        x.T.astype(np.float64),
        {"section": codes},
        "section",
        nclust=max(2, min(round(n / 30), _CLUSTERS)),
        # its generator takes 31 bits, ours 32
        random_state=int(np.random.default_rng(seed).integers(2**31)),
        ncores=1,
        verbose=False,
    )
    return np.ascontiguousarray(found.Z_corr, dtype=x.dtype)
