"""Pictures of a fitted section for notebooks: ``spatialpdvi.pl.domains(adata)`` draws what ``spatialpdvi plot`` does.

There is a function for each kind of picture of `spatialpdvi.plotting.kinds.KINDS`, and `gene`. Every function
takes ``ax=``; without it, it draws on a new figure of pyplot, which a notebook shows.

Examples
--------
>>> import spatialpdvi as spv
>>> from matplotlib import pyplot as plt
>>> figure, (left, right) = plt.subplots(1, 2, layout="constrained")
>>> axes = spv.pl.annotation(adata, ax=left)
>>> axes = spv.pl.domains(adata, ax=right)
>>> axes = spv.pl.confidence(adata, calibrated=False)
>>> axes = spv.pl.entropy(adata)
>>> axes = spv.pl.agreement(adata)
>>> axes = spv.pl.flow(adata)  # after fit(..., save_graph=True)
>>> axes = spv.pl.edges(adata)
>>> axes = spv.pl.trace(adata)
>>> axes = spv.pl.confusion(adata, label_key="annotation")
>>> axes = spv.pl.reliability(adata)
>>> axes = spv.pl.scan(scanned)  # after fit(..., k="2:4")
>>> axes = spv.pl.states(scanned)  # of a fit whose domains share states
>>> axes = spv.pl.composition(scanned)
>>> spv.tl.intervals(adata, n_genes=1)
>>> axes = spv.pl.intervals(adata)
>>> axes = spv.pl.gene(adata, adata.var_names[0])
>>> axes = spv.pl.image(pictured)  # with an image in uns['spatial']
>>> axes = spv.pl.domains(pictured, image=True, alpha=0.5)
"""

import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.results.fitted import read_fitted
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.left_out import select_fitted
from spatialpdvi.plotting.kinds import GENE, KINDS, Kind, plot_kinds
from spatialpdvi.plotting.page import inches, write_title
from spatialpdvi.plotting.view import Genes, View

if TYPE_CHECKING:
    from anndata import AnnData

_DRAWN = {**KINDS, "gene": GENE}

__all__ = list(_DRAWN)

# type, default and meaning of each parameter
_PARAMETERS: dict[str, tuple[str, Any, str]] = {
    "adata": ("AnnData", Parameter.empty, "A fitted section."),
    "gene": ("str", Parameter.empty, "Name of the gene."),
    "ax": ("Axes | None", None, "Axes to draw on; by default those of a new figure."),
    "key_added": ("str", "pdvi", "Prefix of the keys that the fit wrote."),
    "label_key": ("str | None", None, "Column of ``obs`` with known labels; by default the fit's, or ``annotation``."),
    "spatial_key": (
        "str | None",
        None,
        "Key in ``obsm`` of the coordinates, or columns of ``obs`` such as 'x,y'; by default as the fit.",
    ),
    "sample_key": ("str | None", None, "Column of ``obs`` with the section of each spot; by default that of the fit."),
    "layer": ("str | None", None, "Where the raw counts are; by default where the fit found them."),
    "gene_key": ("str | None", None, "Column of ``var`` with the names of genes; by default the index of ``var``."),
    "image": ("bool", False, "Whether to draw over the image of the tissue in ``uns['spatial']``."),
    "alpha": ("float | None", None, "Opacity of the spots over the image, above 0 and at most 1; by default 0.6."),
    "calibrated": (
        "bool",
        True,
        "Whether to draw the calibrated confidence if the fit wrote one; the label of the colour bar says which it is.",
    ),
}
_RETURNS = "The axes that were drawn on."
_SECTIONS = " Several sections have axes of their own within them (``child_axes``)."


def _function(name: str, kind: Kind) -> Callable[..., Axes]:
    """Make the function that draws a kind of picture, with its signature and docstring."""
    first = ("adata", "gene") if kind is GENE else ("adata",)
    names = (*first, "ax", "key_added", *kind.options)
    signature = inspect.Signature(
        [
            Parameter(
                parameter,
                Parameter.POSITIONAL_OR_KEYWORD if parameter in first else Parameter.KEYWORD_ONLY,
                default=_PARAMETERS[parameter][1],
                annotation=_PARAMETERS[parameter][0],
            )
            for parameter in names
        ],
        return_annotation="Axes",
    )

    def draw(*arguments: Any, **options: Any) -> Axes:
        bound = signature.bind(*arguments, **options)
        bound.apply_defaults()
        return _draw(name, kind, **bound.arguments)

    draw.__name__ = draw.__qualname__ = name
    draw.__signature__ = signature  # type: ignore[attr-defined]
    sections = {
        "Parameters": "\n".join(f"{parameter}\n    {_PARAMETERS[parameter][2]}" for parameter in names),
        "Returns": f"matplotlib.axes.Axes\n    {_RETURNS}{_SECTIONS if 'spatial_key' in names else ''}",
        "Raises": f"InputError\n    {kind.raises}",
    }
    parts = (f"{title}\n{'-' * len(title)}\n{text}" for title, text in sections.items())
    draw.__doc__ = "\n\n".join([inspect.cleandoc(kind.summary), *parts])
    return draw


def _draw(
    name: str,
    kind: Kind,
    adata: "AnnData",
    ax: Axes | None,
    key_added: str,
    *,
    calibrated: bool = True,
    gene: str | None = None,
    layer: str | None = None,
    gene_key: str | None = None,
    image: bool = False,
    alpha: float | None = None,
    **read: Any,
) -> Axes:
    """Draw on the given axes, or on a page of pyplot's; a chart has no ``spatial_key`` and needs no coordinates."""
    if kind is GENE and not isinstance(gene, str):
        advice = (
            "Call it once for each gene, or draw several genes of a file on one page with "
            "spatialpdvi.plot_file(path, genes=[...])."
        )
        raise InputError("the name of one gene, as text", f"{gene!r:.80}", advice, option="gene")
    if not isinstance(ax, Axes | None):
        advice = "Draw on one of several as `ax=axes[0]`."
        raise InputError("axes of matplotlib", f"an object of type {type(ax).__name__}", advice, option="ax")
    keys = Keys(key_added)
    source = select_fitted(AnnDataSource(adata, "plot_file"), keys)
    fitted = read_fitted(source, keys, placed="spatial_key" in read, **read)
    genes = None if gene is None else Genes((gene,), layer, gene_key)
    shown: dict[str, Any] = {"calibrated": calibrated, "image": image, "alpha": alpha, "genes": genes}
    view = View(source, keys, fitted, room=None if ax is None else inches(ax), **shown)
    if ax is not None:
        write_title(ax, kind.draw(view, ax))
        return ax
    from matplotlib import pyplot as plt

    figure = plt.figure()
    try:
        return plot_kinds(view, [] if kind is GENE else [name], figure=figure).axes[0]
    except BaseException:
        plt.close(figure)  # a notebook would show it although it is empty
        raise


globals().update({name: _function(name, kind) for name, kind in _DRAWN.items()})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Axes]: ...
