"""Find out the kind of an input, and turn it into a new AnnData on disk."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import h5py

from spatialpdvi.binning.cellgef import CellGef
from spatialpdvi.binning.external_sort import records_within
from spatialpdvi.binning.gef import GEF, GefRecords
from spatialpdvi.binning.gem import GemRecords
from spatialpdvi.binning.hdf5 import open_hdf5, reading
from spatialpdvi.binning.records import Records
from spatialpdvi.binning.sample import BinnedSample, Sample
from spatialpdvi.binning.spaceranger import SpaceRanger, find_outputs
from spatialpdvi.binning.spots import CellSpots, SpotRule, SquareSpots
from spatialpdvi.binning.store import Written, write_sample
from spatialpdvi.errors import InputError, option
from spatialpdvi.io.storage.atomic import check_distinct, check_writable, clear_errors
from spatialpdvi.io.storage.locks import claimed
from spatialpdvi.io.storage.paths import Location, locate, why_unreadable
from spatialpdvi.io.storage.temporary import hidden_name, remove_folder
from spatialpdvi.runtime.progress import Progress, Stage

__all__ = ["DEFAULT_BIN", "bin_to_file"]

DEFAULT_BIN = 50  # DNBs: 25 micrometres


def bin_to_file(
    path: Path, output: Path, *, bin_size: int | None, cell_bin: bool, memory: int, progress: Progress
) -> Written:
    """Sort the molecules of a GEF, a GEM or a folder of Space Ranger into spots, and write an AnnData, all or nothing.

    Parameters
    ----------
    path
        The input, which is only read.
    output
        An h5ad file, or a zarr store where it ends in .zarr; an existing one is replaced.
    bin_size
        Side of a square in DNBs, or for Visium HD in micrometres; None for 50, or 8.
    cell_bin
        Whether cells become spots.
    memory
        Bytes that sorting may use.
    progress
        Shows the stages.

    Raises
    ------
    InputError
        Where the input is of another kind or damaged, or the output cannot be written.
    """
    _check_options(bin_size, cell_bin=cell_bin)
    target = locate(output)
    check_distinct(target, "output", (path,))
    check_writable(target, as_store=output.suffix == ".zarr")
    with ExitStack() as stack:
        stack.enter_context(claimed(target))
        with progress.stage("read") as stage:
            if path.is_dir():
                sample, facts = _space_ranger(path, bin_size, cell_bin=cell_bin)
            else:
                stack.enter_context(clear_errors(target))
                folder = stack.enter_context(_scratch(target))
                sample, facts = _stereo_seq(
                    stack, path, bin_size=bin_size, cell_bin=cell_bin, folder=folder, memory=memory, stage=stage
                )
        with progress.stage("write") as stage:
            written = write_sample(target, sample, {"source": path.name, **facts}, name=repr(str(path)))
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
    problem = why_unreadable(path)
    if problem is not None:
        raise InputError(f"{str(path)!r} to be a GEF, a GEM or a folder of Space Ranger's outputs", *problem)
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


def _space_ranger(path: Path, bin_size: int | None, *, cell_bin: bool) -> tuple[Sample, dict[str, Any]]:
    if cell_bin:
        raise InputError(
            f"a cell-bin GEF or a GEM with cells for {option('cell_bin')}",
            f"the folder {str(path)!r}",
            f"Leave out {option('cell_bin')}.",
        )
    return SpaceRanger(find_outputs(path, bin_size)), {}


def _check_options(bin_size: int | None, *, cell_bin: bool) -> None:
    if bin_size is not None and cell_bin:
        raise InputError(f"one of {option('bin_size')} and {option('cell_bin')}", "both", "Leave one of them out.")
    if bin_size is not None and not 1 <= bin_size < 1 << 22:
        raise InputError(
            f"a whole number from 1 to {(1 << 22) - 1:,}", f"{bin_size}", "Give 50, for example.", option="bin_size"
        )


def _check_kind(file: h5py.File, path: Path, *, cell_bin: bool) -> None:
    with reading(path, GEF):
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
