"""The model as a scikit-learn estimator, for arrays instead of files and AnnData."""

import warnings
from numbers import Integral
from typing import Any, Self

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from spatialpdvi.errors import InputError, option, own_names
from spatialpdvi.fitting.export import why_no_model
from spatialpdvi.fitting.fit import fit_section
from spatialpdvi.fitting.inputs import read_inputs
from spatialpdvi.io.formats.matrices import as_csr, numeric
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.runtime.progress import Progress

__all__ = ["PottsGMM"]

_FEATURES, _PLACES, _GRAPH = "X_features", "spatial", "given"
# what the options of a fit, and the arrays, are called here, where that differs; None where there is no such option
_NAMES = {
    f"obsm[{_FEATURES!r}]": "`X`",
    repr(_FEATURES): "`X`",
    f"obsm[{_PLACES!r}]": "`coordinates`",
    f"obsp[{_GRAPH!r}]": "`graph`",
    f", as {option('states', 'auto')} chose here": "",
    f" Name another graph with {option('graph')}.": "",
    "k": "n_components",
    "seed": "random_state",
    "init": "n_init",
    "rep": "X",
    "spatial_key": "coordinates",
    "save_model": "predict",
    "correct": None,
    "layer": None,
    "sample_key": None,
    "states": None,
}


