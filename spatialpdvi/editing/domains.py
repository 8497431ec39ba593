r"""What an edit makes of a fit: posteriors, parameters and colours of domains that are renamed, united or divided.

Posteriors of domains that are united add. Those of a domain that is divided are its own times the probability of each
part within it. Both keep the sum of every row. No spot changes into a domain that its own was not united with.

The parameters of the domains follow. Where each domain has one mean, its natural parameters hold the statistics of its
spots, so that those of a union need no features,

    L_ab = L_a + L_b - 1/sigma1^2,   m_ab L_ab = m_a L_a + m_b L_b - xi/sigma1^2,   rho_ab = -log L_ab         (E12)

which is (E7) with N_a + N_b and S_a + S_b, where the fit has converged. The composition of a union has the weights
A_ab = A_a + A_b - a, which is (C5) with M_a + M_b. The parameters of parts are (E7) and (C5) themselves.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from spatialpdvi.editing.names import part_names
from spatialpdvi.errors import InputError, list_keys
from spatialpdvi.io.results.stored import StoredFit
from spatialpdvi.palette import further_colours
from spatialpdvi.problems.composition import StateLikelihoods
from spatialpdvi.problems.features import wrap_features
from spatialpdvi.problems.potts_mixture import PottsGlobals

__all__ = ["divide", "hyperparameter", "logged", "rename", "state_likelihoods", "unite"]

_ROUNDS = 100  # of (C2) and (C5), after which the composition of a part has settled
_SETTLED = 1e-7


def rename(fit: StoredFit, names: Sequence[str]) -> StoredFit:
    """Return the fit with other names (K,), no two of them equal."""
    return fit._replace(names=tuple(names))


def unite(fit: StoredFit, members: Sequence[int], name: str) -> StoredFit:
    """Return the fit with some of its domains united, in the place and the colour of the first of them.

    Parameters
    ----------
    fit
        As it is stored.
    members
        Positions of at least two domains.
    name
        Of the union, which no other domain has.
    """
    first, *others = members = sorted(members)
    kept = np.array([k for k in range(len(fit.names)) if k not in others])
    to = np.searchsorted(kept, np.arange(len(fit.names)))
    to[others] = to[first]
    names = list(fit.names)
    names[first] = name

    def add(posterior: np.ndarray) -> np.ndarray:
        sums = posterior[:, kept].copy()
        sums[:, to[first]] = posterior[:, members].sum(axis=1)
        return sums

    return StoredFit(
        names=tuple(names[k] for k in kept),
        codes=to[fit.codes],
        posterior=add(fit.posterior),
        calibrated=None if fit.calibrated is None else add(fit.calibrated),
        colours=None if fit.colours is None else tuple(fit.colours[k] for k in kept),
        summary=_with_rows(fit.summary, kept, {to[first]: _united(fit, members)}),
    )


def divide(
    fit: StoredFit,
    domain: int,
    parts: np.ndarray,
    *,
    shares: np.ndarray,
    calibrated: np.ndarray | None = None,
    features: np.ndarray | sp.csr_matrix,
) -> StoredFit:
    """Return the fit with one domain divided into parts, in its place; the first part keeps its colour.

    Parameters
    ----------
    fit
        As it is stored.
    domain
        Position of the domain.
    parts
        The part (n,) in 0..N-1 of each spot of the domain; other spots have any.
    shares
        Probability (n, N) of each part for every spot, given that it belongs to the domain; rows sum to 1.
    calibrated
        The same for the calibrated posterior; by default ``shares``.
    features
        x (n, d), from which the parameters of the parts follow.
    """
    k, n = len(fit.names), shares.shape[1]
    origin = np.concatenate([np.arange(domain), np.full(n, domain), np.arange(domain + 1, k)])
    own = fit.codes == domain
    codes = np.where(fit.codes > domain, fit.codes + n - 1, fit.codes)
    codes[own] = domain + parts[own]
    others = [name for k, name in enumerate(fit.names) if k != domain]
    names = (*fit.names[:domain], *part_names(fit.names[domain], n, others), *fit.names[domain + 1 :])

    def multiply(posterior: np.ndarray, by: np.ndarray) -> np.ndarray:
        products = posterior[:, origin]
        products[:, domain : domain + n] *= by
        return products

    posterior = multiply(fit.posterior, shares)
    of_parts = np.ascontiguousarray(posterior[:, domain : domain + n])
    rows = _optima(fit.summary, of_parts, features, parent=domain)
    return StoredFit(
        names=names,
        codes=codes,
        posterior=posterior,
        calibrated=None
        if fit.calibrated is None
        else multiply(fit.calibrated, shares if calibrated is None else calibrated),
        colours=None if fit.colours is None else _with_parts(fit.colours, domain, n),
        summary=_with_rows(fit.summary, origin, {domain + part: own for part, own in enumerate(rows)}),
    )


def logged(
    before: Mapping[str, Any], summary: Mapping[str, Any], *, action: str, detail: str, k: int
) -> dict[str, Any]:
    """Return the summary with one more entry in its list of edits.

    Parameters
    ----------
    before
        The summary before the edit.
    summary
        The one that the edit made.
    action, detail
        What was done: a word, and a sentence.
    k
        Number of domains after it.
    """
    old = before.get("edits")
    old = old if isinstance(old, Mapping) else {}
    new = {"action": action, "detail": detail}
    columns: dict[str, Any] = {
        name: np.array([*(str(value) for value in np.atleast_1d(old.get(name, ()))), text], dtype=object)
        for name, text in new.items()
    }
    columns["n_domains"] = np.append(np.atleast_1d(old.get("n_domains", np.array([], dtype=np.int64))), k).astype(int)
    return dict(summary) | {"edits": columns}


def state_likelihoods(summary: Mapping[str, Any], features: np.ndarray | sp.csr_matrix) -> StateLikelihoods:
    """Return the likelihoods of the states that domains share for spots with the features x (n, d) (C1)."""
    states = PottsGlobals(np.asarray(summary["state_mean"]), np.asarray(summary["log_variance"]))
    return StateLikelihoods.of(wrap_features(features), states, 1.0 / hyperparameter(summary, "noise_sd") ** 2)


def hyperparameter(summary: Mapping[str, Any], name: str) -> np.ndarray:
    """Return a hyperparameter (d,) of a fit; raise an `InputError` where its summary has lost it."""
    if name not in summary:
        raise InputError(
            f"the parameters of the fit, {name!r} among them",
            list_keys(summary),
            "Sections lose them when they are concatenated: fit them together.",
        )
    return np.asarray(summary[name])


def _united(fit: StoredFit, members: Sequence[int]) -> dict[str, np.ndarray]:
    """The parameters of a union, by name: natural parameters add, less those of all priors but one."""
    summary, rows = fit.summary, list(members)
    more = len(rows) - 1
    if "composition" in summary:
        prior = np.asarray(summary["prior_weight"])
        total = fit.posterior[:, rows].sum(axis=0) + prior.sum()
        weights = total @ np.asarray(summary["composition"])[rows] - more * prior
        # posteriors have been rounded since the fit, so that a difference may fall below the prior itself
        return _composed(summary, np.maximum(weights, prior))
    prior = 1.0 / hyperparameter(summary, "prior_sd") ** 2
    precision = np.exp(-np.asarray(summary["log_variance"])[rows])
    mean = np.asarray(summary["domain_mean"])[rows]
    total = precision.sum(axis=0) - more * prior
    weighted = (precision * mean).sum(axis=0) - more * prior * np.asarray(summary["prior_mean"])
    return {"domain_mean": weighted / total, "log_variance": -np.log(total)}


def _optima(
    summary: Mapping[str, Any], posterior: np.ndarray, features: np.ndarray | sp.csr_matrix, *, parent: int
) -> list[dict[str, np.ndarray]]:
    """The parameters of domains with a posterior (n, N), all else held: (E7), or (C5) from their parent's."""
    if "composition" not in summary:
        noise, prior = (1.0 / hyperparameter(summary, name) ** 2 for name in ("noise_sd", "prior_sd"))
        counts, sums = wrap_features(features).statistics(posterior)
        precision = counts[:, None] * noise + prior
        means = (sums * noise + np.asarray(summary["prior_mean"]) * prior) / precision
        return [{"domain_mean": m, "log_variance": -np.log(own)} for m, own in zip(means, precision, strict=True)]
    states, prior = state_likelihoods(summary, features), np.asarray(summary["prior_weight"])
    shares = np.repeat(np.asarray(summary["composition"], dtype=np.float64)[[parent]], posterior.shape[1], axis=0)
    for _ in range(_ROUNDS):
        weights = states.members(states.weighted(posterior, shares), shares) + prior
        before, shares = shares, weights / weights.sum(axis=1, keepdims=True)
        if np.abs(shares - before).max() < _SETTLED:
            break
    return [_composed(summary, own) for own in weights]


def _composed(summary: Mapping[str, Any], weights: np.ndarray) -> dict[str, np.ndarray]:
    """The parameters of a domain with the weights A (C,) (C5)."""
    share = weights / weights.sum()
    return {"composition": share, "domain_mean": share @ np.asarray(summary["state_mean"])}


def _with_rows(
    summary: Mapping[str, Any], origin: Iterable[int], changed: Mapping[int, Mapping[str, np.ndarray]]
) -> dict[str, Any]:
    """The summary with the rows of domains at new places, those that changed by their new positions.

    Coarser domains (``levels``) are those of the domains before, and go.
    """
    found = {name: value for name, value in summary.items() if name != "levels"}
    for name in next(iter(changed.values())):
        rows = np.array(found[name])[np.asarray(origin)]
        for position, values in changed.items():
            rows[position] = values[name]
        found[name] = rows
    return found


def _with_parts(colours: Sequence[str], domain: int, n: int) -> tuple[str, ...]:
    """The colours with those of new parts, which differ from all others."""
    return (*colours[: domain + 1], *further_colours(n - 1, taken=colours), *colours[domain + 1 :])
