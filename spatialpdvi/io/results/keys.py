"""The names of everything that a fit writes into an AnnData, and whether a name is free or may be overwritten."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError, option
from spatialpdvi.io.formats.sources import Source

__all__ = ["GROUPS_READ", "PER_SPOT", "Keys", "check_free", "check_not_replaced", "prefixes_in"]

DEFAULT_PREFIX = "pdvi"
PER_SPOT = ("obs", "obsm", "obsp")  # groups of an AnnData whose elements have a row for each spot
# options of a fit that name what is read, and the groups where that is
GROUPS_READ = {"rep": "obsm", "graph": "obsp", "label_key": "obs", "sample_key": "obs", "mask": "obs"}

# One letter or digit at least: HDF5 reads a bare "." as "this very group".
_PREFIX = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z0-9][A-Za-z0-9_.-]*")
# Fields of uns[prefix] by which a result of this package is recognised.
_OUR_FIELDS = {"params", "certificate"}


@dataclass(frozen=True)
class Keys:
    """Every AnnData key that is written, as a function of the prefix (``key_added``).

    Attributes
    ----------
    prefix
        Letters, digits, ``_``, ``-`` and ``.``, with at least one letter or digit.
    """

    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        if isinstance(self.prefix, str) and _PREFIX.fullmatch(self.prefix):
            return
        raise InputError(
            "made of letters, digits, '_', '-' and '.'",
            "an empty name" if self.prefix == "" else repr(self.prefix),
            "Choose a name such as 'pdvi' or 'pdvi_k20'.",
            option="key_added",
        )

    @property
    def domain(self) -> str:
        """``obs``: the domain of each spot, categorical."""
        return f"{self.prefix}_domain"

    @property
    def fitted_domain(self) -> str:
        """``obs``: the domain that the fit gave each spot, once domains have been edited."""
        return f"{self.domain}_fitted"

    def level(self, n_domains: int) -> str:
        """``obs``: the coarser domain of each spot where there are so many of them."""
        return f"{self.domain}_L{n_domains}"

    @property
    def confidence(self) -> str:
        """``obs``: the posterior of each spot's domain, in [0, 1]; a fit's is at least 1/K."""
        return f"{self.prefix}_confidence"

    @property
    def entropy(self) -> str:
        """``obs``: the entropy of each spot's posterior, in nats."""
        return f"{self.prefix}_entropy"

    @property
    def agreement(self) -> str:
        """``obs``: the share of restarts that place the spot where their consensus does, in [0, 1]."""
        return f"{self.prefix}_agreement"

    @property
    def posterior(self) -> str:
        """``obsm``: the posterior, (n, K)."""
        return f"{self.prefix}_posterior"

    @property
    def calibrated(self) -> str:
        """``obsm``: the posterior calibrated by the agreement of the restarts, (n, K)."""
        return f"{self.prefix}_posterior_calibrated"

    @property
    def calibrated_confidence(self) -> str:
        """``obs``: the calibrated posterior of each spot's domain."""
        return f"{self.prefix}_confidence_calibrated"

    @property
    def state(self) -> str:
        """``obsm``: the posterior of each spot's state, (n, C), where domains share states."""
        return f"{self.prefix}_state"

    @property
    def features(self) -> str:
        """``obsm``: the features that were fitted, (n, d)."""
        return f"X_{self.prefix}"

    @property
    def flow(self) -> str:
        """``obsm``: the flow directions, (n, 2|3)."""
        return f"{self.prefix}_flow"

    @property
    def connectivities(self) -> str:
        """``obsp``: the edge weights that entered the objective, (n, n)."""
        return f"{self.prefix}_connectivities"

    @property
    def colours(self) -> str:
        """``uns``: a colour for each domain, where scanpy and squidpy find it."""
        return f"{self.domain}_colors"

    @property
    def markers(self) -> str:
        """``uns``: columns of the marker genes of the domains."""
        return f"{self.prefix}_markers"

    @property
    def state_markers(self) -> str:
        """``uns``: columns of the marker genes of the states."""
        return f"{self.prefix}_state_markers"

    def markers_of(self, of: str) -> str:
        """``uns``: columns of the marker genes of each "domain", or of each "state"."""
        return self.markers if of == "domain" else self.state_markers

    @property
    def description(self) -> str:
        """``uns``: the description of the domains, a dict of tables."""
        return f"{self.prefix}_describe"

    @property
    def intervals(self) -> str:
        """``uns``: intervals of the domains' expression and composition, a dict of tables."""
        return f"{self.prefix}_intervals"

    @property
    def uns(self) -> str:
        """``uns``: the dict of parameters, trace, certificate and scores."""
        return self.prefix

    def all_pairs(self) -> tuple[tuple[str, str], ...]:
        """Return every (group, key) with a fixed name that a fit, or a command on its result, may have written.

        A second fit removes them, and the coarser domains (`pairs_in`).
        """
        return (
            ("obs", self.domain),
            ("obs", self.fitted_domain),
            ("obs", self.confidence),
            ("obs", self.entropy),
            ("obs", self.agreement),
            ("obs", self.calibrated_confidence),
            ("obsm", self.posterior),
            ("obsm", self.calibrated),
            ("obsm", self.state),
            ("obsm", self.features),
            ("obsm", self.flow),
            ("obsp", self.connectivities),
            ("uns", self.uns),
            ("uns", self.colours),
            ("uns", self.markers),
            ("uns", self.state_markers),
            ("uns", self.description),
            ("uns", self.intervals),
        )

    def levels_in(self, source: Source) -> tuple[int, ...]:
        """Return the numbers of coarser domains (`level`) that a section holds, ascending."""
        pattern = re.compile(rf"{re.escape(self.level(0)[:-1])}(\d+)")
        return tuple(sorted(int(found[1]) for key in source.obs_keys() if (found := pattern.fullmatch(key))))

    def level_pairs(self, levels: Iterable[int]) -> tuple[tuple[str, str], ...]:
        """Return the (group, key) of coarser domains and of their colours."""
        names = [self.level(n) for n in levels]
        return (*(("obs", name) for name in names), *(("uns", f"{name}_colors") for name in names))

    def pairs_in(self, source: Source) -> tuple[tuple[str, str], ...]:
        """Return `all_pairs`, and those of the coarser domains that a section holds."""
        return (*self.all_pairs(), *self.level_pairs(self.levels_in(source)))


