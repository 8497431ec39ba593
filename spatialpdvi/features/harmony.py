"""Components of several sections brought together by Harmony (Korsunsky et al. 2019), through the package harmonypy."""

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

from spatialpdvi.errors import InputError

__all__ = ["check_harmony", "harmonise"]

_FEWEST = 20  # spots: harmonypy does not return from clusters of one spot each
_CLUSTERS = 100  # at the most, and one for each 30 spots: Harmony's own default


def check_harmony() -> None:
    """Refuse `--correct harmony` where its package, which is optional, is missing."""
    if find_spec("harmonypy") is None:
        msg = (
            "Expected the package harmonypy for `--correct harmony`, found it missing. Install it: "
            "pip install 'spatialpdvi[harmony]'."
        )
        raise InputError(msg)


def harmonise(x: np.ndarray, samples: Sequence[np.ndarray], *, seed: int) -> np.ndarray:
    """Components (n, d) from which Harmony has taken what tells sections apart within soft clusters of alike spots.

    Run on one thread, with Harmony's own defaults; the same seed gives the same bits.

    Parameters
    ----------
    x
        (n, d) components, uncorrected.
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
    if n < _FEWEST:
        msg = f"Expected at least {_FEWEST} spots with `--correct harmony`, found {n}. Choose --correct center or none."
        raise InputError(msg)
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
