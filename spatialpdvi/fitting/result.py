"""The result of a fit, spots in the user's order and domains by size, and the elements of AnnData that it becomes."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.special import softmax

from spatialpdvi.fitting.certificate import Certificate
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.left_out import on_all_spots
from spatialpdvi.io.results.stored import entropies
from spatialpdvi.metrics.calibration import Calibration
from spatialpdvi.metrics.clustering import overlap
from spatialpdvi.model import Model
from spatialpdvi.problems.base import Blocks
from spatialpdvi.problems.composition import CompositionMixture
from spatialpdvi.problems.potts_mixture import Hyperparameters, PottsMixture

__all__ = ["FitResult", "Scan", "default_names", "name_domains", "order_by_size", "state_result"]


class Scan(NamedTuple):
    """What was measured for each number of domains of a range, and the number that is recommended."""

    asked: str  # the range, as the user gave it
    k: int
    reason: str
    table: dict[str, np.ndarray]  # columns of equal length, a row for each K

    def summary(self) -> dict[str, Any]:
        """Return what is written: the table, and the choice with its reason."""
        return {"k_scan": self.table, "k_choice": {"asked": self.asked, "k": self.k, "reason": self.reason}}


class StateResult(NamedTuple):
    """The states that domains share, where they are compositions of states."""

    posterior: np.ndarray  # (n, C) float32, of each spot's state
    composition: np.ndarray  # pi (K, C), rows sum to 1
    prior_weight: np.ndarray  # a (C,), in spots


@dataclass(frozen=True, eq=False, repr=False)
class FitResult:
    """Domains of a section.

    Parameters
    ----------
    domains
        (n,) int64 in 0..K-1, the argmax of the posterior: the largest domain first, or in the order of the model.
    posterior
        phi (n, K) float32.
    domain_mean, log_variance
        m and rho (K, d) of the domains or, where domains share states, (C, d) of the states.
    hyperparameters
        sigma0, sigma1 and xi, (d,) each.
    agreement
        (n,) float32: share of restarts that put the spot where their consensus does; None without restarts.
    calibration
        The calibrated posterior, which is as confident on average as two restarts agree, or the mean of that and of the
        posteriors of several searches, and its temperature; None without restarts.
    features
        (n, d) float32 (float64 where given so), dense or CSR: what was fitted.
    store_features
        Whether the features are written beside the result, because they are not a matrix of the file already.
    graph
        Symmetric CSR (n, n) of the weights ``beta r_ij`` that entered the objective.
    find_flow
        Returns `flow`. It is called when that is first asked for, since it takes long on large sections, and edges of
        compositions do not depend on flow directions.
    trace
        Columns of equal length, one entry per epoch.
    certificate
        How stationary the result is.
    scores
        ARI and the other scores, with those of the start under "baseline".
    params
        Every option in force, what was found in the input, the seed and versions.
    seconds
        Wall seconds of each stage.
    colours
        (K,) hexadecimal, one for each domain.
    own_colours
        Whether these are the user's, and not those that the fit chose.
    model
        The domains in a form that finds them in other sections; None for a prediction, and where that is not possible
        (`spatialpdvi.fitting.export.why_no_model`).
    scan
        What was measured for every number of domains, and why this one was chosen; None where ``k`` was one number.
    states
        Where domains are compositions of states: these, and the posterior of each spot's state.
    kept
        (all spots of the section as it was given,) bool: the n that were fitted; None where none was left out.
    markers
        Marker genes of each domain by its name, where they were requested and there are counts.
    marker_table
        The same with scores and shares (`spatialpdvi.markers`).
    samples
        (n,) the section of each spot, where several were fitted or predicted together; None for one section.

    Examples
    --------
    >>> result = spv.fit(adata, k=3, n_top_genes=60, n_init=1)
    >>> result.domains.shape, result.posterior.shape
    ((400,), (400, 3))
    >>> result.certificate.sentence()
    'Converged: ...'
    """

    domains: np.ndarray
    posterior: np.ndarray
    domain_mean: np.ndarray
    log_variance: np.ndarray
    hyperparameters: Hyperparameters
    agreement: np.ndarray | None
    calibration: Calibration | None
    features: np.ndarray | sp.csr_matrix
    store_features: bool
    graph: sp.csr_matrix
    find_flow: Callable[[], np.ndarray]
    trace: dict[str, np.ndarray]
    certificate: Certificate
    scores: dict[str, Any]
    params: dict[str, Any]
    seconds: dict[str, float]
    colours: tuple[str, ...]
    own_colours: bool = False
    model: Model | None = None
    scan: Scan | None = None
    markers: dict[str, list[str]] | None = None
    marker_table: pd.DataFrame | None = None
    states: StateResult | None = None
    kept: np.ndarray | None = None
    samples: pd.Categorical | None = None

    def __repr__(self) -> str:
        n, d = self.features.shape
        state = "converged" if self.certificate.converged else "not converged"
        return f"FitResult({n:,} spots, {d} features, {self.n_domains} domains, {state})"

    @cached_property
    def flow(self) -> np.ndarray:
        """Flow directions (n, 2), or border normals (n, 3) of a 3-D section."""
        return self.find_flow()

    @property
    def n_domains(self) -> int:
        """K, empty domains included."""
        return int(self.posterior.shape[1])

    @property
    def domain_sizes(self) -> np.ndarray:
        """Spots of each domain (K,), descending but for predictions and parts of a joint fit."""
        return np.bincount(self.domains, minlength=self.n_domains)

    def sizes_by_section(self) -> pd.DataFrame | None:
        """Return the spots of each domain in each section, (S, K) by their names; None for one section."""
        if self.samples is None:
            return None
        shape = (len(self.samples.categories), self.n_domains)
        sizes = overlap(self.samples.codes, self.domains, shape=shape)
        return pd.DataFrame(sizes, index=self.samples.categories, columns=default_names(self.n_domains))

    @property
    def confidence(self) -> np.ndarray:
        """Largest posterior of each spot (n,) float32."""
        return self.posterior.max(axis=1)

    @property
    def entropy(self) -> np.ndarray:
        """Entropy of each spot's posterior (n,) float32, nats."""
        return entropies(self.posterior)

    def part(self, spots: np.ndarray, kept: np.ndarray | None) -> "FitResult":
        """Return the result for some of the spots (ascending), to be written into the file that they came from.

        ``kept`` is that of the file. Values of spots are selected; domains, trace, certificate and scores are those of
        the joint fit, unchanged.
        """
        return replace(
            self,
            domains=self.domains[spots],
            posterior=self.posterior[spots],
            agreement=None if self.agreement is None else self.agreement[spots],
            calibration=None if self.calibration is None else self.calibration.part(spots),
            states=None if self.states is None else self.states._replace(posterior=self.states.posterior[spots]),
            features=self.features[spots],
            store_features=True,
            graph=self.graph[spots][:, spots].tocsr(),
            find_flow=partial(_flow_of, self, spots),
            kept=kept,
            samples=None,
            marker_table=None,  # it is of all files together
        )

    def with_colours(self, colours: Sequence[str]) -> "FitResult":
        """Return the result, and its model, with the colours (K,) of the user, hexadecimal."""
        model = None if self.model is None else replace(self.model, colours=tuple(colours))
        return replace(self, colours=tuple(colours), own_colours=True, model=model)

    def elements(self, keys: Keys, *, save_graph: bool) -> dict[tuple[str, str], Any]:
        """Return the value of each (group, key) that is written (docs/outputs.md)."""
        elements: dict[tuple[str, str], Any] = {
            ("obs", keys.domain): name_domains(self.domains, self.n_domains),
            ("obs", keys.confidence): self.confidence,
            ("obs", keys.entropy): self.entropy,
            ("obsm", keys.posterior): self.posterior,
            ("uns", keys.uns): deepcopy(self._summary()),  # small; the user may change it, and the model not
            ("uns", keys.colours): np.array(self.colours, dtype=object),
        }
        if self.agreement is not None:
            elements["obs", keys.agreement] = self.agreement
        if self.calibration is not None:
            elements["obs", keys.calibrated_confidence] = self.calibration.confidence
            elements["obsm", keys.calibrated] = self.calibration.posterior
        if self.states is not None:
            elements["obsm", keys.state] = self.states.posterior
        if self.store_features:
            elements["obsm", keys.features] = self.features
        if save_graph:
            elements["obsp", keys.connectivities] = self.graph
            elements["obsm", keys.flow] = self.flow.astype(np.float32)
        return on_all_spots(elements, self.kept)

    def report(self) -> dict[str, Any]:
        """Return scores, certificate, parameters, sizes, times and, where they are known, marker genes, for JSON."""
        return {
            "scores": self.scores,
            "certificate": self.certificate.as_dict(),
            "domain_sizes": self.domain_sizes.tolist(),
            "params": self.params,
            "seconds": self.seconds,
            **({} if self.scan is None else self.scan.summary()),
            **({} if self.markers is None else {"markers": self.markers}),
        }

    def _summary(self) -> dict[str, Any]:
        return {
            "params": self.params,
            **self._globals(),
            "noise_sd": self.hyperparameters.noise_sd,
            "prior_sd": self.hyperparameters.prior_sd,
            "prior_mean": self.hyperparameters.prior_mean,
            "trace": self.trace,
            "certificate": self.certificate.as_dict(),
            "scores": self.scores,
            **({} if self.own_colours else {"colours": np.array(self.colours, dtype=object)}),
            **({} if self.scan is None else self.scan.summary()),
        }

    def _globals(self) -> dict[str, np.ndarray]:
        """The globals of the domains, or of the states that they share with the means that follow for the domains."""
        if self.states is None:
            return {"domain_mean": self.domain_mean, "log_variance": self.log_variance}
        return {
            "domain_mean": self.states.composition @ self.domain_mean,
            "state_mean": self.domain_mean,
            "log_variance": self.log_variance,
            "composition": self.states.composition,
            "prior_weight": self.states.prior_weight,
        }


