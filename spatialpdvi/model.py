"""A model of a fit: all that is needed to find its domains in a section that it was not fitted to."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from spatialpdvi.errors import InputError, option
from spatialpdvi.features.projection import GeneProjection, OutlierLimit, Space
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.options.states import OF_STATES
from spatialpdvi.problems.base import Blocks
from spatialpdvi.problems.composition import CompositionGlobals
from spatialpdvi.problems.potts_mixture import Hyperparameters, PottsGlobals, nearest_domain

__all__ = ["RECIPE", "SPOTWISE_TRANSFORMS", "Model", "SharedStates"]

FORMAT = 2  # raised whenever what is written changes
_WITH_STATES = 5  # the format of models whose domains are compositions of states
# options of the fit that apply to every section that the model is used on
_STORED = ("smooth", "correct", "n_neighbors", "flow_neighbors", "tau", "beta", "cross_patch_edges", "tol")
_STORED_WITH_STATES = (*_STORED, *OF_STATES)
SPOTWISE_TRANSFORMS = ("none", "log1p", "sqrt")  # transforms that do not depend on other spots
_COLOUR = re.compile("#[0-9a-f]{6}")
RECIPE = ("target_sum", "transform", "clip")  # options that are stored with the genes


class SharedStates(NamedTuple):
    """What a model whose domains are compositions of states has besides the means of these."""

    limit: OutlierLimit  # to which spots are drawn in before they are rotated
    prior_weight: np.ndarray  # a (C,), in spots
    detrend: bool  # whether the trends of a section are removed from its features first
    spot_mean: np.ndarray  # (C, d) of the fit's spots in each state, which are not quite its m


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """The domains of a fit, and what brings the counts of another section into the space of their features.

    Parameters
    ----------
    space
        What brings another section into the space of the features.
    rotation
        W (d, d); the unit matrix where features are not rotated.
    lam
        m and rho (K, d) of the domains, in their order in the fit; where they share states, m and rho (C, d) of these
        and the logits theta (K, C) of the compositions.
    hyperparameters
        sigma0, sigma1 and xi (d,).
    reach
        Distance to the nearest domain or state (`nearest_domain`) within which 99.9 % of the fit's spots lie.
    options
        Options of the fit that apply to every section.
    version
        Of spatialpdvi, when the model was fitted.
    colours
        (K,) hexadecimal, of the domains.
    temperature
        Of the calibrated posteriors, 1 or more; None where the fit had no restarts to calibrate with.
    name
        Of the file that it was read from; empty for the model of a result.
    states
        None where domains share no states.
    """

    space: Space
    rotation: np.ndarray
    lam: Blocks
    hyperparameters: Hyperparameters
    reach: float
    options: dict[str, Any]
    version: str
    colours: tuple[str, ...]
    temperature: float | None = None
    name: str = ""
    states: SharedStates | None = None

    @property
    def n_domains(self) -> int:
        """K."""
        return len(self.domain_means)

    @property
    def domain_means(self) -> np.ndarray:
        """The means of the domains (K, d); those of compositions are means of their states."""
        if self.states is None:
            return np.asarray(self.lam.m)
        return np.asarray(softmax(self.lam.theta, axis=1) @ self.lam.m)

    def __repr__(self) -> str:
        k, d = self.domain_means.shape
        genes = self.space.genes
        made_of = f"obsm[{self.space.rep!r}]" if genes is None else f"{genes.genes.size:,} genes"
        return f"Model({k} domains, {d} features of {made_of})"

    @staticmethod
    def stored_options(options: FitOptions, *, smooth: int, n_neighbors: int, with_states: bool) -> dict[str, Any]:
        """Return the options of a fit that its model stores, with the numbers of neighbours that were chosen."""
        stored = _STORED_WITH_STATES if with_states else _STORED
        return {name: getattr(options, name) for name in stored} | {"smooth": smooth, "n_neighbors": n_neighbors}

    def fit_options(self, **chosen: Any) -> FitOptions:
        """Return the options with which a section is prepared: the model's, and those that belong to the section."""
        genes = self.space.genes
        recipe = {} if genes is None else {name: getattr(genes, name) for name in RECIPE}
        return FitOptions(k=self.n_domains, rep=self.space.rep, **(self.options | recipe | chosen))

    def distance(self, features: np.ndarray) -> np.ndarray:
        """Return the distance (n,) of features (n, d) to the nearest domain or state."""
        return nearest_domain(features, self.lam, self.hyperparameters)

    def parts(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the arrays and facts that a file stores; `from_parts` makes a model of them again."""
        arrays = {
            "centre": self.space.centre,
            "origin": self.space.origin,
            "rotation": self.rotation,
            "domain_mean" if self.states is None else "state_mean": self.lam.m,
            "log_variance": self.lam.rho,
            "colours": np.array(self.colours),
            **self.hyperparameters._asdict(),
        }
        if self.states is not None:
            arrays |= {
                "composition": softmax(self.lam.theta, axis=1),
                "prior_weight": self.states.prior_weight,
                "spot_mean": self.states.spot_mean,
                "limit_centre": self.states.limit.centre,
                "limit_spread": self.states.limit.spread,
            }
        facts: dict[str, Any] = {
            "format": FORMAT if self.states is None else _WITH_STATES,
            "version": self.version,
            "reach": self.reach,
            "temperature": self.temperature,
            "options": self.options,
            "rep": self.space.rep,
            "n_columns": self.space.n_columns,
        }
        if self.states is not None:
            facts |= {"limit": self.states.limit.limit, "detrend": self.states.detrend}
        genes = self.space.genes
        if genes is not None:
            learnt = genes._asdict()
            facts["recipe"] = {name: learnt.pop(name) for name in RECIPE}
            arrays |= {_GENES[name]: values for name, values in learnt.items()}
        return arrays, facts

    @classmethod
    def from_parts(cls, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any], *, name: str) -> "Model":
        """Check the arrays and facts of a file, and return their model.

        Parameters
        ----------
        arrays, facts
            As `parts` returned them.
        name
            Of the file.

        Raises
        ------
        InputError
            Where the format is another, or a part is missing or cannot have been written by a fit.
        """
        if facts.get("format") not in (FORMAT, _WITH_STATES):
            raise InputError(
                f"the model {name!r} to be of format {FORMAT} or {_WITH_STATES}",
                repr(facts.get("format")),
                f"Use the version of spatialpdvi that wrote it ({facts.get('version', 'unknown')}), or fit it again.",
            )
        try:
            model = cls._read(arrays, facts, name)
            model.fit_options()  # raises where an option is impossible
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            found = f"no {error}" if isinstance(error, KeyError) else str(error)
            if isinstance(error, InputError):  # options stay placeholders until the outer error is put into words
                found = error.sentence(option)
            raise InputError(
                f"the model {name!r} to be as {option('save_model')} writes it",
                f"it damaged ({found})",
                "Fit it again.",
            ) from error
        return model

    @classmethod
    def _read(cls, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any], name: str) -> "Model":
        shared = facts["format"] == _WITH_STATES
        n_means, d = _array(arrays, "state_mean" if shared else "domain_mean", None, None).shape
        lam: Blocks = PottsGlobals(
            _array(arrays, "state_mean" if shared else "domain_mean", n_means, d),
            _array(arrays, "log_variance", n_means, d),
        )
        k, states = n_means, None
        if shared:
            composition = _array(arrays, "composition", None, n_means, positive=True)
            k, lam = len(composition), CompositionGlobals(lam.m, lam.rho, np.log(composition))
            states = SharedStates(
                OutlierLimit(
                    _array(arrays, "limit_centre", d),
                    _array(arrays, "limit_spread", d, positive=True),
                    _positive(facts, "limit"),
                ),
                _array(arrays, "prior_weight", n_means, positive=True),
                _flag(facts["detrend"]),
                # models of earlier versions have none
                _array(arrays, "spot_mean", n_means, d) if "spot_mean" in arrays else lam.m,
            )
        genes = None
        if facts["rep"] is None:
            if facts["recipe"]["transform"] not in SPOTWISE_TRANSFORMS:
                msg = f"transform {facts['recipe']['transform']!r}"
                raise ValueError(msg)
            g = arrays["genes"].size
            genes = GeneProjection(
                counted=_names(arrays, "counted_genes"),
                genes=_names(arrays, "genes"),
                sd=_array(arrays, "gene_sd", g, positive=True),
                mean=_array(arrays, "gene_mean", g),
                components=_array(arrays, "components", d, g),
                **facts["recipe"],
            )
        hyperparameters = Hyperparameters(
            noise_sd=_array(arrays, "noise_sd", d, positive=True),
            prior_sd=_array(arrays, "prior_sd", d, positive=True),
            prior_mean=_array(arrays, "prior_mean", d),
        )
        return cls(
            space=Space(
                genes,
                facts["rep"],
                n_columns=int(facts["n_columns"]),
                centre=_array(arrays, "centre", d),
                origin=_array(arrays, "origin", d),
            ),
            rotation=_array(arrays, "rotation", d, d),
            lam=lam,
            hyperparameters=hyperparameters,
            reach=_positive(facts, "reach"),
            options={name: facts["options"][name] for name in (_STORED_WITH_STATES if shared else _STORED)},
            version=str(facts["version"]),
            colours=_colours(arrays, k),
            temperature=_temperature(facts["temperature"]),
            name=name,
            states=states,
        )


# fields of a projection by their names in the file
_GENES = {
    "counted": "counted_genes",
    "genes": "genes",
    "sd": "gene_sd",
    "mean": "gene_mean",
    "components": "components",
}


def _array(arrays: Mapping[str, np.ndarray], name: str, *shape: int | None, positive: bool = False) -> np.ndarray:
    """Finite float64 array of a shape, in which None stands for any length."""
    values = np.asarray(arrays[name])
    fits = values.ndim == len(shape) and all(n in {None, m} for n, m in zip(shape, values.shape, strict=True))
    if values.dtype.kind != "f" or not fits:
        msg = f"{name} of {values.dtype} and shape {values.shape}"
        raise ValueError(msg)
    if not np.isfinite(values).all() or (positive and not (values > 0).all()):
        msg = f"{name} with impossible values"
        raise ValueError(msg)
    return np.ascontiguousarray(values, dtype=np.float64)


def _colours(arrays: Mapping[str, np.ndarray], k: int) -> tuple[str, ...]:
    colours = _names(arrays, "colours")
    if colours.size != k or not all(_COLOUR.fullmatch(colour) for colour in colours):
        msg = f"colours other than {k} hexadecimal ones"
        raise ValueError(msg)
    return tuple(map(str, colours))


def _positive(facts: Mapping[str, Any], name: str) -> float:
    value = facts[name]
    if isinstance(value, bool) or not 0.0 < float(value) < np.inf:
        msg = f"{name} {value!r}"
        raise ValueError(msg)
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        msg = f"detrend {value!r}"
        raise TypeError(msg)
    return bool(value)


def _temperature(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not 1.0 <= float(value) < np.inf:
        msg = f"temperature {value!r}"
        raise ValueError(msg)
    return float(value)


def _names(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    names = np.asarray(arrays[name])
    if names.dtype.kind != "U" or names.ndim != 1:
        msg = f"{name} of {names.dtype} and shape {names.shape}"
        raise ValueError(msg)
    return names
