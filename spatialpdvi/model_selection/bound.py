"""The complete bound: F with the terms that it omits as constant, so that fits of different K can be compared."""

from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from spatialpdvi.kernels.potts import draw_domains
from spatialpdvi.problems.potts_mixture import Hyperparameters

__all__ = ["PottsNormaliser", "complete_bound"]

_NODES = 8  # numbers of domains, at most, for which edges are drawn
_DRAWS = (20, 200)  # for each of these, at least and at most
_SPOTS_DRAWN = 100_000  # a large section has many pieces, whose number is better known from a few draws
_SETTLING = 5  # first draws, which still resemble those of the number before


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
    return neg_elbo + likelihood + means + PottsNormaliser.of(graph, most=k, seed=seed).log_partition(k) - jacobian


class PottsNormaliser(NamedTuple):
    r"""The log normaliser of the Potts model, ``log sum_z exp(sum_{i,j} r_ij [z_i = z_j])``, for K up to a largest.

    Every factor ``exp(r [a = b])`` is ``e^r ((1 - p) + p [a = b])`` with ``p = 1 - e^-r``. So (Fortuin and Kasteleyn
    1972), with each edge independently open with probability p, and C the number of pieces that open edges connect,

        Z = exp( sum_{i,j} r_ij )  E[ K^C ],      d log E[K^C] / d log K = E_K[C],

    where E_K is the mean over open edges under the Potts model of K domains: edges within a domain, each open with
    probability p. It is estimated from draws at some K, between which it is taken as linear. A series in log K does not
    do: where the weights of a spot sum to 7, as those of compositions do, some spots stand alone, C is about Poisson
    distributed, and two cumulants miss half of log E[K^C] at K = 20.
    """

    total: float  # sum_{i,j} r_ij
    counts: tuple[int, ...]  # K at which edges were drawn, from 1 on
    pieces: tuple[float, ...]  # E_K[C] there

    @classmethod
    def of(cls, graph: sp.csr_matrix, *, most: int, seed: int) -> Self:
        """Draw the pieces of a graph, a symmetric CSR (n, n) of the weights with each edge twice, for K to ``most``.

        Each draw opens edges, gives each piece that they connect a random domain (Swendsen and Wang 1987), and then
        draws the domain of each spot once, since a spot that stands alone would rarely join its neighbours again.
        """
        n = graph.shape[0]
        upper = sp.triu(graph, k=1).tocoo()
        weight = upper.data.astype(np.float64)
        chance = -np.expm1(-weight)
        rng = np.random.default_rng(seed)
        counts = np.unique(np.round(np.geomspace(1, most, min(most, _NODES))).astype(int))
        draws = int(np.clip(_SPOTS_DRAWN / n, *_DRAWS))
        labels, found = np.zeros(n, dtype=np.int64), []
        for k in counts:
            pieces = np.empty(_SETTLING + draws)
            for draw in range(pieces.size):
                is_open = (labels[upper.row] == labels[upper.col]) & (rng.random(weight.size) < chance)
                ends = upper.row[is_open], upper.col[is_open]
                pieces[draw], piece = connected_components(
                    sp.csr_matrix((np.ones(ends[0].size), ends), shape=graph.shape), directed=False
                )
                labels = rng.integers(k, size=int(pieces[draw]))[piece]
                draw_domains(graph.indptr, graph.indices, graph.data, rng.random(n), k, labels)
            found.append(float(pieces[_SETTLING:].mean()))
        return cls(float(weight.sum()), tuple(counts.tolist()), tuple(found))

    def log_partition(self, k: int) -> float:
        """Return log Z for K domains, at most those of the draws."""
        if k > self.counts[-1]:
            raise ValueError(f"edges were drawn for at most {self.counts[-1]} domains, not {k}")
        ends = np.array([count for count in self.counts if count < k] + [k], dtype=np.float64)
        pieces = np.interp(ends, self.counts, self.pieces)
        slope = np.diff(pieces) / np.diff(ends)
        integral = (pieces[:-1] - slope * ends[:-1]) * np.diff(np.log(ends)) + slope * np.diff(ends)
        return self.total + float(integral.sum())


def _squares(features: np.ndarray | sp.csr_matrix) -> np.ndarray:
    """Sum over spots of x_if^2 (d,)."""
    if isinstance(features, np.ndarray):
        return np.asarray(np.square(features, dtype=np.float64).sum(axis=0))
    return np.asarray(features.astype(np.float64).power(2).sum(axis=0)).ravel()
