"""The certificate of a fit: how far every block of the written result is from stationary, and why the fit stopped."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spatialpdvi.fitting.loop import Stop, StopRule, TraceRow
from spatialpdvi.problems.base import Blocks, Evaluation, Problem

__all__ = ["Certificate", "certify", "gradient_norm"]


@dataclass(frozen=True)
class Certificate:
    """Stationarity of the result as it is written; anyone can recompute it from the file's keys.

    Parameters
    ----------
    converged, reason
        Whether the stop rule was met, and the sentence that says why the fit stopped.
    epochs
        Visits of every patch.
    neg_elbo
        F at the end, nats (E1).
    relative_change
        ``|F - F_before| / (n d / 2)`` over the last epoch, of the last two rows of the trace. n d / 2 is the size of
        the data's misfit; unlike F it does not depend on where the features have their zero.
    gradient_norm
        Euclidean norm of the gradient of F in all global blocks: m and rho, or theta where states are held.
        `gradient_norm_mean` and `gradient_norm_log_variance` are those of m and rho alone.
    stationarity_mean
        ``max_kf |m_kf - m*_kf| / sigma0_f``, m* the optimum given all else.
    stationarity_log_variance
        ``max_kf |exp(rho_kf) / exp(rho*_kf) - 1|``.
    stationarity_posterior
        Mean over spots of the total variation distance between phi_i and its own optimum; `_max` is the largest.
    tolerance, tolerance_objective
        The tolerances of the stationarities and of the relative change.
    stationarity_composition
        Largest total variation distance between a domain's composition and its own optimum (C5); None where domains
        share no states.
    """

    converged: bool
    reason: str
    epochs: int
    neg_elbo: float
    relative_change: float
    gradient_norm: float
    gradient_norm_mean: float
    gradient_norm_log_variance: float
    stationarity_mean: float
    stationarity_log_variance: float
    stationarity_posterior: float
    stationarity_posterior_max: float
    tolerance: float
    tolerance_objective: float
    stationarity_composition: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for `uns` and JSON."""
        return {name: value for name, value in self.__dict__.items() if value is not None}

    def sentence(self) -> str:
        """Return the certificate in words."""
        compositions = ""
        if self.stationarity_composition is not None:
            compositions = f"compositions within {self.stationarity_composition:.1e}, "
        return (
            f"{self.reason} {self.epochs} epoch{'s' * (self.epochs != 1)}; F = {self.neg_elbo:.6g} nats, last change "
            f"{self.relative_change:.1e}; means within {self.stationarity_mean:.1e} noise sd of their optimum, "
            f"variances within {self.stationarity_log_variance:.1e}, {compositions}posteriors within "
            f"{self.stationarity_posterior:.1e} (tolerance {self.tolerance:.0e})."
        )


def gradient_norm(evaluation: Evaluation) -> float:
    """Return the Euclidean norm of the gradient of F in all global blocks."""
    return float(np.sqrt(sum(float(np.sum(block**2)) for block in evaluation.gradient)))


def certify(
    problem: Problem, phi: np.ndarray, lam: Blocks, *, trace: Sequence[TraceRow], stop: Stop, rule: StopRule
) -> Certificate:
    """Return the certificate of a result as it is written.

    Parameters
    ----------
    problem
        What was fitted.
    phi
        Posteriors (n, K) float32, as they are written.
    lam
        The globals.
    trace
        At least the last two rows of the run.
    stop, rule
        Why the run stopped, and the rule that it followed.
    """
    final = problem.evaluate(phi.astype(np.float64), lam)
    before, last = (row.evaluation.neg_elbo for row in trace[-2:])
    change = abs(last - before) / final.scale  # of the run: what is written is rounded, by more than a tight tolerance
    return Certificate(
        converged=stop is Stop.CONVERGED,
        reason=stop.value,
        epochs=trace[-1].epoch,
        neg_elbo=final.neg_elbo,
        relative_change=change,
        gradient_norm=gradient_norm(final),
        gradient_norm_mean=float(np.linalg.norm(final.gradient.m)),
        gradient_norm_log_variance=float(np.linalg.norm(final.gradient.rho)),
        stationarity_mean=final.stationarity["mean"],
        stationarity_log_variance=final.stationarity["log_variance"],
        stationarity_posterior=final.residual_mean,
        stationarity_posterior_max=final.residual_max,
        tolerance=rule.tolerance,
        tolerance_objective=rule.relative_change,
        stationarity_composition=final.stationarity.get("composition"),
    )