def _flow_of(result: FitResult, spots: np.ndarray) -> np.ndarray:
    """Return the flow directions at some spots."""
    return result.flow[spots]


def state_result(problem: PottsMixture, order: np.ndarray, posterior: np.ndarray, lam: Blocks) -> StateResult | None:
    """Return the states that domains share; None where they share none.

    Parameters
    ----------
    problem
        Rows in patch order.
    order
        (n,) the spot of each row.
    posterior
        phi (n, K) in the user's order.
    lam
        The globals, domains in the order of the posterior.
    """
    if not isinstance(problem, CompositionMixture):
        return None
    states = np.empty((order.size, lam.m.shape[0]), dtype=np.float32)
    states[order] = problem.state_posterior(posterior[order], lam)
    return StateResult(states, softmax(lam.theta, axis=1), problem.prior_weight)


def name_domains(domains: np.ndarray, n_domains: int) -> pd.Categorical:
    """Return domains (n,) by name, ``"0"`` to ``"K-1"``; empty domains are among the categories."""
    return pd.Categorical.from_codes(domains, default_names(n_domains))


def default_names(n_domains: int) -> list[str]:
    """Return the names that a fit gives to its domains, ``"0"`` to ``"K-1"``."""
    return [str(k) for k in range(n_domains)]


def order_by_size(posterior: np.ndarray) -> np.ndarray:
    """Return domains (K,) by their number of spots, the largest first; equal ones stay in their order."""
    sizes = np.bincount(posterior.argmax(axis=1), minlength=posterior.shape[1])
    return np.argsort(-sizes, kind="stable")
