"""Pictures without coordinates."""

from typing import TYPE_CHECKING

from spatialpdvi.pl.describing import described
from spatialpdvi.pl.drawing import draw_kind

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.axes import Axes

__all__ = ["confusion", "reliability", "scan", "trace"]


@described("Where there is no fit.", returns="The left axis.")
def trace(
    adata: "AnnData",
    *,
    ax: "Axes | None" = None,
    key_added: str = "pdvi",
) -> "Axes":
    """The objective F and, on an axis on the right, how far each block of unknowns is from stationary, by epoch."""
    return draw_kind(adata, "trace", ax, key_added=key_added)


@described("Where there is no fit, or its number of domains was given.", returns="The left axis.")
def scan(
    adata: "AnnData",
    *,
    ax: "Axes | None" = None,
    key_added: str = "pdvi",
) -> "Axes":
    """How many domains are found again, and the complete bound, by number of domains."""
    return draw_kind(adata, "scan", ax, key_added=key_added)


@described("Where there is no fit, or there are no labels.", returns="What was drawn on.")
def confusion(
    adata: "AnnData",
    *,
    ax: "Axes | None" = None,
    key_added: str = "pdvi",
    label_key: str | None = None,
) -> "Axes":
    """Domains against known labels: numbers of spots, coloured by their shares of the domain.

    Pairs of a domain and a label that share as many spots as they can are on the diagonal.
    """
    return draw_kind(adata, "confusion", ax, key_added=key_added, label_key=label_key)


@described(
    "Where there is no fit, or there are no labels.",
    returns="What was drawn on; both its parts are axes within it (``child_axes``).",
)
def reliability(
    adata: "AnnData",
    *,
    ax: "Axes | None" = None,
    key_added: str = "pdvi",
    label_key: str | None = None,
) -> "Axes":
    """The share of spots that have their domain's most frequent label, by confidence."""
    return draw_kind(adata, "reliability", ax, key_added=key_added, label_key=label_key)