class PottsGMM(ClusterMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is not typed
    """Potts-Gaussian mixture model of spots with coordinates, fitted by P2D-VI (Lyu, Yu, Ma and Shi 2026).

    This is the fit of `spatialpdvi.fit` for ready features, such as principal components or an embedding.

    Parameters
    ----------
    n_components
        K, the number of domains.
    beta
        Potts strength: how strongly neighbouring spots are pulled into the same domain; 0 gives a plain mixture.
    tau
        Weight of feature similarity in the edge weights of mean profiles; compositions of states have none.
    n_neighbors
        Number k of neighbours in the mutual k-nearest-neighbour graph; not used if a graph is given. None joins 10, or
        as many as features are averaged over if that is fewer, but at least 6.
    smooth
        Number of nearest spots over which features are averaged; 0 turns smoothing off, None chooses the number that
        best predicts the features of a spot from its neighbours.
    whiten
        Whether to rotate and scale the features so that the noise within domains has the same variance in all
        directions; compositions of states always are.
    n_init
        Number of Gaussian mixture restarts at each of three smoothing scales; the fit starts from their consensus. None
        stands for 6 where domains are compositions of states, as in a fit; otherwise for 192 up to 781 spots, then for
        fewer (48 at 3,125 spots), and for 6 from 25,000 spots on.
    solver
        One of `spatialpdvi.options.fit.SOLVERS`.
    max_epochs
        Largest number of epochs.
    tol
        Tolerance of convergence: means, log variances, compositions and posteriors must be this close to stationary.
    random_state
        Seed of the random numbers; the same seed gives the same bits for any number of threads.

    Attributes
    ----------
    labels_
        (n,) int64 domain of each spot; the largest domain is 0.
    posterior_
        (n, K) float32 posteriors.
    means_
        (K, d) averages of X, weighted by the posteriors; NaN where a domain has no weight.
    converged_
        Whether the fit converged.
    n_iter_
        Number of epochs.
    neg_elbo_
        Objective F, the negative evidence lower bound, in nats.
    result_
        The `spatialpdvi.FitResult`, with the certificate.
    n_features_in_
        Number of features, d.

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
        n_neighbors: int | None = None,
        smooth: int | None = None,
        whiten: bool = True,
        n_init: int | None = None,
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
        graph: ArrayLike | sp.csr_matrix | None = None,
    ) -> Self:
        """Find the domains of n spots.

        Parameters
        ----------
        X
            (n, d) finite features, dense or CSR.
        y
            Not used.
        coordinates
            (n, 2) or (n, 3) coordinates, in any unit. They are required.
        graph
            (n, n) finite weights >= 0 of a graph to use instead of the nearest neighbours, sparse or dense. If A is not
            symmetric, (A + A^T) / 2 is used, as in `spatialpdvi.fit`.

        Raises
        ------
        InputError
            Where the arrays or a parameter cannot be used.
        """
        adata = _section(X, coordinates, graph)
        with own_names(_NAMES):
            options = self._options(adata.obsm[_FEATURES].shape[1], has_graph=graph is not None)
            section = read_inputs(AnnDataSource(adata), options)
            result = fit_section(section, options, Progress())
        if not result.certificate.converged:
            warnings.warn(result.certificate.sentence(), ConvergenceWarning, stacklevel=2)
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
        self._no_model = why_no_model(section, options)
        return self

    def predict(self, X: ArrayLike, *, coordinates: ArrayLike | None = None) -> np.ndarray:  # noqa: N803
        """Find the domains of this fit in another section.

        Parameters
        ----------
        X
            (n, d) finite features of the other section.
        coordinates
            (n, 2) or (n, 3) coordinates, in the unit of the fit.

        Returns
        -------
        (n,) domains.

        Raises
        ------
        InputError
            As `predict_proba`.
        """
        return self.predict_proba(X, coordinates=coordinates).argmax(axis=1)

    def predict_proba(self, X: ArrayLike, *, coordinates: ArrayLike | None = None) -> np.ndarray:  # noqa: N803
        """Compute the posteriors of the domains of this fit in another section.

        Neighbours are found among the spots of the other section.

        Parameters
        ----------
        X
            (n, d) finite features of the other section.
        coordinates
            (n, 2) or (n, 3) coordinates, in the unit of the fit.

        Returns
        -------
        (n, K) float32 posteriors.

        Raises
        ------
        InputError
            Where the arrays cannot be used, or the fit has no model: it was with a graph, or of CSR features that store
            at most half of their values. Those that store more are fitted as dense ones, and have a model.
        """
        from spatialpdvi.prediction.predict import predict_options, predict_section, read_new

        check_is_fitted(self, "result_")
        model = self.result_.model
        if model is None:
            assert self._no_model is not None  # the reason why there is none
            raise self._no_model.renamed(_NAMES)
        adata = _section(X, coordinates, None)
        with own_names(_NAMES):
            options = predict_options(model, key_added="pdvi")
            section = read_new(AnnDataSource(adata), model, options)
            return predict_section(section, model, options, Progress()).posterior

    def _options(self, width: int, *, has_graph: bool) -> FitOptions:
        if not isinstance(self.n_components, Integral) or isinstance(self.n_components, bool):
            raise InputError(
                "a whole number of at least 2",
                repr(self.n_components),
                "`spatialpdvi.fit` can choose a number of domains.",
                option="n_components",
            )
        neighbors: dict[str, Any] = {"graph": _GRAPH} if has_graph else {"n_neighbors": self.n_neighbors}
        return FitOptions(
            **neighbors,
            k=self.n_components,
            rep=_FEATURES,
            n_pcs=width,  # all columns, whatever their order
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
    """Return the arrays as a section, which the rest of the library reads and checks."""
    if coordinates is None:
        raise InputError(
            "an array (n, 2) or (n, 3)", "none", "Give the coordinates of the spots.", option="coordinates"
        )
    features, places = _array(features, "X"), _array(coordinates, "coordinates")
    largest = np.abs(_values(features)).max(initial=0)
    if largest > np.finfo(np.float32).max:
        raise InputError("numbers within the range of float32", f"{largest:.3g}", option="X")
    if places.shape[1] not in {2, 3}:
        raise InputError("an array (n, 2) or (n, 3)", f"shape {places.shape}", option="coordinates")
    edges = None if graph is None else _array(graph, "graph")
    n = features.shape[0]
    for name, array in (("coordinates", places), ("graph", edges)):
        if array is not None and array.shape[0] != n:
            raise InputError(
                f"an array with a row for each of the {n:,} rows of {option('X')}", f"shape {array.shape}", option=name
            )
    if edges is not None and edges.shape[1] != n:
        raise InputError(f"an array ({n}, {n})", f"shape {edges.shape}", option="graph")
    if edges is not None and (_values(edges) < 0).any():
        raise InputError("weights >= 0", f"{_values(edges).min():g}", option="graph")
    return AnnData(
        obs=pd.DataFrame(index=pd.RangeIndex(n).astype(str)),
        obsm={_FEATURES: features, _PLACES: places},
        obsp={} if edges is None else {_GRAPH: sp.csr_matrix(edges)},
    )


def _array(given: Any, name: str) -> np.ndarray | sp.csr_matrix:
    """Return an array of finite numbers with rows and columns, dense or CSR."""
    if isinstance(given, AnnData):  # NumPy takes minutes to make an array of objects of it
        part = {"X": 'obsm["X_pca"]', "coordinates": 'obsm["spatial"]', "graph": 'obsp["connectivities"]'}[name]
        advice = f"Give an array, such as `adata.{part}`, or call `spatialpdvi.fit`."
        raise InputError("an array", "an AnnData", advice, option=name)
    if np.ma.is_masked(given):
        raise InputError("an array of numbers", "masked values", "Leave out their rows first.", option=name)
    array = given if sp.issparse(given) else np.asarray(given)
    if array.ndim != 2 or 0 in array.shape:
        advice = "Reshape it." if array.ndim != 2 else ""
        raise InputError("an array with rows and columns", f"shape {array.shape}", advice, option=name)
    if array.dtype.kind not in "biuf":
        raise InputError("an array of numbers", f"values of type {array.dtype}", option=name)
    array = as_csr(array, name) if sp.issparse(array) else numeric(array, name)
    if not np.isfinite(_values(array)).all():
        raise InputError("finite", "NaN or infinity", option=name)
    return array


def _values(array: Any) -> np.ndarray:
    """Return the values of a dense array (n, m), or those that a CSR matrix stores (n_stored,)."""
    return array.data if sp.issparse(array) else array
