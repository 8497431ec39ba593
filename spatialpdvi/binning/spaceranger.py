"""Output folders of 10x Space Ranger: Visium, and the square bins of Visium HD.

``filtered_feature_bc_matrix.h5`` has the counts of the spots under tissue. ``spatial/tissue_positions.csv`` (before
version 2 ``tissue_positions_list.csv``, without names of columns; for Visium HD ``tissue_positions.parquet``) has a row
per spot: ``barcode``, ``in_tissue``, ``array_row``, ``array_col``, ``pxl_row_in_fullres`` and ``pxl_col_in_fullres``,
in pixels of the full-resolution image. ``spatial/scalefactors_json.json`` has the scale of the pixels. For Visium HD
all of this is in ``binned_outputs/square_002um``, ``square_008um`` and ``square_016um``.

The layout is that of 10x Genomics' documents of Space Ranger, "Outputs" and "Spatial outputs"
(support.10xgenomics.com and 10xgenomics.com/support/software/space-ranger); the counts are read by
`scanpy.read_10x_h5`. ``raw_feature_bc_matrix.h5`` has the counts of all spots. ``spatial/tissue_hires_image.png`` and
``tissue_lowres_image.png`` are the image of the tissue on a smaller scale.
"""

import csv
import json
import re
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.binning.external_sort import RowBlock
from spatialpdvi.binning.hdf5 import open_hdf5, texts
from spatialpdvi.binning.images import Library, read_picture
from spatialpdvi.binning.records import Genes, check_texts, checked_counts
from spatialpdvi.errors import InputError, list_keys, missing_package, option
from spatialpdvi.io.section.background import IN_TISSUE
from spatialpdvi.io.section.images import SIZES
from spatialpdvi.io.storage.damage import reading_file

__all__ = ["SpaceRanger", "find_outputs"]

_MATRIX, _RAW = "filtered_feature_bc_matrix.h5", "raw_feature_bc_matrix.h5"
_FACTORS = "scalefactors_json.json"
_METADATA = ("chemistry_description", "software_version")  # attributes of the matrix that scanpy and squidpy keep
_POSITIONS = ("tissue_positions.parquet", "tissue_positions.csv", "tissue_positions_list.csv")
_COLUMNS = ("barcode", "in_tissue", "array_row", "array_col", "pxl_row_in_fullres", "pxl_col_in_fullres")
_WHAT = "matrix of Space Ranger"
_USUAL_SIDE = 8  # micrometres of the bins that 10x recommends


