"""Find out the kind of an input, and turn it into a new AnnData on disk."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import h5py

from spatialpdvi.binning.cellgef import CellGef
from spatialpdvi.binning.external_sort import records_within
from spatialpdvi.binning.gef import GEF, GefRecords
from spatialpdvi.binning.gem import GemRecords
from spatialpdvi.binning.hdf5 import open_hdf5
from spatialpdvi.binning.images import Library
from spatialpdvi.binning.records import Records
from spatialpdvi.binning.sample import BinnedSample, Sample
from spatialpdvi.binning.spaceranger import SpaceRanger, find_outputs
from spatialpdvi.binning.spots import CellSpots, SpotRule, SquareSpots
from spatialpdvi.binning.store import Written, write_sample
from spatialpdvi.binning.tiff import Tiff
from spatialpdvi.binning.tissue import MarkedSample, TissueMask, corner_of, tissue_image
from spatialpdvi.errors import InputError, option
from spatialpdvi.io.storage.damage import reading_file
from spatialpdvi.io.storage.disk import clear_errors
from spatialpdvi.io.storage.locks import claimed
from spatialpdvi.io.storage.outputs import check_distinct, check_ending, check_writable
from spatialpdvi.io.storage.paths import Location, check_readable, locate
from spatialpdvi.io.storage.temporary import hidden_name, remove_folder
from spatialpdvi.runtime.progress import Progress, Stage

__all__ = ["DEFAULT_BIN", "bin_to_file"]

DEFAULT_BIN = 50  # DNBs: 25 micrometres


def bin_to_file(
    path: Path,
    output: Path,
    *,
    bin_size: int | None,
    cell_bin: bool,
    image: Path | None,
    tissue: str | None,
    memory: int,
    progress: Progress,
) -> Written:
    """Sort the molecules of a GEF, a GEM or a folder of Space Ranger into spots, and write an AnnData, all or nothing.

    Parameters
    ----------
    path
        The input, which is only read.
    output
        An h5ad file that ends in .h5ad, or a zarr store in .zarr; an existing one is replaced.
    bin_size
        Side of a square in DNBs, or for Visium HD in micrometres; None for 50, or 8.
    cell_bin
        Whether cells become spots.
    image
        A registered image of Stereo-seq; None for none.
    tissue
        What marks spots off the tissue: a mask of Stereo-seq, or a column of the positions of Space Ranger.
    memory
        Bytes that sorting may use, and as many again images and masks.
    progress
        Shows the stages.

    Raises
    ------
    InputError
        Where the input is of another kind or damaged, or the output cannot be written.
    """
    _check_options(bin_size, cell_bin=cell_bin)
    target = locate(output)
    check_distinct(target, "output", (path, *([] if image is None else [image])))
    check_writable(target, as_store=output.suffix == ".zarr")
    check_ending(target, "output")
    sample: Sample
    facts: dict[str, Any] = {}
    library = None
    with ExitStack() as stack:
        stack.enter_context(claimed(target))
        with progress.stage("read") as stage:
            if path.is_dir():
                sample = outputs = _space_ranger(path, bin_size, cell_bin=cell_bin, image=image, tissue=tissue)
                facts = {} if tissue is None else {"tissue": tissue}
                library = outputs.library()
            else:
                stack.enter_context(clear_errors(target))
                folder = stack.enter_context(_scratch(target))
                check_distinct(target, "output", tuple(Path(name) for name in (tissue,) if name is not None))
                pictures = _open_pictures(image, tissue, memory)  # before the molecules are read, which takes longer
                sample, facts = _stereo_seq(
                    stack, path, bin_size=bin_size, cell_bin=cell_bin, folder=folder, memory=memory, stage=stage
                )
                size = None if cell_bin else int(facts["bin_size"])
                sample, library, more = _on_pictures(pictures, sample, path, size=size, memory=memory)
                facts |= more
        with progress.stage("write") as stage:
            everything = {"source": path.name, **facts}
            written = write_sample(target, sample, everything, name=repr(str(path)), library=library)
            stage.note(f"{written.n_spots:,} spots, {written.n_values:,} values")
    return written


def _stereo_seq(
    stack: ExitStack,
    path: Path,
    *,
    bin_size: int | None,
    cell_bin: bool,
    folder: Path,
    memory: int,
    stage: Stage,
) -> tuple[Sample, dict[str, Any]]:
    check_readable(path, "a GEF, a GEM or a folder of Space Ranger's outputs")
    size = bin_size if bin_size is not None else DEFAULT_BIN
    records: Records
    if h5py.is_hdf5(path):
        file = stack.enter_context(open_hdf5(path, GEF))
        _check_kind(file, path, cell_bin=cell_bin)
        if cell_bin:
            return CellGef(file, path, most=records_within(memory) // 4), {}
        records = GefRecords(file, path, bin_size=size)
    else:
        records = GemRecords(path, with_cells=cell_bin)
    spots: SpotRule = CellSpots() if cell_bin else SquareSpots(size)
    sample = BinnedSample(records, spots, folder=folder, memory=memory, stage=stage)
    return sample, {} if cell_bin else {"bin_size": size}


class _Pictures(NamedTuple):
    """The files that were named by ``image`` and ``tissue``."""

    image: Tiff | None
    mask: Tiff | None


def _open_pictures(image: Path | None, tissue: str | None, memory: int) -> _Pictures:
    opened = None if image is None else Tiff(image, memory=memory, given="image")
    if tissue is not None and not Path(tissue).suffix and not Path(tissue).exists():
        raise InputError(
            "the mask of the tissue, a TIFF, for a GEF or a GEM",
            f"{tissue!r}",
            "Only a folder of Space Ranger has a column that says which spots are under tissue.",
            option="tissue",
        )
    mask = None if tissue is None else Tiff(Path(tissue), memory=memory, given="tissue")
    return _Pictures(opened, mask)


def _on_pictures(
    pictures: _Pictures, sample: Sample, path: Path, *, size: int | None, memory: int
) -> tuple[Sample, Library | None, dict[str, Any]]:
    """Return the sample with marked spots, the image to be written and what to note of both."""
    known = sample.facts()
    bounds = sample.bounds if isinstance(sample, BinnedSample) and known.get("format") == "GEM" else None
    library, facts = None, {}
    is_placed = "offset" in known
    if pictures.mask is not None:
        corner = corner_of(pictures.mask, bounds, is_placed=is_placed)
        mask = TissueMask(pictures.mask, side=size, corner=corner, memory=memory)
        sample, facts = MarkedSample(sample, mask), {"tissue": pictures.mask.name}
    if pictures.image is not None:
        corner = corner_of(pictures.image, bounds, is_placed=is_placed)
        library = tissue_image(pictures.image, corner=corner, diameter=size, name=path.name.partition(".")[0])
        facts["image"] = pictures.image.name
    return sample, library, facts


def _space_ranger(
    path: Path, bin_size: int | None, *, cell_bin: bool, image: Path | None, tissue: str | None
) -> SpaceRanger:
    if cell_bin:
        raise InputError(
            f"a cell-bin GEF or a GEM with cells for {option('cell_bin')}",
            f"the folder {str(path)!r}",
            f"Leave out {option('cell_bin')}.",
        )
    if image is not None:
        raise InputError(
            f"a GEF or a GEM for {option('image')}",
            f"the folder {str(path)!r}",
            f"Leave out {option('image')}: the image in its folder spatial is taken.",
        )
    if tissue is not None and Path(tissue).suffix.lower() in {".tif", ".tiff"}:
        raise InputError(
            "a column of the positions of Space Ranger",
            f"{tissue!r}",
            f"Give {option('tissue', 'in_tissue')}; a mask belongs to a GEF or a GEM.",
            option="tissue",
        )
    return SpaceRanger(find_outputs(path, bin_size), tissue=tissue)


def _check_options(bin_size: int | None, *, cell_bin: bool) -> None:
    if bin_size is not None and cell_bin:
        raise InputError(f"one of {option('bin_size')} and {option('cell_bin')}", "both", "Leave one of them out.")
    if bin_size is not None and not 1 <= bin_size < 1 << 22:
        raise InputError(
            f"a whole number from 1 to {(1 << 22) - 1:,}", f"{bin_size}", "Give 50, for example.", option="bin_size"
        )


def _check_kind(file: h5py.File, path: Path, *, cell_bin: bool) -> None:
    with reading_file(path, GEF):
        names = set(file)
    if ("cellBin" if cell_bin else "geneExp") in names:
        return
    if "cellBin" in names:
        found, advice = "a cell-bin GEF", f"Give {option('cell_bin')}, or name the square-bin GEF."
    elif "geneExp" in names:
        found, advice = "a square-bin GEF", f"Leave out {option('cell_bin')}, or name the cell-bin GEF (.cellbin.gef)."
    elif {"obs", "var"} <= names:
        found, advice = "an AnnData", "Give it to `spatialpdvi fit` as it is."
    elif "matrix" in names:
        found, advice = "a matrix of 10x", "Name the folder of Space Ranger's outputs that it is in."
    else:
        found, advice = f"groups {', '.join(sorted(names)[:8]) or 'none'}", "Check the path."
    wanted = "cell-bin GEF (with cellBin)" if cell_bin else "square-bin GEF (with geneExp)"
    raise InputError(
        f"{str(path)!r} to be a {wanted}",
        found,
        advice,
    )


@contextmanager
def _scratch(output: Location) -> Iterator[Path]:
    """A hidden folder beside the output; if the process is killed, the next one removes it."""
    folder = hidden_name(output.real.parent)
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        remove_folder(folder)
