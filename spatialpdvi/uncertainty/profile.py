"""The profile objective of the means of a quantity, U(c) = min over phi of F(phi, c), for CI-VI.

To the objective of the fit it adds a likelihood of the quantity, y_i ~ N(t_i c_k, t_i sigma^2) in domain k, divided by
that at the estimate, where the minimum is then the posterior of the fit. By the envelope theorem the gradient of U is
that of F at the minimum,

    dU/dc_k = -sum_i phi_ik (y_i - t_i c_k) / sigma^2                                                  (U5)

Spots whose posterior is all but certain are held; the posteriors of the others follow c, with damped sweeps.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import log_softmax

__all__ = ["Profile"]

_CERTAIN = 1e-3  # posterior of other domains, below which a spot is held
_SWEEPS = 40
_DAMPING = 0.5  # updates of all spots at once may alternate
_TOLERANCE = 1e-5
_AT_A_TIME = 1 << 22  # numbers of the posteriors of some points


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
        found, slope = np.empty(len(points)), np.empty_like(points)
        step = max(1, _AT_A_TIME // max(1, self.phi.size))
        for first in range(0, len(points), step):
            rows = slice(first, first + step)
            found[rows], slope[rows] = self._some(points[rows])
        return found, slope

    def _some(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        log_phi = np.log(np.maximum(self.phi, 1e-300))
        # what the fit said about each spot beside its neighbours: the neighbours that are held are in it, since their
        # pull does not depend on c
        own = log_phi - self._pull(self.phi[None])[0]
        gain = self._likelihood(points) - self._likelihood(self.centre[None])
        phi = np.repeat(self.phi[None], len(points), axis=0)
        for _ in range(_SWEEPS):
            new = np.exp(log_softmax(own + gain + self._pull(phi), axis=2))
            moved = np.abs(new - phi).max(initial=0.0)
            phi = (1.0 - _DAMPING) * phi + _DAMPING * new
            if moved < _TOLERANCE:
                break
        entropy = -(phi * np.log(np.maximum(phi, 1e-300))).sum(axis=(1, 2))
        inside = (phi * (own + gain + 0.5 * self._pull(phi))).sum(axis=(1, 2)) + entropy
        held = (self.held_sums * points - 0.5 * self.held_exposure * points**2).sum(axis=1) / self.noise
        sums = self.held_sums + np.einsum("pak,a->pk", phi, self.values)
        exposure = self.held_exposure + np.einsum("pak,a->pk", phi, self.exposure)
        return inside + held, (sums - exposure * points) / self.noise

    def _likelihood(self, points: np.ndarray) -> np.ndarray:
        """The log likelihood (p, a, K) of the quantity, up to a constant for each spot."""
        y, t, c = self.values[None, :, None], self.exposure[None, :, None], points[:, None, :]
        return np.asarray((y * c - 0.5 * t * c**2) / self.noise)

    def _pull(self, phi: np.ndarray) -> np.ndarray:
        """``R phi`` for posteriors (p, a, K)."""
        p, a, k = phi.shape
        flat = self.graph @ phi.transpose(1, 0, 2).reshape(a, p * k)
        return np.asarray(flat.reshape(a, p, k).transpose(1, 0, 2))