class SpaceRanger:
    """The spots of a folder that `find_outputs` found, in the order of the matrix.

    Parameters
    ----------
    folder
        It holds the matrix.
    tissue
        Column of the positions that says which spots are under tissue: all spots are read, and marked in
        ``obs['in_tissue']``. None for the spots under tissue alone.
    """

    def __init__(self, folder: Path, *, tissue: str | None = None) -> None:
        self._folder, self._is_marked = folder, tissue is not None
        self._matrix = matrix = _one_matrix(folder, _MATRIX if tissue is None else _RAW)
        # the matrix is large, and without pyarrow pandas 3 cannot read its names, where the positions say what to do
        positions = _read_positions(folder / "spatial", IN_TISSUE if tissue is None else tissue)
        counts, barcodes, self._genes = _read_matrix(matrix)
        spots = positions.reindex(barcodes)
        missing = spots[IN_TISSUE].isna().to_numpy()
        if missing.any():
            raise InputError(
                f"a place for every barcode of {str(matrix)!r}",
                f"{missing.sum():,} of {missing.size:,} without (first: {barcodes[int(np.argmax(missing))]!r})",
                "Take the folder spatial of the same run.",
            )
        kept = np.flatnonzero((spots[IN_TISSUE] == 1).to_numpy() | self._is_marked)
        if not (spots[IN_TISSUE] == 1).any():
            raise InputError(
                f"spots under tissue in {str(folder)!r}",
                "none",
                f"Check {tissue or IN_TISSUE} of its positions.",
            )
        self._counts, self._spots = counts[kept], spots.iloc[kept]
        self.n_values = int(self._counts.nnz)

    def blocks(self) -> Iterator[RowBlock]:
        """Yield all counts at once, as scanpy reads them."""
        yield RowBlock(np.arange(self._counts.shape[0], dtype=np.uint64), self._counts)

    def genes(self) -> Genes:
        """Return the genes in the order of the matrix."""
        return self._genes

    def obs(self, rows: np.ndarray) -> pd.DataFrame:
        """Return a table of spots by their barcodes, with their places in the array and, where asked, the mark."""
        spots = self._spots.iloc[rows.astype(np.int64)]
        table = spots[["array_row", "array_col"]].astype(np.int64)
        if self._is_marked:
            table[IN_TISSUE] = spots[IN_TISSUE] == 1
        table.index = pd.Index(table.index.to_numpy(dtype=object), dtype=object)
        return table

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the column and row of the pixel at each spot's centre in the full-resolution image, (n, 2)."""
        spots = self._spots.iloc[rows.astype(np.int64)]
        return spots[["pxl_col_in_fullres", "pxl_row_in_fullres"]].to_numpy(dtype=np.float64)

    def facts(self) -> dict[str, Any]:
        """Return the ``scale_factors`` of Space Ranger, and for Visium HD the side of the bins as ``bin_size_um``."""
        found: dict[str, Any] = {"format": "Space Ranger", "unit": "pixel"}
        factors = self._scale_factors()
        if factors:
            found["scale_factors"] = factors
        side = _side(self._folder)
        return found | ({"bin_size_um": side} if side else {})

    def library(self) -> Library | None:
        """Return the image of the tissue with its scale factors; None where the folder has no image.

        A folder of bins of Visium HD has links to the images of the folder ``outs``, which are read where it has none.
        """
        folders = [self._folder / "spatial"]
        if _side(self._folder):
            folders.append(self._folder.resolve().parent.parent / "spatial")
        names = {size: f"tissue_{size}_image.png" for size in SIZES}
        found = {size: next((p for f in folders if (p := f / name).is_file()), None) for size, name in names.items()}
        images = {size: read_picture(path) for size, path in found.items() if path is not None}
        if not images:
            return None
        factors = self._scale_factors()
        missing = [key for key in (f"tissue_{size}_scalef" for size in images) if not factors.get(key, 0.0) > 0]
        if missing:
            raise InputError(
                f"a number above 0 under {list_keys(missing)} in {str(folders[0] / _FACTORS)!r}, to place the image",
                "none",
                "Take the folder spatial of the same run, or take the images out of it.",
            )
        name, metadata = _run_of(self._matrix)
        return Library(name or _name_of(self._folder), images, factors, metadata)

    def _scale_factors(self) -> dict[str, float]:
        path = self._folder / "spatial" / _FACTORS
        if not path.is_file():
            return {}
        with reading_file(path, "JSON file"):
            factors = json.loads(path.read_text(encoding="utf-8"))
            return {key: float(value) for key, value in sorted(factors.items()) if re.fullmatch(r"\w+", key)}


def find_outputs(folder: Path, bin_size: int | None) -> Path:
    """Return the folder that holds the matrix: this one, or the one in it of bins of ``bin_size`` micrometres.

    Raises
    ------
    InputError
        Where there is none, or ``bin_size`` is given for Visium, whose spots have a fixed size.
    """
    binned = next((path for path in (folder / "binned_outputs", folder) if _squares(path)), None)
    if binned is None:
        if bin_size is not None:
            raise InputError(
                f"folders such as square_008um in {str(folder)!r} for {option('bin_size', bin_size)}",
                "none",
                f"Leave out {option('bin_size')}: spots of Visium have a fixed size.",
            )
        return folder
    squares = _squares(binned)
    wanted = bin_size if bin_size is not None else _USUAL_SIDE if _USUAL_SIDE in squares else min(squares)
    if wanted not in squares:
        listed = ", ".join(map(str, sorted(squares)))
        raise InputError(
            f"a size of bins that {str(folder)!r} has, in micrometres ({listed})",
            f"{wanted}",
            "Give one of these.",
            option="bin_size",
        )
    return squares[wanted]


def _squares(folder: Path) -> dict[int, Path]:
    """Folders of square bins by the length of their sides in micrometres."""
    return {side: path for path in sorted(folder.glob("square_*um")) if path.is_dir() and (side := _side(path))}


def _side(folder: Path) -> int:
    found = re.fullmatch(r"square_0*(\d+)um", folder.name)
    return int(found[1]) if found else 0


def _run_of(matrix: Path) -> tuple[str, dict[str, str]]:
    """Return the name of the library, empty where there is none, and what else the matrix says of its run."""
    with open_hdf5(matrix, _WHAT) as file, reading_file(matrix, _WHAT):
        libraries = texts(np.ravel(file.attrs.get("library_ids", ())))
        values = {name: texts(np.ravel(file.attrs[name])) for name in _METADATA if name in file.attrs}
        return (libraries[0] if libraries else ""), {name: own[0] for name, own in values.items() if own}


def _name_of(folder: Path) -> str:
    """The name of the run that a folder of outputs is in."""
    folders = [folder.resolve(), *folder.resolve().parents]
    return next((f.name for f in folders if f.name not in {"outs", "binned_outputs", ""} and not _side(f)), "tissue")


