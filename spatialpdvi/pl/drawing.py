"""What all functions of `spatialpdvi.pl` have in common. Heavy libraries are imported when something is drawn."""

from functools import partial
from typing import TYPE_CHECKING

from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.results.keys import Keys

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.axes import Axes

__all__ = ["draw_kind"]


def draw_kind(
    adata: "AnnData",
    kind: str,
    ax: "Axes | None",
    *,
    key_added: str,
    label_key: str | None = None,
    spatial_key: str | None = None,
    sample_key: str | None = None,
    calibrated: bool = True,
) -> "Axes":
    """One kind of picture, on the axes that are given or on a page of its own; a chart needs no ``spatial_key``."""
    from spatialpdvi.io.results.fitted import read_fitted
    from spatialpdvi.plotting.kinds import KINDS, View, draw_confidence
    from spatialpdvi.plotting.page import Given, Page

    source, keys = AnnDataSource(adata), Keys(key_added)
    fitted = read_fitted(source, keys, label_key=label_key, spatial_key=spatial_key, sample_key=sample_key)
    view = View(source, keys, fitted)
    draw = KINDS[kind].draw if calibrated else partial(draw_confidence, calibrated=False)
    if ax is not None:
        return draw(view, Given(ax))
    from matplotlib import pyplot as plt

    figure = plt.figure(layout="none")
    try:
        page = Page(figure, noted=KINDS[kind].noted)
        axes = draw(view, page)
        page.finish(None)
    except BaseException:
        plt.close(figure)  # or a notebook would show an empty one
        raise
    return axes
