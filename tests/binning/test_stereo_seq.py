"""GEF and GEM to AnnData: every count where it belongs, in either kind of file, however little may be held."""

from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from binning_samples import as_dict, draw, write_cell_gef, write_gef, write_gem

from spatialpdvi import InputError, bin_file
from spatialpdvi.binning import files, sample


def _bin(path, tmp_path, name="out.h5ad", **options):
    bin_file(path, tmp_path / name, **options)
    return ad.read_zarr(tmp_path / name) if name.endswith(".zarr") else ad.read_h5ad(tmp_path / name)


@pytest.fixture(params=["gef", "old gef", "gem", "gem.gz"])
def path(request, tmp_path, molecules):
    if request.param.endswith("gef"):
        return write_gef(tmp_path / "in.gef", molecules, named=request.param == "gef", exon=request.param == "gef")
    return write_gem(tmp_path / f"in.{request.param}", molecules, seed=3)


@pytest.mark.parametrize("size", [1, 7, 50])
def test_every_count_is_in_its_square(path, tmp_path, molecules, size):
    adata = _bin(path, tmp_path, bin_size=size)
    assert as_dict(adata) == molecules.expected(size)
    assert isinstance(adata.X, sp.csr_matrix)
    assert adata.X.dtype == np.int32
    assert adata.X.has_canonical_format
    corners = np.array([name.split("_") for name in adata.obs_names], dtype=int)
    assert (corners % size == 0).all()
    np.testing.assert_array_equal(adata.obsm["spatial"], corners + (size - 1) / 2)
    assert corners.tolist() == sorted(corners.tolist())
    facts = adata.uns["binning"]
    assert facts["bin_size"] == size
    assert facts["offset"].tolist() == [7000, 9000]
    assert facts["unit"] == "DNB"
    assert facts["source"] == path.name
    if path.suffix == ".gef":
        assert facts["resolution_nm"] == 500


def test_the_default_is_bin_50(path, tmp_path, molecules):
    assert as_dict(_bin(path, tmp_path)) == molecules.expected(50)


def test_genes_have_names_and_ids_and_one_called_na_is_no_gap(tmp_path, molecules):
    for made in (write_gef(tmp_path / "a.gef", molecules), write_gem(tmp_path / "a.gem", molecules, named=True)):
        var = _bin(made, tmp_path).var
        assert var["gene_ids"].tolist() == molecules.ids
        assert var["gene_names"].tolist() == molecules.names
        # two genes are called Twice: their IDs tell them apart
        assert var.index.tolist() == ["NA", "ENSG001", "ENSG002", *molecules.names[3:]]
    var = _bin(write_gef(tmp_path / "b.gef", molecules, named=False), tmp_path).var
    assert var.index.tolist() == var["gene_ids"].tolist() == molecules.ids
    assert "gene_names" not in var


@pytest.mark.slow
def test_little_memory_gives_the_same_bytes(tmp_path, monkeypatch):
    molecules = draw(n=20_000, n_genes=30, side=300, seed=1)
    made = [write_gef(tmp_path / "a.gef", molecules), write_gem(tmp_path / "a.gem.gz", molecules, seed=5)]
    wide = [_bin(path, tmp_path, bin_size=20) for path in made]
    monkeypatch.setattr(sample, "records_within", lambda _: 500)
    for path, before in zip(made, wide, strict=True):
        kept = []
        monkeypatch.setattr(files, "remove_folder", lambda folder, kept=kept: kept.extend(folder.glob("run*")))
        after = _bin(path, tmp_path, bin_size=20)
        assert len(kept) > 10
        np.testing.assert_array_equal(before.X.indptr, after.X.indptr)
        assert before.obs_names.equals(after.obs_names)
        # genes of a GEM are in the order in which they come: so they are here as well
        assert before.var_names.equals(after.var_names)
        np.testing.assert_array_equal(before.X.toarray(), after.X.toarray())
        assert as_dict(after) == molecules.expected(20)