def _one_matrix(folder: Path, matrix: str) -> Path:
    # names of files that are downloaded one by one begin with the name of the sample
    found = [path for path in (folder / matrix, *sorted(folder.glob(f"*{matrix}"))) if path.is_file()]
    if found and (found[0].name == matrix or len(found) == 1):
        return found[0]
    names = list_keys(path.name for path in found) if found else "none"
    raise InputError(
        f"a folder of Space Ranger's outputs with one {matrix}",
        f"{names} in {str(folder)!r}",
        "Name the folder outs of the run, or a GEF or GEM."
        if matrix == _MATRIX
        else f"It has the spots off the tissue; without {option('tissue')} those under tissue are read alone.",
    )


def _read_matrix(path: Path) -> tuple[sp.csr_matrix, list[str], Genes]:
    import scanpy as sc

    with open_hdf5(path, _WHAT) as file, reading_file(path, _WHAT):
        is_current = isinstance(file.get("matrix"), h5py.Group) and "features" in file["matrix"]
    if not is_current:
        raise InputError(
            f"{str(path)!r} to be a {_WHAT} (matrix/features in HDF5)",
            "another kind of HDF5 file",
            "Take the file of Space Ranger.",
        )
    with reading_file(path, _WHAT), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Variable names are not unique")
        adata = sc.read_10x_h5(path, gex_only=False)
        matrix = sp.csr_matrix(adata.X)
        matrix.check_format(full_check=True)  # before it is indexed: SciPy does not check the numbers of columns
        expressed = np.flatnonzero(adata.var["feature_types"] == "Gene Expression")
        matrix = matrix[:, expressed]
    checked_counts(matrix.data, str(path))
    matrix = matrix.astype(np.int32)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if not min(matrix.shape) or not matrix.nnz:
        raise InputError(
            f"gene expression in {str(path)!r}",
            "none",
            "Run Space Ranger again.",
        )
    table, barcodes = adata.var.iloc[expressed], adata.obs_names.astype(str).tolist()
    check_texts(barcodes, "spots")
    return matrix, barcodes, Genes(table["gene_ids"].astype(str).tolist(), table.index.astype(str).tolist())


def _read_positions(folder: Path, tissue: str) -> pd.DataFrame:
    """Read the positions by barcode, with numbers in all columns; ``in_tissue`` is the column ``tissue``, 1 or 0."""
    path = next((folder / name for name in _POSITIONS if (folder / name).is_file()), None)
    if path is None:
        listed = ", ".join(_POSITIONS)
        raise InputError(
            f"one of {listed} in {str(folder)!r}",
            "none",
            "Put the folder spatial beside the matrix.",
        )
    table = _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
    missing = [name for name in _COLUMNS if name not in table]
    if missing:
        raise InputError(
            f"columns {', '.join(_COLUMNS)} in {str(path)!r}",
            f"no {', '.join(missing)}",
            "Take the file of Space Ranger.",
        )
    if tissue not in table:
        raise InputError(
            f"a column {tissue!r} in {str(path)!r}",
            f"columns: {list_keys(map(str, table.columns))}",
            f"Name the one that says which spots are under tissue with {option('tissue', IN_TISSUE)}.",
        )
    table[IN_TISSUE] = table[tissue]
    numbers = table[list(_COLUMNS[1:])].apply(pd.to_numeric, errors="coerce")
    barcodes = table["barcode"].astype(str)
    if not np.isfinite(numbers.to_numpy(dtype=np.float64)).all() or barcodes.duplicated().any():
        found = "a barcode twice" if barcodes.duplicated().any() else "values that are not numbers"
        raise InputError(
            f"numbers for every barcode in {str(path)!r}",
            found,
            "Take the file of Space Ranger.",
        )
    if tissue != IN_TISSUE and not numbers[IN_TISSUE].isin((0, 1)).all():
        raise InputError(
            f"the column {tissue!r} of {str(path)!r} to hold 1 and 0", "other numbers", "Name another one."
        )
    return numbers.set_axis(pd.Index(barcodes.to_numpy(dtype=object), dtype=object))


def _read_csv(path: Path) -> pd.DataFrame:
    with reading_file(path, "table of positions"):
        with path.open(encoding="utf-8-sig", newline="") as stream:  # Excel puts a byte order mark in front
            first = next(csv.reader(stream), [])
        if "barcode" in first:
            return pd.read_csv(path)
        return pd.read_csv(path, header=None, names=list(_COLUMNS), index_col=False)


def _read_parquet(path: Path) -> pd.DataFrame:
    if find_spec("pyarrow") is None:
        raise missing_package("pyarrow", f"to read {str(path)!r}", "'spatialpdvi[visium-hd]'")
    with reading_file(path, "table of positions"):
        return pd.read_parquet(path)
