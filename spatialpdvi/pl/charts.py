"""Pictures without coordinates."""

from typing import TYPE_CHECKING

from spatialpdvi.pl.drawing import draw_kind

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.axes import Axes

__all__ = ["confusion", "reliability", "scan", "trace"]


def trace(
    adata: "AnnData",
    *,
    ax: "Axes | None" = None,
    key_added: str = "pdvi",
) -> "Axes":
    """The objective F and, on an axis on the right, how far each block of unknowns is from stationary, by epoch.

    Parameters
    ----------
    adata
        A fitted section.
    ax
        Where to draw; by default on a new figure of its own.
    key_added
        Prefix of the keys that the fit wrote.

    Returns
    -------
    matplotlib.axes.Axes
        The left axis.

    Raises
    ------
    InputError
        Where there is no fit.
    """
    return draw_kind(adata, "trace", ax, key_added=key_added)


def scan(
    adata: "AnnData",
    *,
    ax: "Axes | None" = None,
    key_added: str = "pdvi",
) -> "Axes":
    """How many domains are found again, and the complete bound, by number of domains.

    Parameters
    ----------
    adata
        A fitted section.
    ax
        Where to draw; by default on a new figure of its own.
    key_added
        Prefix of the keys that the fit wrote.

    Returns
    -------
    matplotlib.axes.Axes
        The left axis.

    Raises
    ------
    InputError
        Where there is no fit, or its number of domains was given.
    """
    return draw_kind(adata, "scan", ax, key_added=key_added)


def confusion(
    adata: "AnnData",
    *,
    ax: "Axes | None" = None,
    key_added: str = "pdvi",
    label_key: str | None = None,
) -> "Axes":
    """Domains against known labels: numbers of spots, coloured by their shares of the domain.

    Pairs of a domain and a label that share as many spots as they can are on the diagonal.

    Parameters
    ----------
    adata
        A fitted section.
    ax
        Where to draw; by default on a new figure of its own.
    key_added
        Prefix of the keys that the fit wrote.
    label_key
        Column of ``obs`` with known labels; by default ``annotation``.

    Returns
    -------
    matplotlib.axes.Axes
        What was drawn on.

    Raises
    ------
    InputError
        Where there is no fit, or there are no labels.
    """
    return draw_kind(adata, "confusion", ax, key_added=key_added, label_key=label_key)


def reliability(
    adata: "AnnData",
    *,
    ax: "Axes | None" = None,
    key_added: str = "pdvi",
    label_key: str | None = None,
) -> "Axes":
    """The share of spots that have their domain's most frequent label, by confidence.

    Parameters
    ----------
    adata
        A fitted section.
    ax
        Where to draw; by default on a new figure of its own.
    key_added
        Prefix of the keys that the fit wrote.
    label_key
        Column of ``obs`` with known labels; by default ``annotation``.

    Returns
    -------
    matplotlib.axes.Axes
        What was drawn on; both its parts are axes within it (``child_axes``).

    Raises
    ------
    InputError
        Where there is no fit, or there are no labels.
    """
    return draw_kind(adata, "reliability", ax, key_added=key_added, label_key=label_key)
