"""Folders of Space Ranger to AnnData: spots under tissue, places joined by barcode."""

import json
import sys
import warnings

import anndata as ad
import h5py
import numpy as np
import pytest
from binning_samples import BARCODES, write_images, write_space_ranger
from PIL import Image

from spatialpdvi import InputError, bin_file


def _check(path, counts):
    adata = ad.read_h5ad(path)
    kept = [i for i in range(len(BARCODES)) if i % 5]
    assert adata.obs_names.tolist() == [BARCODES[i] for i in kept]
    np.testing.assert_array_equal(adata.X.toarray(), counts[kept, :5])  # without the antibody
    assert adata.X.dtype == np.int32
    assert adata.var_names.tolist() == ["A", "ENSG1", "ENSG2", "C", "D"]
    assert adata.var["gene_ids"].tolist() == [f"ENSG{i}" for i in range(5)]
    np.testing.assert_array_equal(adata.obsm["spatial"], [[200 + 2 * i, 100 + i] for i in kept])
    assert adata.obs["array_col"].tolist() == [i % 4 for i in kept]
    assert adata.uns["binning"]["unit"] == "pixel"
    assert adata.uns["binning"]["scale_factors"]["spot_diameter_fullres"] == 89.5
    return adata


@pytest.mark.parametrize("positions", ["tissue_positions.csv", "tissue_positions_list.csv"])
def test_visium(tmp_path, positions):
    counts = write_space_ranger(tmp_path / "outs", positions=positions)
    bin_file(tmp_path / "outs", tmp_path / "out.h5ad")
    _check(tmp_path / "out.h5ad", counts)
    table = tmp_path / "outs" / "spatial" / positions
    table.write_bytes(b"\xef\xbb\xbf" + table.read_bytes())  # as Excel saves it
    bin_file(tmp_path / "outs", tmp_path / "out.h5ad")
    _check(tmp_path / "out.h5ad", counts)


def test_a_matrix_with_the_name_of_its_sample_in_front(tmp_path):
    counts = write_space_ranger(tmp_path / "outs")
    matrix = tmp_path / "outs" / "filtered_feature_bc_matrix.h5"
    matrix.rename(matrix.with_name("V1_Brain_filtered_feature_bc_matrix.h5"))
    bin_file(tmp_path / "outs", tmp_path / "out.h5ad")
    _check(tmp_path / "out.h5ad", counts)


def test_visium_hd(tmp_path):
    """Its positions as the table that older tools make of the parquet file."""
    made = {
        side: write_space_ranger(tmp_path / "outs" / "binned_outputs" / f"square_{side:03d}um", seed=side)
        for side in (2, 8, 16)
    }
    for asked, side in ((None, 8), (16, 16), (2, 2)):
        bin_file(tmp_path / "outs", tmp_path / "out.h5ad", bin_size=asked)
        assert _check(tmp_path / "out.h5ad", made[side]).uns["binning"]["bin_size_um"] == side
    bin_file(tmp_path / "outs" / "binned_outputs" / "square_016um", tmp_path / "out.h5ad")
    assert _check(tmp_path / "out.h5ad", made[16]).uns["binning"]["bin_size_um"] == 16
    with pytest.raises(InputError, match=r"in micrometres \(2, 8, 16\), found 50\. Give one of these\."):
        bin_file(tmp_path / "outs", tmp_path / "out.h5ad", bin_size=50)


def test_positions_in_parquet(tmp_path):
    pytest.importorskip("pyarrow", reason="pip install 'spatialpdvi[visium-hd]'")
    counts = write_space_ranger(tmp_path / "square_008um", positions="tissue_positions.parquet")
    bin_file(tmp_path / "square_008um", tmp_path / "out.h5ad")
    _check(tmp_path / "out.h5ad", counts)


