"""Small samples as sequencers' software writes them, from the documented layouts."""

import gzip
import json
from typing import NamedTuple

import h5py
import numpy as np
import scipy.sparse as sp


class Molecules(NamedTuple):
    """Records gene by gene, each place of a gene once; a cell for each, 0 outside."""

    ids: list[str]
    names: list[str]
    x: np.ndarray
    y: np.ndarray
    gene: np.ndarray
    count: np.ndarray
    cell: np.ndarray

    def expected(self, size):
        """Counts by (name of the square, ID of the gene)."""
        return self._sum([f"{x // size * size}_{y // size * size}" for x, y in zip(self.x, self.y, strict=True)])

    def expected_cells(self):
        return {key: n for key, n in self._sum(map(str, self.cell)).items() if key[0] != "0"}

    def _sum(self, spots):
        counts = {}
        for spot, gene, n in zip(spots, self.gene, self.count, strict=True):
            counts[spot, self.ids[gene]] = counts.get((spot, self.ids[gene]), 0) + int(n)
        return counts


def draw(*, n=3000, n_genes=12, side=130, seed=0):
    rng = np.random.default_rng(seed)
    flat = np.unique(np.column_stack([rng.integers(n_genes, size=n), rng.integers(side, size=(n, 2))]), axis=0)
    gene, x, y = flat.T
    return Molecules(
        ids=[f"ENSG{i:03d}" for i in range(n_genes)],
        names=["NA", "Twice", "Twice", *(f"Gene{i}" for i in range(3, n_genes))],
        x=x,
        y=y,
        gene=gene,
        count=rng.integers(1, 300, size=gene.size),
        cell=np.where((x % 40 < 30) & (y % 40 < 30), 1 + x // 40 + 10 * (y // 40), 0),
    )


def write_gef(path, molecules, *, bins=(1,), named=True, exon=True, count_type="<u2", **attributes):
    """Square-bin GEF; ``named`` is how genes are called since SAW 8: geneID and geneName."""
    with h5py.File(path, "w") as file:
        file.attrs["version"] = np.array([4 if named else 2], dtype="<u4")
        file.attrs["omics"] = np.array([b"Transcriptomics"], dtype="S32")
        for size in bins:
            group = file.create_group(f"geneExp/bin{size}")
            _write_bin(group, molecules, size, named=named, exon=exon, count_type=count_type)
            group["expression"].attrs.update(
                {
                    "minX": np.array([7000], dtype="<i4"),
                    "minY": np.array([9000], dtype="<i4"),
                    "maxExp": np.array([300], dtype="<u4"),
                    "resolution": np.array([500], dtype="<u4"),
                }
                | attributes
            )
            file[f"wholeExp/bin{size}"] = np.zeros((2, 2), dtype=[("MIDcount", "<u2"), ("genecount", "<u2")])
    return path


def _write_bin(group, molecules, size, *, named, exon, count_type):
    key = np.column_stack([molecules.gene, molecules.x // size * size, molecules.y // size * size])
    key, inverse = np.unique(key, axis=0, return_inverse=True)
    records = np.zeros(len(key), dtype=[("x", "<i4"), ("y", "<i4"), ("count", count_type if size == 1 else "<u4")])
    gene, records["x"], records["y"] = key.T
    records["count"] = np.bincount(inverse.ravel(), weights=molecules.count)
    n_of = np.bincount(gene, minlength=len(molecules.ids))
    texts = [("geneID", "S64"), ("geneName", "S64")] if named else [("gene", "S32")]
    genes = np.zeros(len(molecules.ids), dtype=[*texts, ("offset", "<u4"), ("count", "<u4")])
    genes[texts[0][0]] = molecules.ids
    if named:
        genes["geneName"] = molecules.names
    genes["offset"], genes["count"] = np.cumsum(n_of) - n_of, n_of
    group["expression"], group["gene"] = records, genes
    if exon:
        group["exon"] = (records["count"] // 2).astype("<u1")


def write_gem(
    path,
    molecules,
    *,
    count="MIDCount",
    cells=None,
    named=False,
    comments=("#OffsetX=7000", "#OffsetY=9000"),
    seed=None,
):
    """GEM; in the order of ``seed``, the molecules' own for None."""
    order = np.arange(molecules.x.size) if seed is None else np.random.default_rng(seed).permutation(molecules.x.size)
    columns = {"geneID": [molecules.ids[i] for i in molecules.gene[order]]}
    if named:
        columns["geneName"] = [molecules.names[i] for i in molecules.gene[order]]
    columns |= {"x": molecules.x[order], "y": molecules.y[order], count: molecules.count[order]}
    columns["ExonCount"] = molecules.count[order] // 2
    if cells:
        columns[cells] = molecules.cell[order]
    lines = [*comments, "\t".join(columns), *("\t".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    text = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def write_cell_gef(path, molecules, *, named=True):
    """Cell-bin GEF; the last cell has no counts."""
    cells = np.unique(molecules.cell[molecules.cell > 0])
    counts = {}
    for (cell, gene), n in molecules.expected_cells().items():
        counts.setdefault(int(cell), []).append((molecules.ids.index(gene), n))
    table = np.zeros(
        cells.size + 1,
        dtype=[
            *(("id", "<u4"), ("x", "<i4"), ("y", "<i4"), ("offset", "<u4"), ("geneCount", "<u2"), ("expCount", "<u2")),
            *(("dnbCount", "<u2"), ("area", "<u2"), ("cellTypeID", "<u2"), ("clusterID", "<u2")),
        ],
    )
    table["id"][:-1], table["id"][-1] = cells, cells.max() + 1
    table["x"], table["y"], table["area"], table["dnbCount"] = table["id"] % 10 * 40, table["id"] // 10 * 40, 900, 800
    table["geneCount"][:-1] = [len(counts[cell]) for cell in cells]
    table["offset"] = np.cumsum(table["geneCount"]) - table["geneCount"]
    values = np.array([pair for cell in cells for pair in counts[cell]], dtype=[("geneID", "<u4"), ("count", "<u2")])
    texts = [("geneID", "S64"), ("geneName", "S64")] if named else [("geneName", "S32")]
    genes = np.zeros(len(molecules.ids), dtype=[*texts, ("offset", "<u4"), ("cellCount", "<u4"), ("expCount", "<u4")])
    genes[texts[0][0]] = molecules.ids
    if named:
        genes["geneName"] = molecules.names
    with h5py.File(path, "w") as file:
        for name, value in {"version": 2, "resolution": 500, "offsetX": 7000, "offsetY": 9000}.items():
            file.attrs[name] = np.array([value], dtype="<i4")
        file["cellBin/cell"], file["cellBin/cellExp"], file["cellBin/gene"] = table, values, genes
        file["cellBin/cellBorder"] = np.zeros((table.size, 32, 2), dtype="<i2")
    return path


BARCODES = [f"AAAC{i:04d}-1" for i in range(20)]


def write_images(spatial, *, library="V1_Brain", matrix=None, seed=0):
    """The pictures of the tissue in the folder spatial, and the name of the run in the matrix. Returns them by size."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    made = {}
    for size, shape in (("hires", (60, 80, 3)), ("lowres", (18, 24, 3))):
        made[size] = rng.integers(0, 256, size=shape).astype(np.uint8)
        Image.fromarray(made[size]).save(spatial / f"tissue_{size}_image.png")
    factors = {"spot_diameter_fullres": 89.5, "tissue_hires_scalef": 0.17, "tissue_lowres_scalef": 0.051}
    (spatial / "scalefactors_json.json").write_text(json.dumps(factors | {"fiducial_diameter_fullres": 144.5}))
    if matrix is not None:
        with h5py.File(matrix, "r+") as file:
            file.attrs["library_ids"] = np.array([library.encode()])
            file.attrs["chemistry_description"] = "Spatial 3' v1"
            file.attrs["software_version"] = "spaceranger-2.1.0"
    return made


def write_space_ranger(outs, *, positions="tissue_positions.csv", seed=0):
    """Folder of outputs; every fifth spot is not under tissue. Returns counts (spots, genes) of all barcodes."""
    rng = np.random.default_rng(seed)
    counts = sp.csr_matrix(rng.poisson(0.8, size=(len(BARCODES), 6)).astype(np.int32))
    (outs / "spatial").mkdir(parents=True)
    with h5py.File(outs / "filtered_feature_bc_matrix.h5", "w") as file:
        group = file.create_group("matrix")
        group["barcodes"] = np.array(BARCODES, dtype="S20")
        group["data"], group["indices"], group["indptr"] = counts.data, counts.indices.astype("<i8"), counts.indptr
        group["shape"] = np.array(counts.shape[::-1], dtype="<i4")
        features = group.create_group("features")
        features["id"] = np.array([f"ENSG{i}" for i in range(6)], dtype="S20")
        features["name"] = np.array(["A", "B", "B", "C", "D", "Ab"], dtype="S20")
        features["feature_type"] = np.array([b"Gene Expression"] * 5 + [b"Antibody Capture"], dtype="S20")
        features["genome"] = np.array([b"GRCh38"] * 6)
    header = "barcode,in_tissue,array_row,array_col,pxl_row_in_fullres,pxl_col_in_fullres"
    rows = [f"{name},{int(i % 5 != 0)},{i // 4},{i % 4},{100 + i},{200 + 2 * i}" for i, name in enumerate(BARCODES)]
    rows = [*rows[::-1], "TTTT0000-1,0,77,77,1,1"]  # in another order, and with more than the matrix has
    if positions.endswith(".csv"):
        lines = rows if positions.endswith("list.csv") else [header, *rows]
        (outs / "spatial" / positions).write_text("\n".join(lines) + "\n")
    else:
        import pandas as pd

        table = pd.DataFrame([row.split(",") for row in rows], columns=header.split(","))
        table = table.astype(dict.fromkeys(table.columns[1:], float))
        table.to_parquet(outs / "spatial" / positions)
    factors = {"spot_diameter_fullres": 89.5, "tissue_hires_scalef": 0.17}
    (outs / "spatial" / "scalefactors_json.json").write_text(json.dumps(factors))
    return counts.toarray()


def as_dict(adata, ids="gene_ids"):
    """Counts by (name of the spot, ID of the gene)."""
    matrix = adata.X.tocoo()
    spots, genes = adata.obs_names.to_numpy(), adata.var[ids].to_numpy()
    return {(spots[i], genes[j]): int(n) for i, j, n in zip(matrix.row, matrix.col, matrix.data, strict=True)}