def test_the_same_file_twice(path, tmp_path):
    for name in ("a.h5ad", "b.h5ad"):
        bin_file(path, tmp_path / name, bin_size=9)
    assert (tmp_path / "a.h5ad").read_bytes() == (tmp_path / "b.h5ad").read_bytes()
    assert not [entry for entry in tmp_path.iterdir() if entry.name.startswith(".spatialpdvi")]


def test_coarser_bins_of_the_file_are_used_where_they_fit(tmp_path, molecules):
    path = write_gef(tmp_path / "in.gef", molecules, bins=(1, 5, 50))
    with h5py.File(path, "r+") as file:
        del file["geneExp/bin1"]
    assert as_dict(_bin(path, tmp_path, bin_size=100)) == molecules.expected(100)
    assert as_dict(_bin(path, tmp_path, bin_size=15)) == molecules.expected(15)
    text = r"`bin_size` to be a multiple of a bin size that .* has \(5, 50\), found 7\. Give"
    with pytest.raises(InputError, match=text):
        _bin(path, tmp_path, bin_size=7)


def test_places_between_the_bins_of_the_file_are_refused(tmp_path, molecules):
    path = write_gef(tmp_path / "in.gef", molecules, bins=(50,))
    with h5py.File(path, "r+") as file:
        records = file["geneExp/bin50/expression"]
        records[3] = (51, 50, 2)
    text = r"places in /geneExp/bin50/expression of .* to be multiples of 50, found 51\."
    with pytest.raises(InputError, match=text):
        _bin(path, tmp_path, bin_size=100)


def test_names_of_columns_of_older_gems(tmp_path, molecules):
    for count in ("MIDCounts", "UMICount"):
        path = write_gem(tmp_path / "in.gem", molecules, count=count, comments=())
        adata = _bin(path, tmp_path)
        assert as_dict(adata) == molecules.expected(50)
        assert "offset" not in adata.uns["binning"]


def test_negative_places_have_squares_of_their_own(tmp_path):
    path = tmp_path / "in.gem"
    path.write_text("geneID\tx\ty\tMIDCount\nA\t-1\t0\t2\nA\t-10\t9\t1\nA\t0\t0\t4\n")
    adata = _bin(path, tmp_path, bin_size=10)
    assert as_dict(adata) == {("-10_0", "A"): 3, ("0_0", "A"): 4}
    assert adata.obsm["spatial"].tolist() == [[-5.5, 4.5], [4.5, 4.5]]


@pytest.mark.parametrize("comments", [(), ("#OffsetX=7000", "#OffsetY=9000")])
def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path, molecules, comments):
    path = write_gem(tmp_path / "in.gem", molecules, comments=comments)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    adata = _bin(path, tmp_path)
    assert as_dict(adata) == molecules.expected(50)
    assert adata.uns["binning"].get("offset", np.array([])).tolist() == ([7000, 9000] if comments else [])


def test_zeros_are_no_values_and_lines_of_windows_are_lines(tmp_path):
    path = tmp_path / "in.gem"
    path.write_bytes(b"#a\r\ngeneID\tx\ty\tMIDCount\r\nA\t1\t0\t2\r\nB\t1\t0\t0\r\nC\t70\t0\t0\r\n")
    adata = _bin(path, tmp_path)
    assert as_dict(adata) == {("0_0", "A"): 2}
    assert adata.n_vars == 3