def prefixes_in(source: Source) -> list[str]:
    """Return the prefixes under which a section holds results."""
    return [key for key in source.uns_keys() if _PREFIX.fullmatch(key) and _is_fit(source, key)]


def _is_fit(source: Source, key: str) -> bool:
    return set(source.uns_fields(key)) >= _OUR_FIELDS


def check_free(source: Source, keys: Keys) -> None:
    """Check that nothing of the user's would be overwritten (the prefix ``pca`` would replace ``X_pca``).

    Where a fit has written ``uns[prefix]``, the other names hold its results too. Under the default prefix this is also
    assumed without ``uns[prefix]``, as after a concatenation, if the columns of ``obs`` hold what a fit writes there.

    Raises
    ------
    InputError
        Where a name holds other data, or is one of those of a fit with another prefix (``pdvi_markers``).
    """
    written = keys.pairs_in(source)
    for other in source.uns_keys():
        if other == keys.prefix or not _PREFIX.fullmatch(other):
            continue
        shared = [pair for pair in Keys(other).pairs_in(source) if pair in written]
        if shared and _is_fit(source, other):
            raise _not_free(source, keys, shared, f", a name of the fit {other!r}")
    if _is_fit(source, keys.uns):
        return
    present = {
        "obs": source.obs_keys(),
        "obsm": source.obsm_keys(),
        "obsp": source.obsp_keys(),
        "uns": source.uns_keys(),
    }
    taken = [(group, key) for group, key in written if key in present[group]]
    if not taken or (keys.prefix == DEFAULT_PREFIX and _are_remains(source, keys, taken)):
        return
    raise _not_free(source, keys, taken)


def _not_free(source: Source, keys: Keys, taken: Iterable[tuple[str, str]], whose: str = "") -> InputError:
    names = ", ".join(f"{group}[{key!r}]" for group, key in taken)
    return InputError(
        f"the names of {option('key_added', keys.prefix)} to be free",
        f"{names}{whose} in {source.name}",
        f"Choose another {option('key_added')}, so that nothing of yours is overwritten.",
    )


def check_not_replaced(source: Source, keys: Keys, given: Mapping[str, str | None]) -> None:
    """Check that a result does not replace what it is made of or scored against.

    Parameters
    ----------
    source
        The section that gets the result.
    keys
        The names under which the result is written.
    given
        The keys that the user gave, by the names of their options (some of `GROUPS_READ`).

    Raises
    ------
    InputError
        Where one of them is written or removed.
    """
    written = set(keys.pairs_in(source))
    for name, key in given.items():
        group = GROUPS_READ[name]
        if (group, key) in written:
            raise InputError(
                "one that the result does not replace",
                f"{group}[{key!r}], where it writes its own",
                f"Choose another {option('key_added')}, or copy it to another name.",
                option=name,
            )


def _are_remains(source: Source, keys: Keys, taken: list[tuple[str, str]]) -> bool:
    """Whether elements without their ``uns`` look like those of a fit; arrays do if the domains are there too."""
    # coarser domains have no values to know them by: they are ours where the domains are
    columns = [key for group, key in taken if group == "obs" and (group, key) in keys.all_pairs()]
    domains = {keys.domain, keys.fitted_domain}
    if ("uns", keys.uns) in taken or (len(columns) < len(taken) and keys.domain not in columns):
        return False
    return all(_is_of_a_fit(source.obs(key), is_domain=key in domains) for key in columns)


def _is_of_a_fit(column: pd.Series, *, is_domain: bool) -> bool:
    """Domains are texts of whole numbers, confidence and entropy floats that are not negative; gaps are allowed."""
    values = column.dropna()
    if is_domain:
        return all(isinstance(value, str) and value.isascii() and value.isdigit() for value in values.unique())
    return bool(pd.api.types.is_float_dtype(values.dtype) and np.all(values.to_numpy() >= 0))
