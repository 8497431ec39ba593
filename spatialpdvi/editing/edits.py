"""The edits that a user can make to the domains of a fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from spatialpdvi.errors import InputError, list_keys, option
from spatialpdvi.options.validation import check_seed, listed, read_kind

__all__ = ["Edit", "Levels", "Merge", "Pieces", "Rename", "Split", "check_edit"]


@dataclass(frozen=True)
class Rename:
    """Give domains other names.

    Parameters
    ----------
    names
        New names by old ones; domains that are left out keep theirs.
    from_key
        Column of ``obs`` whose most frequent value in a domain becomes its name. Domains that would share a name are
        numbered: "Cortex 1", "Cortex 2". Give this or ``names``.
    merge
        Whether domains that would share a name are united.

    Examples
    --------
    >>> spv.label(adata, spv.Rename({"0": "Cortex"}))["domain"].tolist()
    ['Cortex', '1', '2']
    """

    names: Mapping[str, str] | None = None
    from_key: str | None = None
    merge: bool = False

    def __post_init__(self) -> None:
        if (self.names is None) == (self.from_key is None):
            found = "neither" if self.names is None else "both"
            raise InputError(f"{option('names')} or {option('from_key')}", found, "Give one of them.")
        if self.names is not None and not hasattr(self.names, "items"):  # a column of a table has them too
            advice = "Give a dict, such as {'0': 'Cortex'}."
            raise InputError("new names by old ones", repr(self.names), advice, option="names")
        for old, new in () if self.names is None else self.names.items():
            if not isinstance(new, str | Integral):  # a missing value of a table would be the name "nan"
                raise InputError("text as the new name of a domain", f"{new!r} for {old!r}", option="names")


@dataclass(frozen=True)
class Merge:
    """Unite domains: their posteriors add.

    Parameters
    ----------
    domains
        Names of at least two domains; a whole number stands for itself as text, 0 for "0".
    name
        Of the union; by default their names joined, "0+3".

    Examples
    --------
    >>> spv.label(adata, spv.Merge(["0", "2"], name="Brain"))["domain"].tolist()
    ['Brain', '1']
    """

    domains: Sequence[str | int]
    name: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "domains", listed(self.domains))  # an iterator can be read only once
        found = {str(name) for name in self.domains}
        if len(found) < 2:
            raise InputError("at least two domains", list_keys(found), option="domains")
        if self.name is not None and not isinstance(self.name, str):
            raise InputError("text", repr(self.name), option="name")


@dataclass(frozen=True)
class Split:
    """Cut one domain into parts by a fit inside it, with the options of the fit.

    The posterior of a part is that of the domain times the probability of the part within it. Spots outside of the
    domain take the latter from the nearest spot inside.

    Parameters
    ----------
    domain
        Name of the domain; a whole number stands for itself as text, 0 for "0".
    into
        Number of parts, at least 2. They are called "3.1", "3.2" and so on, the largest first.
    seed
        Of the fit inside.

    Examples
    --------
    >>> table = spv.label(adata, spv.Merge(["0", "1"], name="Cortex"))
    >>> spv.label(adata, spv.Split("Cortex", into=2))["domain"].tolist()
    ['Cortex.1', 'Cortex.2', '2']
    """

    domain: str | int
    into: int
    seed: int = 0

    def __post_init__(self) -> None:
        if read_kind("into", self.into, int) < 2:
            raise InputError("at least 2", str(self.into), option="into")
        check_seed(self.seed)


@dataclass(frozen=True)
class Pieces:
    """Make the connected parts of a domain domains of their own.

    Spots are connected if they are joined in the graph of the fit: the stored one, or else that of the nearest
    neighbours.

    Parameters
    ----------
    domain
        Name of the domain; a whole number stands for itself as text, 3 for "3". Its parts are called "3.1", "3.2" and
        so on, the largest first.
    min_spots
        Parts with fewer spots are no domains; their spots go to the nearest part that is one.

    Examples
    --------
    >>> spv.label(adata, spv.Pieces("0", min_spots=5))
    Traceback (most recent call last):
        ...
    spatialpdvi.errors.InputError: Expected at least two connected parts ...
    """

    domain: str | int
    min_spots: int = 30

    def __post_init__(self) -> None:
        read_kind("min_spots", self.min_spots, int)


@dataclass(frozen=True)
class Levels:
    """Write nested coarser domains beside the domains: at every step, the two whose union raises F least become one.

    Parameters
    ----------
    levels
        Number or numbers of coarser domains, or a text such as "4,6,8" or "4:8". Each is written as a column of its
        own, ``obs['pdvi_domain_L4']``.

    Examples
    --------
    >>> spv.label(adata, spv.Levels([2]))["n_domains"].tolist()
    [2]
    >>> adata.obs["pdvi_domain_L2"].nunique()
    2
    """

    levels: Sequence[int] | int | str


Edit = Rename | Merge | Split | Pieces | Levels


def check_edit(edit: Any) -> None:
    """Raise an `InputError` where what was given is no edit, such as a list of several."""
    if not isinstance(edit, Edit):
        found = repr(edit) if edit is None or isinstance(edit, str) else f"an object of type {type(edit).__name__}"
        raise InputError(
            "a Rename, Merge, Split, Pieces or Levels",
            found,
            "Give one edit, such as spatialpdvi.Merge(['0', '1']), and call the function again for the next.",
            option="edit",
        )
