"""Semi-implicit distributions: Gaussians whose means a network makes from noise, and their gradients written out.

    q(z) = E_e N(z; m(e), L L^T),    e ~ N(0, s^2 I),    m a network,    parameters theta = (network, L).

The conditional has a density. That of the mixture cannot be written down, and is estimated by a mean over noises.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from scipy.linalg import solve_triangular

__all__ = ["Family", "LogDensity", "Network", "Ratios", "log_mixture"]

# points (n, d) to the logarithm (n,) of a density up to a constant, and its gradients (n, d)
LogDensity = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Network:
    """Layers with ReLU between them, their parameters a part of one vector theta, and derivatives written out.

    Parameters
    ----------
    sizes
        Numbers of inputs, of the units of each hidden layer, and of outputs.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._shapes = list(pairwise(sizes))
        self.size = self.network_size = sum((rows + 1) * columns for rows, columns in self._shapes)

    def start(self, rng: np.random.Generator) -> np.ndarray:
        """Return a theta (p,) with Xavier's normal weights; all else is 0."""
        theta = np.zeros(self.size)
        for weights, _ in self.layers(theta):
            weights[...] = rng.normal(scale=math.sqrt(2.0 / sum(weights.shape)), size=weights.shape)
        return theta

    def layers(self, theta: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return views of theta as weights (rows, columns) and biases (columns,) of each layer."""
        found, first = [], 0
        for rows, columns in self._shapes:
            weights, biases = first + rows * columns, first + (rows + 1) * columns
            found.append((theta[first:weights].reshape(rows, columns), theta[weights:biases]))
            first = biases
        return found

    def forward(self, theta: np.ndarray, inputs: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the outputs for inputs (n, inputs), and the inputs of each layer, which `backward` needs."""
        received, layers = [inputs], self.layers(theta)
        for weights, biases in layers[:-1]:
            received.append(np.maximum(received[-1] @ weights + biases, 0.0))
        weights, biases = layers[-1]
        return received[-1] @ weights + biases, received

    def backward(
        self, theta: np.ndarray, received: list[np.ndarray], gradient: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return derivatives by the network's part of theta and by the inputs, given those by the outputs."""
        parts: list[np.ndarray] = []
        for layer, ((weights, _), below) in enumerate(zip(self.layers(theta)[::-1], received[::-1], strict=True)):
            parts[:0] = [(below.T @ gradient).ravel(), gradient.sum(axis=0)]
            gradient = gradient @ weights.T
            if layer < len(self._shapes) - 1:
                gradient *= below > 0
        return np.concatenate(parts), gradient


class Family(Network):
    """The network and the covariance of a semi-implicit distribution, with parameters as one vector theta.

    `forward` makes the means m(e) (n, d) from noises. `start` has L = I.

    Parameters
    ----------
    dimensions
        Of z.
    hidden
        Units of each hidden layer.
    noise_dimensions, noise_scale
        Of e.
    is_full
        Whether L is a lower triangle; otherwise it is diagonal.
    """

    def __init__(
        self, dimensions: int, *, hidden: Sequence[int], noise_dimensions: int, noise_scale: float, is_full: bool
    ) -> None:
        super().__init__((noise_dimensions, *hidden, dimensions))
        self.dimensions, self.noise_dimensions, self.noise_scale = dimensions, noise_dimensions, noise_scale
        self._below = np.tril_indices(dimensions, -1) if is_full else None
        self.size = self.network_size + dimensions + (0 if self._below is None else len(self._below[0]))

    def lower(self, theta: np.ndarray) -> np.ndarray:
        """Return L (d, d)."""
        own = theta[self.network_size :]
        lower = np.diag(np.exp(own[: self.dimensions]))
        if self._below is not None:
            lower[self._below] = own[self.dimensions :]
        return lower

    def lower_gradient(self, lower: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return the derivative by the part of theta behind the network, given that by the entries of L (d, d)."""
        diagonal = np.diag(gradient) * np.diag(lower)
        return diagonal if self._below is None else np.concatenate([diagonal, gradient[self._below]])

    def noise(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw e (n, noise dimensions)."""
        return self.noise_scale * rng.normal(size=(n, self.noise_dimensions))


class Ratios:
    """The logarithms of g for some pairs, averaged over some noises, and what their gradients need.

    Parameters
    ----------
    family, theta
        The distribution q.
    pairs
        u (n, d) and e (n, noise dimensions).
    noises
        e' (K, noise dimensions).
    log_density
        Of the target.
    """

    def __init__(
        self,
        family: Family,
        theta: np.ndarray,
        pairs: tuple[np.ndarray, np.ndarray],
        noises: np.ndarray,
        log_density: LogDensity,
    ) -> None:
        self._family, self._theta, self._u = family, theta, pairs[0]
        self.lower = family.lower(theta)
        own, self._own_inputs = family.forward(theta, pairs[1])
        means, self._inputs = family.forward(theta, noises)
        self.points = own + self._u @ self.lower.T  # z (n, d)
        self.log_target, self.score = log_density(self.points)  # (n,) and its gradients (n, d)
        self._a, self._b = (solve_triangular(self.lower, x.T, lower=True).T for x in (self.points, means))
        self.log_mixture, self.share = log_mixture(
            self._a, self._b, self.lower
        )  # (n,), and the components' shares (n, K)

    @property
    def log_ratio(self) -> np.ndarray:
        """Logarithm of the mean of g over the noises, (n,)."""
        return self.log_mixture - self.log_target

    def pull_back(self, on_mixture: np.ndarray, on_target: np.ndarray) -> np.ndarray:
        """Return the gradient (p,) of the sum of ``on_mixture * log_mixture - on_target * log_target``, both (n,)."""
        family, a, b = self._family, self._a, self._b
        weighted = on_mixture[:, None] * self.share
        held, taken = weighted.sum(axis=0), weighted @ b
        towards = on_mixture[:, None] * a - taken  # sum over components of weighted (a - b), (n, d)
        to_means, to_points = (
            solve_triangular(self.lower, x.T, lower=True, trans="T").T
            for x in (weighted.T @ a - held[:, None] * b, towards)
        )
        to_points = -to_points - on_target[:, None] * self.score
        # L stands in the density, in a - b and in its determinant, and in the points
        cross = a.T @ taken
        square = (a.T * on_mixture) @ a - cross - cross.T + (b.T * held) @ b
        square -= on_mixture.sum() * np.eye(len(square))
        to_lower = solve_triangular(self.lower, square, lower=True, trans="T") + to_points.T @ self._u
        network, _ = family.backward(self._theta, self._inputs, to_means)
        network += family.backward(self._theta, self._own_inputs, to_points)[0]
        return np.concatenate([network, family.lower_gradient(self.lower, to_lower)])


def log_mixture(a: np.ndarray, b: np.ndarray, lower: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the log density (n,) of a mixture at points, and the shares (n, K) of its components there.

    Parameters
    ----------
    a, b
        L^-1 z of the points (n, d), and L^-1 m of the means of the K components (K, d), which have equal weights.
    lower
        L (d, d).
    """
    share = a @ b.T
    share -= 0.5 * np.einsum("kd,kd->k", b, b)
    top = share.max(axis=1)
    np.exp(np.subtract(share, top[:, None], out=share), out=share)
    total = share.sum(axis=1)
    share /= total[:, None]
    constant = np.log(np.diag(lower)).sum() + 0.5 * a.shape[1] * math.log(2.0 * math.pi) + math.log(len(b))
    return top + np.log(total) - 0.5 * np.einsum("nd,nd->n", a, a) - constant, share
