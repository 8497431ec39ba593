"""Pictures over the tissue; several sections of a fit stand side by side."""

from typing import TYPE_CHECKING

from spatialpdvi.pl.describing import described
from spatialpdvi.pl.drawing import draw_kind

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.axes import Axes

__all__ = ["agreement", "annotation", "confidence", "domains", "edges", "entropy", "flow"]


@described("Where there is no fit.")
def domains(
    adata: "AnnData",
    *,
    ax: "Axes | None" = None,
    key_added: str = "pdvi",
    label_key: str | None = None,
    spatial_key: str = "spatial",
    sample_key: str | None = None,
) -> "Axes":
    """The domain of each spot, in the colours of ``uns['pdvi_domain_colors']``."""
    return draw_kind(
        adata, "domains", ax, key_added=key_added, label_key=label_key, spatial_key=spatial_key, sample_key=sample_key
    )


@described("Where there is no fit, or there are no labels.")
def annotation(
    adata: "AnnData",
    *,
    ax: "Axes | None" = None,
    key_added: str = "pdvi",
    label_key: str | None = None,
    spatial_key: str = "spatial",
    sample_key: str | None = None,
) -> "Axes":
    """Known labels, each in the colour of the domain that covers it best."""
    return draw_kind(
        adata,
        "annotation",
        ax,
        key_added=key_added,
        label_key=label_key,
        spatial_key=spatial_key,
        sample_key=sample_key,
    )


@described("Where there is no fit.")
def confidence(
    adata: "AnnData",
    *,
    ax: "Axes | None" = None,
    key_added: str = "pdvi",
    spatial_key: str = "spatial",
    sample_key: str | None = None,
    calibrated: bool = True,
) -> "Axes":
    """How sure each spot's domain is: the largest probability of its posterior."""
    return draw_kind(
        adata,
        "confidence",
        ax,
        key_added=key_added,
        spatial_key=spatial_key,
        sample_key=sample_key,
        calibrated=calibrated,
    )


@described("Where there is no fit.")
def entropy(
    adata: "AnnData",
    *,
    ax: "Axes | None" = None,
    key_added: str = "pdvi",
    spatial_key: str = "spatial",
    sample_key: str | None = None,
) -> "Axes":
    """The entropy of each spot's posterior, nats."""
    return draw_kind(adata, "entropy", ax, key_added=key_added, spatial_key=spatial_key, sample_key=sample_key)


@described("Where there is no fit, or it began from given labels and had no restarts.")
def agreement(
    adata: "AnnData",
    *,
    ax: "Axes | None" = None,
    key_added: str = "pdvi",
    spatial_key: str = "spatial",
    sample_key: str | None = None,
) -> "Axes":
    """The share of restarts that put each spot where their consensus does."""
    return draw_kind(adata, "agreement", ax, key_added=key_added, spatial_key=spatial_key, sample_key=sample_key)


@described("Where there is no fit, or it did not save its graph (``save_graph=True``).")
def flow(
    adata: "AnnData",
    *,
    ax: "Axes | None" = None,
    key_added: str = "pdvi",
    spatial_key: str = "spatial",
    sample_key: str | None = None,
) -> "Axes":
    """Flow directions as strokes over the domains; of a section in space the border normals as arrows.

    One for each square of a grid, that of the spot nearest to its middle. A stroke has no head since g and -g give
    the same edge weights. An arrow is as long as its part in the plane.
    """
    return draw_kind(adata, "flow", ax, key_added=key_added, spatial_key=spatial_key, sample_key=sample_key)


@described("Where there is no fit, or it did not save its graph (``save_graph=True``).")
def edges(
    adata: "AnnData",
    *,
    ax: "Axes | None" = None,
    key_added: str = "pdvi",
    spatial_key: str = "spatial",
    sample_key: str | None = None,
) -> "Axes":
    """The edges of the graph, in the colour of their weight in the objective.

    Of more than two hundred thousand some are drawn, taken by chance; the title says how many.
    """
    return draw_kind(adata, "edges", ax, key_added=key_added, spatial_key=spatial_key, sample_key=sample_key)
