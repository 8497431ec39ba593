"""Make an HTML report on fitted files."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spatialpdvi.api.checked import fitted_files
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.storage.paths import Location, check_once, locate, section_names
from spatialpdvi.runtime.progress import Progress, progress_of

if TYPE_CHECKING:
    from spatialpdvi.report import Material, ReportOptions

__all__ = ["report_files"]


def report_files(
    paths: Sequence[str | Path],
    *,
    key_added: str = "pdvi",
    label_key: str | None = None,
    spatial_key: str | None = None,
    sample_key: str | None = None,
    n_genes: int = 10,
    layer: str | None = None,
    gene_key: str | None = None,
    memory: str | None = None,
    counts: Sequence[str | Path] = (),
    progress: Progress | bool | None = None,
) -> str:
    """Make a self-contained HTML page on fitted files. The files are not changed.

    Parameters
    ----------
    paths
        At least one fitted h5ad file or zarr store, each of them once.
    key_added
        Prefix of the keys that the fits wrote.
    label_key
        Column of ``obs`` with known labels to show; by default the column used by the fit, or ``annotation``.
    spatial_key
        Key in ``obsm`` of the coordinates, or their columns of ``obs``, such as "x,y"; by default as the fit.
    sample_key
        Column of ``obs`` that names the section of each spot; by default the column used by the fit.
    n_genes
        Largest number of marker genes per domain (`markers_file`); 0 for none. If a file has no counts, the page says
        so.
    layer
        Where the counts are; by default where the fit found them.
    gene_key
        Column of ``var`` with the gene names to show; by default the index of ``var``.
    memory
        As for `markers_file`.
    counts
        For results that were written with ``slim``: a file with the counts of the same spots for each of ``paths``.
        Without it the page has the marker genes that such a file holds, and no maps of genes.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.

    Returns
    -------
    The page as text, which must be written as UTF-8.

    Raises
    ------
    InputError
        Where no file is given, one is given twice, or one has no fit.

    Examples
    --------
    >>> page = spv.report_files(["fitted.h5ad"], n_genes=3)
    >>> Path("report.html").write_text(page, encoding="utf-8") > 10_000
    True
    """
    from spatialpdvi.io.results.slim import counts_of_each
    from spatialpdvi.report import ReportOptions, render

    files = _distinct(paths)
    others = [None if other is None else locate(other) for other in counts_of_each(files, counts)]
    options = ReportOptions(
        keys=Keys(key_added),
        label_key=label_key,
        spatial_key=spatial_key,
        sample_key=sample_key,
        n_genes=n_genes,
        layer=layer,
        gene_key=gene_key,
        memory=memory,
    )
    progress = progress_of(progress)

    def materials() -> Iterator["Material"]:
        for file, other, name in zip(files, others, names, strict=True):
            material = _material(file, other, name, options, progress)
            with progress.stage("draw") as stage:
                stage.note(material.name)
                yield material  # it is drawn before the next one is read

    names = section_names(files)
    # a joint fit names its sections only, so that files of the same name cannot be told apart
    known = {
        name: file.path if other is None else other.path
        for name, file, other in zip(names, files, others, strict=True)
        if names.count(name) == 1
    }
    return render(materials(), n_sections=len(files), paths=known)


def _distinct(paths: Sequence[str | Path]) -> list[Location]:
    # a path like "." has no name that the section could be called by
    files = [file if file.path.name not in {"", ".."} else locate(file.real) for file in fitted_files(paths)]
    check_once(files)
    return files


def _material(
    file: Location, counts: Location | None, name: str, options: "ReportOptions", progress: Progress
) -> "Material":
    from spatialpdvi.io.results.slim import opened_with_counts
    from spatialpdvi.report import read_material, with_markers

    with opened_with_counts(file, counts) as source:
        with progress.stage("read"):
            other = None if counts is None else counts.path
            material = read_material(source, options, path=file.path, name=name, counts=other)
        if not options.n_genes:
            return material
        with progress.stage("markers"):
            return with_markers(material, source, options)
