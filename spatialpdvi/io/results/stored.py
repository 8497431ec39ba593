"""The domains of a fit as they are stored, to be edited and written again."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.arrays import check_order
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.names import domain_names, read_colours, why_fewer
from spatialpdvi.io.results.summary import (
    check_fitted,
    label_key_of_fit,
    not_ours,
    read_summary,
    spatial_key_of_fit,
    stored_params,
)
from spatialpdvi.io.section.coordinates import as_table
from spatialpdvi.io.section.features import read_features
from spatialpdvi.io.section.labels import read_domains
from spatialpdvi.io.section.missing import missing
from spatialpdvi.io.section.section import Section, read_section
from spatialpdvi.runtime.rows import slices

__all__ = [
    "StoredFit",
    "entropies",
    "fitted_features",
    "fitted_section",
    "read_stored",
]

_BLOCK = 1 << 16  # spots whose entropy is computed at a time
_ROUNDED = 1e-3  # how far the posteriors of a spot may be from summing to 1


class StoredFit(NamedTuple):
    """Everything in a file that has a value for each domain."""

    names: tuple[str, ...]  # (K,) of the domains, the categories
    codes: np.ndarray  # (n,) int64, the domain of each spot; -1 for a spot without one
    posterior: np.ndarray  # (n, K) float64 or float32; NaN for a spot without a domain
    calibrated: np.ndarray | None  # (n, K), the same for the calibrated posterior, where there is one
    colours: tuple[str, ...] | None  # (K,) where there are any; they may be no valid colours
    summary: dict[str, Any]  # uns[key]

    @property
    def sizes(self) -> np.ndarray:
        """Spots of each domain (K,)."""
        return np.bincount(self.codes, minlength=len(self.names))

    def elements(self, keys: Keys) -> dict[tuple[str, str], Any]:
        """Return the value of each (group, key) that follows from the domains (docs/outputs.md).

        The confidence is the posterior of the spot's own domain. After a fit that is the largest one; where domains
        were united or divided, it need not be.
        """
        spots, phi = np.arange(self.codes.size), self.posterior
        found: dict[tuple[str, str], Any] = {
            ("obs", keys.domain): pd.Categorical.from_codes(self.codes, list(self.names)),
            ("obs", keys.confidence): phi[spots, self.codes].astype(np.float32),
            ("obs", keys.entropy): entropies(phi),
            ("obsm", keys.posterior): phi.astype(np.float32, copy=False),
            ("uns", keys.uns): self.summary,
        }
        if self.calibrated is not None:
            found["obs", keys.calibrated_confidence] = self.calibrated[spots, self.codes].astype(np.float32)
            found["obsm", keys.calibrated] = self.calibrated.astype(np.float32, copy=False)
        if self.colours is not None:
            found["uns", keys.colours] = np.array(self.colours, dtype=object)
        return found


def entropies(posterior: np.ndarray) -> np.ndarray:
    """Return the entropy (n,) float32 of each row of posteriors (n, K), nats; NaN for a row of NaN."""
    found = np.empty(posterior.shape[0], dtype=np.float32)
    for block in slices(found.size, _BLOCK):
        phi = posterior[block].astype(np.float64)
        log_phi = np.log(phi, out=np.zeros_like(phi), where=phi > 0)
        found[block] = np.maximum(-(phi * log_phi).sum(axis=1), 0.0)
    return found


def read_stored(source: Source, keys: Keys) -> StoredFit:
    """Read and check the domains of a fit with all that belongs to them.

    Raises
    ------
    InputError
        Where there is no fit, or its elements do not fit together.
    """
    check_fitted(source, keys)
    names = tuple(domain_names(source, keys))  # those without a spot too, which have columns in the posterior
    domains = read_domains(source, keys.domain).set_categories(names)
    codes = np.asarray(domains.codes, dtype=np.int64)
    posterior, calibrated = _read_posterior(source, keys, keys.posterior, len(names)), None
    check_order(source, keys, codes, posterior)
    if keys.calibrated in source.obsm_keys():
        calibrated = _read_posterior(source, keys, keys.calibrated, len(names))
    colours = read_colours(source, keys)
    return StoredFit(
        names=names,
        codes=codes,
        posterior=posterior,
        calibrated=calibrated,
        colours=None if colours is None else tuple(colours[name] for name in names),
        summary=read_summary(source, keys.uns),
    )


def fitted_section(source: Source, summary: Mapping[str, Any]) -> Section:
    """Read the section of a fit without its expression: coordinates, the labels to score by, and the sections in it.

    Parameters
    ----------
    source
        The fitted section.
    summary
        ``uns[key]``, whose parameters name the columns; labels that are no longer there are left out.
    """
    return read_section(
        source,
        spatial_key=spatial_key_of_fit(summary, None),
        label_key=label_key_of_fit(source, summary),
        sample_key=stored_params(summary).get("sample_key"),
        expression=False,
    )


def fitted_features(source: Source, keys: Keys, summary: Mapping[str, Any]) -> np.ndarray | sp.csr_matrix:
    """Read the features that were fitted, (n, d), which a fit writes unless they are a matrix of the file."""
    rep = stored_params(summary).get("rep")
    is_written = keys.features in source.obsm_keys() or not isinstance(rep, str)
    return read_features(source, keys.features if is_written else str(rep))


def _read_posterior(source: Source, keys: Keys, key: str, k: int) -> np.ndarray:
    """Read a posterior (n, K) with rows that sum to 1, float64."""
    name = f"obsm[{key!r}]"
    if key not in source.obsm_keys():
        raise missing(source, "obsm", key, "Run `spatialpdvi fit` again.")
    phi = np.asarray(as_table(source.obsm(key), name), dtype=np.float64)
    if phi.shape[1] != k:
        raise InputError(
            f"a column of {name} of {source.name} for each of the {k} categories of obs[{keys.domain!r}]",
            f"{phi.shape[1]} columns",
            why_fewer(source, source.uns(keys.uns))
            if phi.shape[1] > k
            else "Take the categories out that the fit has not written, or run `spatialpdvi fit` again.",
        )
    if not np.isfinite(phi).all() or (phi < 0).any() or np.abs(phi.sum(axis=1) - 1.0).max() > _ROUNDED:
        raise not_ours(source, name, "rows that are no probabilities")
    return phi
