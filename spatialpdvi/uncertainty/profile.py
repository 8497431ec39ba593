"""The profile objective of the means of a quantity, U(c) = min over phi of F(phi, c), for CI-VI.

To the objective of the fit it adds a likelihood of the quantity, y_i ~ N(t_i c_k, t_i sigma^2) in domain k, divided by
that at the estimate, where the minimum is then the posterior of the fit. By the envelope theorem the gradient of U is
that of F at the minimum,

    dU/dc_k = -sum_i phi_ik (y_i - t_i c_k) / sigma^2                                                  (U5)

Spots whose posterior is all but certain are held; the posteriors of the others follow c.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from spatialpdvi.kernels.posteriors import LEAST
from spatialpdvi.kernels.profile import follow_means
from spatialpdvi.runtime.threads import own_loops_on_all_threads

__all__ = ["Profile"]

_CERTAIN = 1e-3  # posterior of other domains, below which a spot is held
_SETTLED = 1e-5  # move of a posterior that its neighbours need not follow


class Profile(NamedTuple):
    """U(c) and its gradient for one quantity."""

    values: np.ndarray  # y (a,) of the spots that are not held
    exposure: np.ndarray  # t (a,)
    phi: np.ndarray  # (a, K) of the fit
    graph: sp.csr_matrix  # (a, a) edges between them
    centre: np.ndarray  # (K,) the estimate of c
    noise: float  # sigma^2
    held_sums: np.ndarray  # (K,) of phi y over the spots that are held
    held_exposure: np.ndarray  # (K,) of phi t

    @classmethod
    def of(
        cls,
        values: np.ndarray,
        exposure: np.ndarray,
        phi: np.ndarray,
        *,
        graph: sp.csr_matrix,
        centre: np.ndarray,
        noise: float,
    ) -> "Profile":
        """Divide the spots into those that follow c and those that are held.

        Parameters
        ----------
        values, exposure
            y and t (n,).
        phi
            (n, K) at a fixed point of the fit.
        graph
            R (n, n).
        centre
            (K,) the estimate of c, for which the posteriors are those of the fit.
        noise
            sigma^2, > 0.
        """
        free = phi.max(axis=1) < 1.0 - _CERTAIN
        held = ~free
        return cls(
            values=values[free],
            exposure=exposure[free],
            phi=phi[free],
            graph=sp.csr_matrix(graph[free][:, free]),
            centre=centre,
            noise=noise,
            held_sums=phi[held].T @ values[held],
            held_exposure=phi[held].T @ exposure[held],
        )

    def evaluate(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return -U (p,) and its gradients (p, K) at points (p, K)."""
        graph, centre = self.graph, self.centre
        inside, sums, exposure = np.empty(len(points)), np.empty_like(points), np.empty_like(points)
        with own_loops_on_all_threads():
            follow_means(
                # what the fit said about each spot beside its free neighbours: those that are held are in it, since
                # their pull does not depend on c
                np.log(np.maximum(self.phi, LEAST)) - graph @ self.phi,
                (points - centre) / self.noise,
                (points**2 - centre**2) / (2.0 * self.noise),
                self.values,
                self.exposure,
                graph.indptr,
                graph.indices,
                graph.data,
                self.phi,
                _SETTLED,
                inside,
                sums,
                exposure,
            )
        held = (self.held_sums * points - 0.5 * self.held_exposure * points**2).sum(axis=1) / self.noise
        slope = (self.held_sums + sums - (self.held_exposure + exposure) * points) / self.noise
        return inside + held, slope
