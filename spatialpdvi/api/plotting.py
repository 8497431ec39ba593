"""Draw the domains of a fitted file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spatialpdvi.errors import InputError, option
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.options.validation import listed, refuse_without_genes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from spatialpdvi.io.results.fitted import Fitted

__all__ = ["plot_file"]


def plot_file(
    path: str | Path,
    *,
    kinds: Sequence[str] | str | None = None,
    genes: Sequence[str] | str = (),
    image: bool = False,
    alpha: float | None = None,
    layer: str | None = None,
    gene_key: str | None = None,
    key_added: str = "pdvi",
    label_key: str | None = None,
    spatial_key: str | None = None,
    sample_key: str | None = None,
    counts: str | Path | None = None,
) -> "Figure":
    """Draw a fitted file.

    Parameters
    ----------
    path
        An h5ad file or a zarr store.
    kinds
        Names of `spatialpdvi.plotting.kinds.KINDS`, or one name, one for each panel. ``overview`` must be alone; it
        shows known labels, domains, confidence, convergence, the choice of K and reliability, as far as the file has
        them. By default the overview; with ``image`` the image and the domains; with ``genes`` alone no others.
    genes
        Names, or one name, of genes whose expression is drawn in further panels, as log(1 + counts per 10,000).
    image
        Whether to draw maps over the image of the tissue in ``uns['spatial']``.
    alpha
        Opacity of the spots over the image, above 0 and at most 1; by default 0.6.
    layer, gene_key
        For genes, as for `markers_file`.
    key_added
        Prefix of the keys that the fit wrote.
    label_key
        Column of ``obs`` with known labels; by default the column used by the fit, or ``annotation``, if there is one.
    spatial_key
        Key in ``obsm`` of the coordinates, (n, 2) or (n, 3), or their columns of ``obs``, such as "x,y"; by default as
        the fit.
    sample_key
        Column of ``obs`` that names the section of each spot; by default the column used by the fit.
    counts
        For genes, as for `markers_file`.

    Returns
    -------
    A matplotlib figure, which is not shown.

    Raises
    ------
    InputError
        Where the file has no fit, a kind or gene is unknown, or the file lacks what it shows.

    Examples
    --------
    >>> spv.plot_file("fitted.h5ad", kinds=["domains", "confusion"]).savefig("domains.png")
    """
    from spatialpdvi.io.results.fitted import read_fitted
    from spatialpdvi.io.results.left_out import select_fitted
    from spatialpdvi.io.results.slim import opened_with_counts
    from spatialpdvi.io.storage.paths import locate
    from spatialpdvi.plotting.kinds import plot_kinds
    from spatialpdvi.plotting.view import Genes, View, check_alpha

    names = listed(genes)
    chosen = _chosen(None if kinds is None else listed(kinds), genes=bool(names), image=image)
    check_alpha(alpha, image=image)
    if not names:
        refuse_without_genes(option("genes"), layer=layer, gene_key=gene_key, counts=counts)
    keys, location = Keys(key_added), locate(path)
    title = Path(location.name).stem
    with opened_with_counts(location, counts) as file:
        source = select_fitted(file, keys)
        fitted = read_fitted(source, keys, label_key=label_key, spatial_key=spatial_key, sample_key=sample_key)
        if chosen is not None:
            wanted = Genes(names, layer, gene_key)
            return plot_kinds(View(source, keys, fitted, image=image, alpha=alpha, genes=wanted), chosen, title=title)
    return _overview(fitted, title)


def _chosen(kinds: tuple[str, ...] | None, *, genes: bool, image: bool) -> tuple[str, ...] | None:
    """Return the kinds of the panels beside those of genes; None for the overview."""
    if kinds is None and (genes or image):
        return ("image", "domains") if image else ()
    if kinds is not None and kinds != ("overview",):
        return kinds
    if genes or image:
        raise InputError(
            f"kinds of pictures for {option('image' if image else 'genes')}",
            "the overview, whose panels are fixed",
            f"Name panels with {option('kinds')}, such as domains and confidence.",
        )
    return None


def _overview(fitted: "Fitted", title: str) -> "Figure":
    from spatialpdvi.metrics.stored import measured_calibration, shown_scores
    from spatialpdvi.plotting import plot_section

    assert fitted.coordinates is not None  # which `read_fitted` reads by default
    return plot_section(
        fitted.coordinates,
        fitted.domains,
        annotation=fitted.annotation,
        confidence=fitted.shown_confidence,
        calibration=measured_calibration(fitted),
        # carried over by place, domains have no convergence of their own
        trace=fitted.summary["trace"] if fitted.carried_from is None else None,
        k_scan=fitted.summary.get("k_scan"),
        k=fitted.n_fitted,
        scores=shown_scores(fitted),
        colours=fitted.colours,
        label_colours=fitted.label_colours,
        edited=bool(fitted.edits),
        samples=fitted.samples,
        title=title,
    )
