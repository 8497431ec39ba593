"""The complete bound: F with the terms that it omits as constant, so that fits of different K can be compared."""

from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from spatialpdvi.problems.potts_mixture import Hyperparameters

__all__ = ["PottsNormaliser", "complete_bound"]

_DRAWS = 50  # of open edges


def complete_bound(
    neg_elbo: float,
    features: np.ndarray | sp.csr_matrix,
    graph: sp.csr_matrix,
    *,
    k: int,
    hyperparameters: Hyperparameters,
    rotation: np.ndarray | None,
    seed: int,
) -> float:
    """Return the negative evidence lower bound of the features before they were rotated, nats (E10).

    F omits what is constant while a model of one K is fitted: the squares of x, and the normalisers of the Gaussians,
    of the priors of the means and of the Potts model. They depend on K, on sigma0 and sigma1, which follow from its
    start, and on its rotation W, whose Jacobian is needed because the units of x differ between K.

    Parameters
    ----------
    neg_elbo
        F (E1).
    features
        x (n, d) as fitted, rotated where there is a rotation.
    graph
        Symmetric CSR (n, n) of the weights ``beta r_ij``, each edge twice.
    k
        K, empty domains included.
    hyperparameters
        sigma0, sigma1 and xi.
    rotation
        W (d, d); None without.
    seed
        Of the draws for the normaliser of the Potts model.
    """
    n = features.shape[0]
    noise, prior, xi = hyperparameters.noise_sd, hyperparameters.prior_sd, hyperparameters.prior_mean
    likelihood = float((0.5 * _squares(features) / noise**2).sum() + 0.5 * n * np.log(2.0 * np.pi * noise**2).sum())
    means = 0.5 * k * float((xi**2 / prior**2 + np.log(prior**2) - 1.0).sum())
    jacobian = 0.0 if rotation is None else n * float(np.linalg.slogdet(rotation)[1])
    return neg_elbo + likelihood + means + PottsNormaliser.of(graph, seed=seed).log_partition(k) - jacobian


class PottsNormaliser(NamedTuple):
    r"""The log normaliser of the Potts model to two orders, ``log sum_z exp(sum_{i,j} r_ij [z_i = z_j])``.

    Every factor ``exp(r [a = b])`` is ``e^r ((1 - p) + p [a = b])`` with ``p = 1 - e^-r``. So (Fortuin and Kasteleyn
    1972), with each edge independently open with probability p, and C the number of pieces that open edges connect,

        Z = exp( sum_{i,j} r_ij )  E[ K^C ],      log E[K^C] = kappa_1 log K + kappa_2 / 2 (log K)^2 + ...

    with mean kappa_1 and variance kappa_2 of C, estimated from draws. Weights of about 2 on ten neighbours connect
    nearly all spots, so that C hardly varies and higher orders vanish. At r = 0 the result is exact, since C = n.
    """

    total: float  # sum_{i,j} r_ij
    mean: float  # kappa_1
    variance: float  # kappa_2

    @classmethod
    def of(cls, graph: sp.csr_matrix, *, seed: int) -> Self:
        """Draw the pieces of a graph, a symmetric CSR (n, n) of the weights with each edge twice."""
        upper = sp.triu(graph, k=1).tocoo()
        weight = upper.data.astype(np.float64)
        chance = -np.expm1(-weight)
        rng = np.random.default_rng(seed)
        pieces = np.empty(_DRAWS)
        for draw in range(_DRAWS):
            is_open = rng.random(weight.size) < chance
            kept = sp.csr_matrix((np.ones(is_open.sum()), (upper.row[is_open], upper.col[is_open])), shape=graph.shape)
            pieces[draw] = connected_components(kept, directed=False, return_labels=False)
        return cls(float(weight.sum()), float(pieces.mean()), float(pieces.var(ddof=1)))

    def log_partition(self, k: int) -> float:
        """Return log Z for K domains."""
        return float(self.total + np.log(k) * (self.mean + 0.5 * np.log(k) * self.variance))


def _squares(features: np.ndarray | sp.csr_matrix) -> np.ndarray:
    """Sum over spots of x_if^2 (d,)."""
    if isinstance(features, np.ndarray):
        return np.asarray(np.square(features, dtype=np.float64).sum(axis=0))
    return np.asarray(features.astype(np.float64).power(2).sum(axis=0)).ravel()