def test_cells_of_a_cell_bin_gef(tmp_path, molecules, monkeypatch):
    for named in (True, False):
        path = write_cell_gef(tmp_path / "in.cellbin.gef", molecules, named=named)
        wide = _bin(path, tmp_path, cell_bin=True)
        assert as_dict(wide) == molecules.expected_cells()
        numbers = wide.obs_names.astype(int).to_numpy()
        np.testing.assert_array_equal(wide.obsm["spatial"], np.column_stack([numbers % 10 * 40, numbers // 10 * 40]))
        assert set(wide.obs["area"]) == {900}
        assert set(wide.obs["n_dnbs"]) == {800}
        assert wide.uns["binning"]["offset"].tolist() == [7000, 9000]
        assert wide.uns["binning"]["resolution_nm"] == 500
    monkeypatch.setattr(files, "records_within", lambda _: 40)
    narrow = _bin(path, tmp_path, cell_bin=True)
    np.testing.assert_array_equal(narrow.X.toarray(), wide.X.toarray())
    assert narrow.obs.equals(wide.obs)


def test_a_cell_in_which_all_counts_are_0_is_no_spot(tmp_path, molecules):
    path = write_cell_gef(tmp_path / "in.cellbin.gef", molecules)
    with h5py.File(path, "r+") as file:
        cell, values = file["cellBin/cell"][0], file["cellBin/cellExp"][:]
        values["count"][: int(cell["geneCount"]) + 1] = 0  # of the first cell, and the first gene of the second
        file["cellBin/cellExp"][:] = values
    adata = _bin(path, tmp_path, cell_bin=True)
    assert adata.X.data.min() > 0
    assert adata.X.nnz == np.count_nonzero(values["count"])
    assert str(cell["id"]) not in adata.obs_names


def test_cells_may_be_those_of_a_gem_of_coarser_bins(tmp_path, molecules):
    path = write_gem(tmp_path / "in.gem", molecules, cells="CellID", comments=("#BinSize=50",))
    assert as_dict(_bin(path, tmp_path, cell_bin=True)) == molecules.expected_cells()


@pytest.mark.parametrize("column", ["CellID", "cell", "label"])
def test_cells_of_a_gem_lie_at_the_mean_of_their_molecules(tmp_path, molecules, monkeypatch, column):
    path = write_gem(tmp_path / "in.gem.gz", molecules, cells=column, seed=2)
    monkeypatch.setattr(sample, "records_within", lambda _: 400)
    adata = _bin(path, tmp_path, cell_bin=True)
    assert as_dict(adata) == molecules.expected_cells()
    for cell, place in zip(adata.obs_names, adata.obsm["spatial"], strict=True):
        own = molecules.cell == int(cell)
        mean = [np.average(axis[own], weights=molecules.count[own]) for axis in (molecules.x, molecules.y)]
        np.testing.assert_allclose(place, mean, rtol=1e-15)
    assert "bin_size" not in adata.uns["binning"]


@pytest.mark.cli
def test_a_zarr_store_has_the_same(tmp_path, molecules, monkeypatch):
    path = write_gef(tmp_path / "in.gef", molecules)
    one = _bin(path, tmp_path, bin_size=10)
    monkeypatch.setattr(sample, "records_within", lambda _: 1500)
    for _ in range(2):  # the second replaces the first
        other = _bin(path, tmp_path, "out.zarr", bin_size=10)
    np.testing.assert_array_equal(one.X.toarray(), other.X.toarray())
    np.testing.assert_array_equal(one.obsm["spatial"], other.obsm["spatial"])
    assert one.obs_names.equals(other.obs_names)
    assert one.var.equals(other.var)
    assert other.uns["binning"]["bin_size"] == 10


def test_all_that_is_written_is_documented(tmp_path, molecules):
    page = (Path(__file__).parents[2] / "docs" / "outputs.md").read_text()
    for path, options in (
        (write_gef(tmp_path / "in.gef", molecules), {}),
        (write_gem(tmp_path / "in.gem", molecules, comments=("#Stereo-seqChip=SS2",)), {}),
        (write_cell_gef(tmp_path / "in.cellbin.gef", molecules), {"cell_bin": True}),
    ):
        adata = _bin(path, tmp_path, **options)
        assert list(adata.uns) == ["binning"]
        assert list(adata.obsm) == ["spatial"]
        for name in (*adata.uns["binning"], *adata.obs):
            assert f"`{name}`" in page, name


def test_a_resolution_that_is_not_known_is_not_written(tmp_path, molecules):
    written = _bin(write_gef(tmp_path / "in.gef", molecules, resolution=0), tmp_path, bin_size=20)
    assert "resolution_nm" not in written.uns["binning"]
