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
    centre: np.ndarray  # (v,) the estimate of c in the domains whose means vary
    varied: np.ndarray  # (v,) these domains
    noise: float  # sigma^2
    held_sums: np.ndarray  # (v,) of phi y over the spots that are held
    held_exposure: np.ndarray  # (v,) of phi t

    @classmethod
    def of(
        cls,
        values: np.ndarray,
        exposure: np.ndarray,
        phi: np.ndarray,
        *,
        graph: sp.csr_matrix,
        centre: np.ndarray,
        varied: np.ndarray,
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
        varied
            (v,) domains whose means vary; those of the others, which have no spots, stay.
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
            centre=centre[varied],
            varied=varied,
            noise=noise,
            held_sums=phi[held][:, varied].T @ values[held],
            held_exposure=phi[held][:, varied].T @ exposure[held],
        )

    def evaluate(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return -U (p,) and its gradients (p, v) at points (p, v)."""
        graph, centre = self.graph, self.centre
        linear, square, sums, exposure = np.zeros((4, len(points), self.phi.shape[1]))
        linear[:, self.varied] = (points - centre) / self.noise
        square[:, self.varied] = (points**2 - centre**2) / (2.0 * self.noise)
        inside = np.empty(len(points))
        with own_loops_on_all_threads():
            follow_means(
                # what the fit said about each spot beside its free neighbours: those that are held are in it, since
                # their pull does not depend on c
                np.log(np.maximum(self.phi, LEAST)) - graph @ self.phi,
                linear,
                square,
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
        sums, exposure = self.held_sums + sums[:, self.varied], self.held_exposure + exposure[:, self.varied]
        slope = (sums - exposure * points) / self.noise
        return inside + held, slope
