"""The model as a scikit-learn estimator: arrays in, arrays out."""

from typing import Any, Self

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from spatialpdvi.errors import InputError
from spatialpdvi.fitting.export import why_no_model
from spatialpdvi.fitting.fit import fit_section
from spatialpdvi.fitting.inputs import read_inputs
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.runtime.progress import Progress

__all__ = ["PottsGMM"]

_FEATURES, _PLACES, _GRAPH = "X_features", "spatial", "given"


class PottsGMM(ClusterMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is not typed
    """Potts-Gaussian mixture of features with places in space, fitted by P2D-VI (Lyu, Yu, Ma and Shi 2026).

    What `spatialpdvi.fit` does with features that are ready, such as components or an embedding: no AnnData, no files.

    Parameters
    ----------
    n_components
        K, the number of domains.
    beta
        Potts strength: how much neighbours pull on each other; 0 gives a plain mixture.
    tau
        Weight of feature similarity in an edge's weight.
    n_neighbors
        k of the mutual nearest-neighbour graph; without use where a graph is given.
    smooth
        Nearest samples that features are averaged over; 0 for none, None for as many as predict a sample best.
    whiten
        Whether to rotate and scale features so that noise within domains is alike in all directions.
    n_init
        Restarts by a Gaussian mixture on each of three scales, of which the start is the consensus.
    solver
        One of `spatialpdvi.options.fit.SOLVERS`.
    max_epochs
        Visits of every patch at the most.
    tol
        Converged when means, log variances and posteriors are stationary to this.
    random_state
        Seed of everything random; the same seed gives the same bits for any number of threads.

    Attributes
    ----------
    labels_
        (n,) int64 domains, the largest is 0.
    posterior_
        (n, K) float32 probabilities.
    means_
        (K, d) averages of X, weighted by the posteriors; NaN where a domain has no weight.
    converged_, n_iter_, neg_elbo_
        Whether the fit converged, after how many epochs, and F in nats.
    result_
        The whole `spatialpdvi.FitResult`, with its certificate.
    n_features_in_
        d.

    Examples
    --------
    >>> import numpy as np
    >>> from spatialpdvi import PottsGMM
    >>> rng = np.random.default_rng(0)
    >>> places = np.stack(np.meshgrid(np.arange(20.0), np.arange(20.0)), axis=-1).reshape(-1, 2)
    >>> left = places[:, 0] < 10
    >>> X = np.where(left[:, None], 0.0, 3.0) + rng.normal(size=(400, 2))
    >>> gmm = PottsGMM(2, n_init=2).fit(X, coordinates=places)
    >>> bool(max(np.mean(gmm.labels_ == left), np.mean(gmm.labels_ != left)) > 0.97)
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        beta: float = 1.0,
        tau: float = 1.0,
        n_neighbors: int = 10,
        smooth: int | None = None,
        whiten: bool = True,
        n_init: int = 6,
        solver: str = "p2dvi",
        max_epochs: int = 500,
        tol: float = 1e-4,
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.beta = beta
        self.tau = tau
        self.n_neighbors = n_neighbors
        self.smooth = smooth
        self.whiten = whiten
        self.n_init = n_init
        self.solver = solver
        self.max_epochs = max_epochs
        self.tol = tol
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike | sp.csr_matrix,  # noqa: N803 - scikit-learn's name
        y: Any = None,
        *,
        coordinates: ArrayLike | None = None,
        graph: sp.csr_matrix | None = None,
    ) -> Self:
        """Find the domains.

        Parameters
        ----------
        X
            (n, d) features, dense or CSR, finite.
        y
            Not used.
        coordinates
            (n, 2) or (n, 3) places, in any unit; needed.
        graph
            (n, n) symmetric weights >= 0 to use in place of the nearest neighbours.

        Raises
        ------
        InputError
            Where the arrays or a parameter cannot be used.
        """
        adata = _section(X, coordinates, graph)
        options = self._options(adata.obsm[_FEATURES].shape[1], has_graph=graph is not None)
        section = read_inputs(AnnDataSource(adata), options)
        result = fit_section(section, options, Progress())
        self.result_ = result
        self.labels_ = result.domains.astype(np.int64)
        self.posterior_ = result.posterior
        weight = result.posterior.sum(axis=0, dtype=np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            self.means_ = np.asarray(result.posterior.T.astype(np.float64) @ adata.obsm[_FEATURES]) / weight[:, None]
        self.converged_ = bool(result.certificate.converged)
        self.n_iter_ = int(result.trace["epoch"][-1])
        self.neg_elbo_ = float(result.trace["neg_elbo"][-1])
        self.n_features_in_ = int(adata.obsm[_FEATURES].shape[1])
        self._no_model = why_no_model(section, options, needed_by="`predict`")
        return self

    def predict(self, X: ArrayLike, *, coordinates: ArrayLike | None = None) -> np.ndarray:  # noqa: N803
        """Domain (n,) of each sample of another section, the domains held; see `predict_proba`."""
        return self.predict_proba(X, coordinates=coordinates).argmax(axis=1)

    def predict_proba(self, X: ArrayLike, *, coordinates: ArrayLike | None = None) -> np.ndarray:  # noqa: N803
        """Posteriors (n, K) float32 in another section, whose neighbours come from its own ``coordinates``.

        Raises
        ------
        InputError
            Where the arrays cannot be used, or the fit left no model: of sparse features, or with a graph.
        """
        from spatialpdvi.prediction.predict import predict_options, predict_section, read_new

        check_is_fitted(self, "result_")
        model = self.result_.model
        if model is None:
            assert self._no_model is not None
            raise self._no_model
        adata = _section(X, coordinates, None)
        options = predict_options(model, key_added="pdvi")
        section = read_new(AnnDataSource(adata), model, options)
        return predict_section(section, model, options, Progress()).posterior

    def _options(self, width: int, *, has_graph: bool) -> FitOptions:
        neighbors: dict[str, Any] = {"graph": _GRAPH} if has_graph else {"n_neighbors": self.n_neighbors}
        return FitOptions(
            **neighbors,
            k=self.n_components,
            rep=_FEATURES,
            n_pcs=width,  # all columns, in whatever order
            spatial_key=_PLACES,
            beta=self.beta,
            tau=self.tau,
            smooth=self.smooth,
            whiten=self.whiten,
            n_init=self.n_init,
            solver=self.solver,
            max_epochs=self.max_epochs,
            tol=self.tol,
            seed=self.random_state,
        )


def _section(features: Any, coordinates: Any, graph: Any) -> AnnData:
    """Arrays as the section that the rest of the library checks and reads."""
    if coordinates is None:
        msg = "Expected `coordinates` (n, 2) or (n, 3), found none. Give the samples' places."
        raise InputError(msg)
    features = sp.csr_matrix(features) if sp.issparse(features) else np.asarray(features)
    places = np.asarray(coordinates)
    for name, array in (("X", features), ("coordinates", places)):
        if array.ndim != 2:
            msg = (
                f"Expected `{name}` to have two dimensions, samples and columns, found shape {array.shape}. Reshape it."
            )
            raise InputError(msg)
    n = features.shape[0]
    wrong = [
        (name, a.shape) for name, a in (("coordinates", places), ("graph", graph)) if a is not None and a.shape[0] != n
    ]
    if wrong:
        msg = f"Expected `{wrong[0][0]}` of the {n:,} samples of `X`, found shape {wrong[0][1]}. Give one row a sample."
        raise InputError(msg)
    return AnnData(
        obs=pd.DataFrame(index=pd.RangeIndex(n).astype(str)),
        obsm={_FEATURES: features, _PLACES: places},
        obsp={} if graph is None else {_GRAPH: sp.csr_matrix(graph)},
    )