def test_parquet_without_pyarrow_is_one_sentence(tmp_path, monkeypatch):
    write_space_ranger(tmp_path / "square_008um")
    spatial = tmp_path / "square_008um" / "spatial"
    (spatial / "tissue_positions.csv").rename(spatial / "tissue_positions.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"is not installed\. Install it with: pip install 'spatialpdvi\[vis"):
        bin_file(tmp_path / "square_008um", tmp_path / "out.h5ad")


def _without_barcode(outs):
    path = outs / "spatial" / "tissue_positions.csv"
    path.write_text("\n".join(line for line in path.read_text().splitlines() if "0003-1" not in line))


def _twice(outs):
    path = outs / "spatial" / "tissue_positions.csv"
    path.write_text(path.read_text() + path.read_text().splitlines()[3] + "\n")


def _nowhere(outs):
    path = outs / "spatial" / "tissue_positions.csv"
    path.write_text(path.read_text().replace(",101,", ",,"))


def _no_tissue(outs):
    path = outs / "spatial" / "tissue_positions.csv"
    path.write_text(path.read_text().replace("-1,1,", "-1,0,"))


def _no_column(outs):
    path = outs / "spatial" / "tissue_positions.csv"
    path.write_text(path.read_text().replace("in_tissue", "inside"))


def _of_matrix(name, value):
    def change(outs):
        with h5py.File(outs / "filtered_feature_bc_matrix.h5", "r+") as file:
            file[f"matrix/{name}"][3] = value

    return change


def _cut(outs):
    path = outs / "filtered_feature_bc_matrix.h5"
    path.write_bytes(path.read_bytes()[:3000])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_without_barcode, r"a place for every barcode .* found 1 of 20 without \(first: 'AAAC0003-1'\)\. Take"),
        (_twice, r"numbers for every barcode .* found a barcode twice\. Take the file of Space Ranger\.$"),
        (
            _nowhere,
            r"numbers for every barcode .* found values that are not numbers\. Take the file of Space Ranger\.$",
        ),
        (_no_tissue, r"spots under tissue in .* found none\. Check in_tissue of its positions\.$"),
        (_no_column, r"found no in_tissue\. Take the file of Space Ranger\.$"),
        (_of_matrix("indices", -1), r"complete matrix of Space Ranger, found it truncated or damaged"),
        (_of_matrix("indices", 10**6), r"complete matrix of Space Ranger, found it truncated or damaged"),
        (_of_matrix("indptr", 10**6), r"complete matrix of Space Ranger, found it truncated or damaged"),
        (_of_matrix("barcodes", b"A\0B"), r"names of spots to be texts, found a null character"),
        (_cut, r"to be a complete matrix of Space Ranger, found it truncated or damaged"),
        (lambda outs: (outs / "filtered_feature_bc_matrix.h5").unlink(), r"with one filtered_.*\.h5, found none in"),
        (lambda outs: (outs / "spatial" / "tissue_positions.csv").unlink(), r"Expected one of tissue_positions.parqu"),
        (lambda outs: (outs / "spatial" / "scalefactors_json.json").write_text("{"), r"a complete JSON file, found"),
    ],
)
def test_what_is_off_is_one_sentence(tmp_path, damage, said):
    write_space_ranger(tmp_path / "outs")
    damage(tmp_path / "outs")
    with pytest.raises(InputError, match=said):
        bin_file(tmp_path / "outs", tmp_path / "out.h5ad")
    assert [entry.name for entry in tmp_path.iterdir()] == ["outs"]


def test_options_that_do_not_fit(tmp_path):
    write_space_ranger(tmp_path / "outs")
    with pytest.raises(
        InputError, match=r"for `bin_size=50`, found none\. Leave out `bin_size`: spots of Visium have a fixed size"
    ):
        bin_file(tmp_path / "outs", tmp_path / "out.h5ad", bin_size=50)
    with pytest.raises(InputError, match=r"for `cell_bin`, found the folder .* Leave out `cell_bin`\.$"):
        bin_file(tmp_path / "outs", tmp_path / "out.h5ad", cell_bin=True)


def _with_images(outs, **options):
    counts = write_space_ranger(outs, **options)
    return counts, write_images(outs / "spatial", matrix=outs / "filtered_feature_bc_matrix.h5")


@pytest.mark.parametrize("ending", ["h5ad", "zarr"])
def test_the_image_is_where_scanpy_and_squidpy_look_for_it(tmp_path, ending):
    counts, images = _with_images(tmp_path / "outs")
    bin_file(tmp_path / "outs", tmp_path / f"out.{ending}")
    adata = ad.read_zarr(tmp_path / "out.zarr") if ending == "zarr" else _check(tmp_path / "out.h5ad", counts)
    (name,) = adata.uns["spatial"]
    library = adata.uns["spatial"][name]
    assert name == "V1_Brain"
    assert set(library) == {"images", "scalefactors", "metadata"}
    assert library["metadata"] == {"chemistry_description": "Spatial 3' v1", "software_version": "spaceranger-2.1.0"}
    assert library["scalefactors"] == {
        "fiducial_diameter_fullres": 144.5,
        "spot_diameter_fullres": 89.5,
        "tissue_hires_scalef": 0.17,
        "tissue_lowres_scalef": 0.051,
    }
    for size, pixels in images.items():
        np.testing.assert_array_equal(library["images"][size], pixels)


