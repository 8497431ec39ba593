"""The names of everything a fit writes into an AnnData, and whether what has such a name is ours to replace."""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.sources import Source

__all__ = ["DEFAULT_PREFIX", "Keys", "check_free"]

DEFAULT_PREFIX = "pdvi"

# One letter or digit at least: HDF5 reads a bare "." as "this very group".
_PREFIX = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z0-9][A-Za-z0-9_.-]*")
# Fields of uns[prefix] by which a result of ours is told from somebody else's entry.
_OUR_FIELDS = {"params", "certificate"}


@dataclass(frozen=True)
class Keys:
    """Every AnnData key that is written, as a function of the prefix (``--key-added``).

    Attributes
    ----------
    prefix
        Letters, digits, ``_``, ``-`` and ``.``, with at least one letter or digit.
    """

    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        if _PREFIX.fullmatch(self.prefix):
            return
        found = repr(self.prefix) if self.prefix else "an empty name"
        msg = (
            "Expected --key-added to be made of letters, digits, '_', '-' and '.', "
            f"found {found}. Choose a name such as 'pdvi' or 'pdvi_k20'."
        )
        raise InputError(msg)

    @property
    def domain(self) -> str:
        """``obs``: the domain of each spot, categorical."""
        return f"{self.prefix}_domain"

    @property
    def confidence(self) -> str:
        """``obs``: the posterior of each spot's domain, in [1/K, 1]."""
        return f"{self.prefix}_confidence"

    @property
    def entropy(self) -> str:
        """``obs``: the entropy of each spot's posterior, in nats."""
        return f"{self.prefix}_entropy"

    @property
    def agreement(self) -> str:
        """``obs``: the share of restarts that put the spot where their consensus does, in [0, 1]."""
        return f"{self.prefix}_agreement"

    @property
    def posterior(self) -> str:
        """``obsm``: the posterior, (n, K)."""
        return f"{self.prefix}_posterior"

    @property
    def calibrated(self) -> str:
        """``obsm``: the posterior made as sure as restarts are, (n, K)."""
        return f"{self.prefix}_posterior_calibrated"

    @property
    def calibrated_confidence(self) -> str:
        """``obs``: the largest calibrated posterior of the spot."""
        return f"{self.prefix}_confidence_calibrated"

    @property
    def features(self) -> str:
        """``obsm``: the features that were fitted, (n, d)."""
        return f"X_{self.prefix}"

    @property
    def flow(self) -> str:
        """``obsm``: the flow directions, (n, 2)."""
        return f"{self.prefix}_flow"

    @property
    def connectivities(self) -> str:
        """``obsp``: the edge weights that entered the objective, (n, n)."""
        return f"{self.prefix}_connectivities"

    @property
    def colours(self) -> str:
        """``uns``: a colour for each category of the domains, where scanpy and squidpy look for it."""
        return f"{self.domain}_colors"

    @property
    def markers(self) -> str:
        """``uns``: columns of the marker genes of the domains."""
        return f"{self.prefix}_markers"

    @property
    def uns(self) -> str:
        """``uns``: the dict of parameters, trace, certificate and scores."""
        return self.prefix

    def all_pairs(self) -> tuple[tuple[str, str], ...]:
        """All (group, key) that a fit or its markers may be under: what a second fit removes of the first."""
        return (
            ("obs", self.domain),
            ("obs", self.confidence),
            ("obs", self.entropy),
            ("obs", self.agreement),
            ("obs", self.calibrated_confidence),
            ("obsm", self.posterior),
            ("obsm", self.calibrated),
            ("obsm", self.features),
            ("obsm", self.flow),
            ("obsp", self.connectivities),
            ("uns", self.uns),
            ("uns", self.colours),
            ("uns", self.markers),
        )


def check_free(source: Source, keys: Keys) -> None:
    """Refuse a prefix whose names hold somebody else's data (``pca`` would replace ``X_pca``).

    Names in use are ours beside a ``uns[prefix]`` that a fit has written. Under the default prefix they are ours
    also without it, as after a concatenation, where the columns of ``obs`` hold what a fit writes there.
    """
    if set(source.uns_fields(keys.uns)) >= _OUR_FIELDS:
        return
    present = {
        "obs": source.obs_keys(),
        "obsm": source.obsm_keys(),
        "obsp": source.obsp_keys(),
        "uns": source.uns_keys(),
    }
    taken = [(group, key) for group, key in keys.all_pairs() if key in present[group]]
    if not taken or (keys.prefix == DEFAULT_PREFIX and _are_remains(source, keys, taken)):
        return
    names = ", ".join(f"{group}[{key!r}]" for group, key in taken)
    msg = (
        f"Expected the names that --key-added {keys.prefix!r} stands for to be free, "
        f"found {names} in {source.name}. Choose another --key-added, "
        "so that nothing of yours is overwritten."
    )
    raise InputError(msg)


def _are_remains(source: Source, keys: Keys, taken: list[tuple[str, str]]) -> bool:
    """Whether elements without their ``uns`` look like those of a fit; arrays count as such beside its domains."""
    columns = [key for group, key in taken if group == "obs"]
    if ("uns", keys.uns) in taken or (len(columns) < len(taken) and keys.domain not in columns):
        return False
    return all(_is_column_of_ours(source.obs(key), is_domain=key == keys.domain) for key in columns)


def _is_column_of_ours(column: pd.Series, *, is_domain: bool) -> bool:
    """Domains are texts of whole numbers, confidence and entropy floats that are not negative; gaps are allowed."""
    values = column.dropna()
    if is_domain:
        return all(isinstance(value, str) and value.isascii() and value.isdigit() for value in values.unique())
    return bool(pd.api.types.is_float_dtype(values.dtype) and np.all(values.to_numpy() >= 0))
