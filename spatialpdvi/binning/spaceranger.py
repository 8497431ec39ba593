"""Output folders of 10x Space Ranger: Visium, and the square bins of Visium HD.

``filtered_feature_bc_matrix.h5`` has the counts of the spots under tissue. ``spatial/tissue_positions.csv`` (before
version 2 ``tissue_positions_list.csv``, without names of columns; for Visium HD ``tissue_positions.parquet``) has a row
per spot: ``barcode``, ``in_tissue``, ``array_row``, ``array_col``, ``pxl_row_in_fullres`` and ``pxl_col_in_fullres``,
in pixels of the full-resolution image. ``spatial/scalefactors_json.json`` has the scale of the pixels. For Visium HD
all of this is in ``binned_outputs/square_002um``, ``square_008um`` and ``square_016um``.

The layout is that of 10x Genomics' documents of Space Ranger, "Outputs" and "Spatial outputs"
(support.10xgenomics.com and 10xgenomics.com/support/software/space-ranger); the counts are read by
`scanpy.read_10x_h5`.
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
from spatialpdvi.binning.hdf5 import open_hdf5, reading
from spatialpdvi.binning.records import Genes, check_texts, checked_counts
from spatialpdvi.errors import InputError, ResourceError, list_keys, option

__all__ = ["SpaceRanger", "find_outputs"]

_MATRIX = "filtered_feature_bc_matrix.h5"
_POSITIONS = ("tissue_positions.parquet", "tissue_positions.csv", "tissue_positions_list.csv")
_COLUMNS = ("barcode", "in_tissue", "array_row", "array_col", "pxl_row_in_fullres", "pxl_col_in_fullres")
_USUAL_SIDE = 8  # micrometres of the bins that 10x recommends


class SpaceRanger:
    """The spots under tissue of a folder that `find_outputs` found, in the order of the matrix."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        matrix = _one_matrix(folder)
        counts, barcodes, self._genes = _read_matrix(matrix)
        positions = _read_positions(folder / "spatial")
        spots = positions.reindex(barcodes)
        missing = spots["in_tissue"].isna().to_numpy()
        if missing.any():
            raise InputError(
                f"a place for every barcode of {str(matrix)!r}",
                f"{missing.sum():,} of {missing.size:,} without (first: {barcodes[int(np.argmax(missing))]!r})",
                "Take the folder spatial of the same run.",
            )
        kept = np.flatnonzero(spots["in_tissue"].to_numpy() == 1)
        if not kept.size:
            raise InputError(
                f"spots under tissue in {str(folder)!r}",
                "none",
                "Check in_tissue of its positions.",
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
        """Return a table of spots by their barcodes, with ``array_row`` and ``array_col``."""
        spots = self._spots.iloc[rows.astype(np.int64)]
        table = spots[["array_row", "array_col"]].astype(np.int64)
        table.index = pd.Index(table.index.to_numpy(dtype=object), dtype=object)
        return table

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the column and row of the pixel at each spot's centre in the full-resolution image, (n, 2)."""
        spots = self._spots.iloc[rows.astype(np.int64)]
        return spots[["pxl_col_in_fullres", "pxl_row_in_fullres"]].to_numpy(dtype=np.float64)

    def facts(self) -> dict[str, Any]:
        """Return the ``scale_factors`` of Space Ranger, and for Visium HD the side of the bins as ``bin_size_um``."""
        found: dict[str, Any] = {"format": "Space Ranger", "unit": "pixel"}
        path = self._folder / "spatial" / "scalefactors_json.json"
        if path.is_file():
            with reading(path, "JSON file"):
                factors = json.loads(path.read_text(encoding="utf-8"))
                found["scale_factors"] = {
                    key: float(value) for key, value in sorted(factors.items()) if re.fullmatch(r"\w+", key)
                }
        side = _side(self._folder)
        return found | ({"bin_size_um": side} if side else {})


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
        _one_matrix(folder)
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


def _one_matrix(folder: Path) -> Path:
    # names of files that are downloaded one by one begin with the name of the sample
    found = [path for path in (folder / _MATRIX, *sorted(folder.glob(f"*{_MATRIX}"))) if path.is_file()]
    if found and (found[0].name == _MATRIX or len(found) == 1):
        return found[0]
    names = list_keys(path.name for path in found) if found else "none"
    raise InputError(
        f"a folder of Space Ranger's outputs with one {_MATRIX}",
        f"{names} in {str(folder)!r}",
        "Name the folder outs of the run, or a GEF or GEM.",
    )


def _read_matrix(path: Path) -> tuple[sp.csr_matrix, list[str], Genes]:
    import scanpy as sc

    what = "matrix of Space Ranger"
    with open_hdf5(path, what) as file, reading(path, what):
        is_current = isinstance(file.get("matrix"), h5py.Group) and "features" in file["matrix"]
    if not is_current:
        raise InputError(
            f"{str(path)!r} to be a {what} (matrix/features in HDF5)",
            "another kind of HDF5 file",
            "Take the file of Space Ranger.",
        )
    with reading(path, what), warnings.catch_warnings():
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


def _read_positions(folder: Path) -> pd.DataFrame:
    """Read the positions by barcode, with numbers in all columns."""
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
    numbers = table[list(_COLUMNS[1:])].apply(pd.to_numeric, errors="coerce")
    barcodes = table["barcode"].astype(str)
    if not np.isfinite(numbers.to_numpy(dtype=np.float64)).all() or barcodes.duplicated().any():
        found = "a barcode twice" if barcodes.duplicated().any() else "values that are not numbers"
        raise InputError(
            f"numbers for every barcode in {str(path)!r}",
            found,
            "Take the file of Space Ranger.",
        )
    return numbers.set_axis(pd.Index(barcodes.to_numpy(dtype=object), dtype=object))


def _read_csv(path: Path) -> pd.DataFrame:
    with reading(path, "table of positions"):
        with path.open(encoding="utf-8", newline="") as stream:
            first = next(csv.reader(stream), [])
        if "barcode" in first:
            return pd.read_csv(path)
        return pd.read_csv(path, header=None, names=list(_COLUMNS), index_col=False)


def _read_parquet(path: Path) -> pd.DataFrame:
    if find_spec("pyarrow") is None:
        problem = f"The package pyarrow, which is needed to read {str(path)!r}, is not installed."
        raise ResourceError(problem, "Install it with: pip install 'spatialpdvi[visium-hd]'")
    with reading(path, "table of positions"):
        return pd.read_parquet(path)