@pytest.mark.slow
def test_it_is_what_squidpy_reads(tmp_path):
    read = pytest.importorskip("squidpy").read
    _with_images(tmp_path / "outs")
    bin_file(tmp_path / "outs", tmp_path / "out.h5ad")
    ours = ad.read_h5ad(tmp_path / "out.h5ad")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = read.visium(tmp_path / "outs", load_images=True)[ours.obs_names]
    np.testing.assert_array_equal(ours.obsm["spatial"], theirs.obsm["spatial"])
    found, expected = (adata.uns["spatial"]["V1_Brain"] for adata in (ours, theirs))
    assert {key: set(value) for key, value in found.items()} == {key: set(value) for key, value in expected.items()}
    assert found["scalefactors"] == expected["scalefactors"]
    assert found["metadata"] == expected["metadata"]
    for size, pixels in expected["images"].items():
        np.testing.assert_array_equal(found["images"][size], pixels)


def test_bins_of_visium_hd_have_their_own_scale_and_the_image_of_the_run(tmp_path):
    bins = tmp_path / "run" / "outs" / "binned_outputs" / "square_008um"
    write_space_ranger(bins)
    factors = {"spot_diameter_fullres": 29.2, "tissue_hires_scalef": 0.1, "tissue_lowres_scalef": 0.01}
    (bins / "spatial" / "scalefactors_json.json").write_text(json.dumps(factors | {"bin_size_um": 8.0}))
    (tmp_path / "run" / "outs" / "spatial").mkdir()
    images = write_images(tmp_path / "run" / "outs" / "spatial")
    bin_file(tmp_path / "run" / "outs", tmp_path / "out.h5ad")
    library = ad.read_h5ad(tmp_path / "out.h5ad").uns["spatial"]["run"]  # the matrix names no library
    assert library["scalefactors"]["spot_diameter_fullres"] == 29.2
    np.testing.assert_array_equal(library["images"]["lowres"], images["lowres"])
    own = write_images(bins / "spatial", seed=1)
    bin_file(bins, tmp_path / "out.h5ad")
    library = ad.read_h5ad(tmp_path / "out.h5ad").uns["spatial"]["run"]
    np.testing.assert_array_equal(library["images"]["hires"], own["hires"])


def test_names_of_libraries_that_are_no_keys(tmp_path):
    outs = tmp_path / "outs"
    write_space_ranger(outs)
    write_images(outs / "spatial", matrix=outs / "filtered_feature_bc_matrix.h5", library="a/b.c/")
    bin_file(outs, tmp_path / "out.h5ad")
    assert list(ad.read_h5ad(tmp_path / "out.h5ad").uns["spatial"]) == ["a_b.c_"]


def test_grey_and_transparent_pictures_have_three_channels(tmp_path):
    _with_images(tmp_path / "outs")
    spatial = tmp_path / "outs" / "spatial"
    grey = np.arange(1200, dtype=np.uint8).reshape(30, 40)
    Image.fromarray(grey).save(spatial / "tissue_hires_image.png")
    Image.fromarray(np.dstack([grey, grey, grey, grey])).save(spatial / "tissue_lowres_image.png")
    bin_file(tmp_path / "outs", tmp_path / "out.h5ad")
    for pixels in ad.read_h5ad(tmp_path / "out.h5ad").uns["spatial"]["V1_Brain"]["images"].values():
        np.testing.assert_array_equal(pixels, np.dstack([grey] * 3))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda spatial: (spatial / "tissue_hires_image.png").write_bytes(b"\x89PNG no"), "to be a complete picture"),
        (
            lambda spatial: (spatial / "scalefactors_json.json").unlink(),
            "a number above 0 under 'tissue_hires_scalef', 'tissue_lowres_scalef' in .* to place the image, found none",
        ),
        (
            lambda spatial: (spatial / "scalefactors_json.json").write_text('{"tissue_hires_scalef": 0}'),
            "a number above 0 under 'tissue_hires_scalef', 'tissue_lowres_scalef'",
        ),
    ],
)
def test_an_image_that_cannot_be_placed_is_one_sentence(tmp_path, damage, said):
    _with_images(tmp_path / "outs")
    damage(tmp_path / "outs" / "spatial")
    with pytest.raises(InputError, match=said):
        bin_file(tmp_path / "outs", tmp_path / "out.h5ad")
    assert not (tmp_path / "out.h5ad").exists()
