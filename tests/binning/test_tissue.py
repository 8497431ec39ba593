"""Masks and registered images of Stereo-seq: which spots are on the tissue, and where the image lies."""

import importlib.util

import anndata as ad
import numpy as np
import pytest
import tifffile
from binning_samples import draw, write_cell_gef, write_gef, write_gem, write_images, write_space_ranger

from spatialpdvi import InputError, InputWarning, bin_file, pl
from spatialpdvi.binning.images import expect_inside
from spatialpdvi.binning.tiff import Tiff
from spatialpdvi.binning.tissue import TissueMask
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.section.background import read_mask

SIDE = 130  # of the chip of `draw`, in DNBs
MOLECULES = draw()


def _mask(value=255):
    """A disc; x and y differ, so that a swap would show."""
    y, x = np.mgrid[:SIDE, :SIDE]
    return np.where((x - 70) ** 2 + 2 * (y - 40) ** 2 < 45**2, value, 0).astype(np.uint8)


def _save(path, image, **settings):
    tifffile.imwrite(path, image, **settings)
    return path


WAYS = {
    "mapped": {},
    "strips": {"compression": "deflate", "rowsperstrip": 7},
    "tiles": {"compression": "lzw", "tile": (32, 48)},
    "one piece": {"compression": "zlib", "rowsperstrip": SIDE},
}


def _expected(mask, corners, size, shift=(0, 0)):
    """At least half of the DNBs of the square that lie within the mask, counted one by one."""
    found = []
    for a, b in corners:
        rows = slice(max(0, b - shift[1]), max(0, b + size - shift[1]))
        columns = slice(max(0, a - shift[0]), max(0, a + size - shift[0]))
        found.append((mask[rows, columns] > 0).mean() >= 0.5)
    return np.array(found)


def _corners(adata):
    return [tuple(map(int, name.split("_"))) for name in adata.obs_names]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [1, 3, 20])
def test_squares_of_which_half_is_tissue(tmp_path, way, size):
    gef = write_gef(tmp_path / "SN.tissue.gef", MOLECULES)
    mask = _save(tmp_path / "SN_tissue_cut.tif", _mask(), **WAYS[way])
    bin_file(gef, tmp_path / "out.h5ad", bin_size=size, tissue=mask)
    adata = ad.read_h5ad(tmp_path / "out.h5ad")
    assert adata.obs["in_tissue"].dtype == bool
    expected = _expected(_mask(), _corners(adata), size)
    np.testing.assert_array_equal(adata.obs["in_tissue"], expected)
    assert 0.1 < expected.mean() < 0.6
    assert adata.uns["binning"]["tissue"] == "SN_tissue_cut.tif"
    np.testing.assert_array_equal(read_mask(AnnDataSource(adata), "in_tissue"), expected)
    bin_file(gef, tmp_path / "all.h5ad", bin_size=size)
    whole = ad.read_h5ad(tmp_path / "all.h5ad")
    assert whole.obs_names.tolist() == adata.obs_names.tolist()  # none is dropped
    assert (whole.X != adata.X).nnz == 0


@pytest.mark.parametrize(("shift", "tissue", "edge"), [(0, slice(123, None), 120), (1010, slice(7), 1000)])
def test_a_square_that_reaches_beyond_the_mask_is_judged_by_its_part_within(tmp_path, shift, tissue, edge):
    """Squares at the edge have ten of their twenty rows or columns within it, of which seven are tissue."""
    mask = np.zeros((SIDE, SIDE), dtype=np.uint8)
    mask[:, tissue] = mask[tissue] = 1
    gem = write_gem(tmp_path / "SN.gem", MOLECULES._replace(x=MOLECULES.x + shift, y=MOLECULES.y + shift))
    bin_file(gem, tmp_path / "out.h5ad", bin_size=20, tissue=_save(tmp_path / "mask.tif", mask))
    adata = ad.read_h5ad(tmp_path / "out.h5ad")
    assert adata.obs["in_tissue"].tolist() == [edge in corner for corner in _corners(adata)]
    assert adata.obs["in_tissue"].any()


def test_a_square_of_which_exactly_half_is_tissue_is_on_it(tmp_path):
    mask = np.ones((SIDE, SIDE), dtype=np.uint8)
    mask[:, :10] = 0
    gef = write_gef(tmp_path / "SN.gef", MOLECULES)
    bin_file(gef, tmp_path / "out.h5ad", bin_size=20, tissue=_save(tmp_path / "mask.tif", mask))
    assert ad.read_h5ad(tmp_path / "out.h5ad").obs["in_tissue"].all()


def test_one_spot_in_a_hundred_may_lie_outside():
    expect_inside(2, 200, "the image")
    with pytest.raises(InputError, match=r"spots within the image, .* found 3 of 200 outside"):
        expect_inside(3, 200, "the image")


@pytest.mark.parametrize("ending", ["gem", "gem.gz"])
def test_a_gem_whose_places_do_not_begin_at_zero(tmp_path, ending):
    """A mask as large as the records reach begins at the first of them, any other one at zero."""
    far = MOLECULES._replace(x=MOLECULES.x + 1000, y=MOLECULES.y + 503)
    gem = write_gem(tmp_path / f"SN.{ending}", far, seed=1)
    mask = _save(tmp_path / "mask.tif", _mask(1))
    bin_file(gem, tmp_path / "out.zarr", bin_size=20, tissue=mask)
    adata = ad.read_zarr(tmp_path / "out.zarr")
    expected = _expected(_mask(), _corners(adata), 20, shift=(1000, 503))
    np.testing.assert_array_equal(adata.obs["in_tissue"], expected)
    whole = np.zeros((700, 1200), dtype=np.uint8)
    whole[503 : 503 + SIDE, 1000 : 1000 + SIDE] = _mask()
    bin_file(gem, tmp_path / "out.h5ad", bin_size=20, tissue=_save(tmp_path / "whole.tif", whole))
    again = ad.read_h5ad(tmp_path / "out.h5ad").obs["in_tissue"]
    np.testing.assert_array_equal(again, _expected(whole, _corners(adata), 20))
    bare = write_gem(tmp_path / f"bare.{ending}", far, comments=())
    with pytest.warns(
        InputWarning, match=r"'whole.tif' is taken as the DNB \(0, 0\)\. The records begin at \(1,000, 503"
    ):
        bin_file(bare, tmp_path / "bare.h5ad", bin_size=20, tissue=tmp_path / "whole.tif")
    np.testing.assert_array_equal(ad.read_h5ad(tmp_path / "bare.h5ad").obs["in_tissue"], again)
    with pytest.raises(InputError, match=r"found none\. Check that it belongs|of which a pixel is a DNB, found"):
        bin_file(gem, tmp_path / "no.h5ad", bin_size=20, tissue=_save(tmp_path / "small.tif", _mask()[:99]))
    assert not (tmp_path / "no.h5ad").exists()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shift", [(-7, -41), (-1003, 11), (5, -500)])
@pytest.mark.parametrize("size", [1, 3, 20])
def test_a_gem_with_negative_places(tmp_path, way, shift, size):
    far = MOLECULES._replace(x=MOLECULES.x + shift[0], y=MOLECULES.y + shift[1])
    gem = write_gem(tmp_path / "SN.gem", far)
    mask = _save(tmp_path / "mask.tif", _mask(), **WAYS[way])
    bin_file(gem, tmp_path / "out.h5ad", bin_size=size, tissue=mask)
    adata = ad.read_h5ad(tmp_path / "out.h5ad")
    expected = _expected(_mask(), _corners(adata), size, shift=shift)
    np.testing.assert_array_equal(adata.obs["in_tissue"], expected)
    assert 0.1 < expected.mean() < 0.6


@pytest.mark.parametrize("way", WAYS)
def test_cells_at_negative_places(tmp_path, way):
    far = MOLECULES._replace(x=MOLECULES.x - 43, y=MOLECULES.y - 71)
    gem = write_gem(tmp_path / "SN.gem", far, cells="CellID")
    bin_file(gem, tmp_path / "out.h5ad", cell_bin=True, tissue=_save(tmp_path / "mask.tif", _mask(), **WAYS[way]))
    adata = ad.read_h5ad(tmp_path / "out.h5ad")
    x, y = np.floor(adata.obsm["spatial"] + 0.5).astype(int).T
    np.testing.assert_array_equal(adata.obs["in_tissue"], _mask()[y + 71, x + 43] > 0)
    assert x.min() < 0
    assert 0 < adata.obs["in_tissue"].sum() < adata.n_obs


@pytest.mark.parametrize("way", WAYS)
def test_cells_whose_centre_is_on_the_tissue(tmp_path, way):
    whole = np.pad(_mask(), ((0, 70), (0, 70)))
    mask = _save(tmp_path / "mask.tif", whole, **WAYS[way])
    gem = write_gem(tmp_path / "SN.gem", MOLECULES, cells="CellID")
    for path in (gem, write_cell_gef(tmp_path / "SN.cellbin.gef", MOLECULES)):
        bin_file(path, tmp_path / "out.h5ad", cell_bin=True, tissue=mask)
        adata = ad.read_h5ad(tmp_path / "out.h5ad")
        x, y = np.floor(adata.obsm["spatial"] + 0.5).astype(int).T
        np.testing.assert_array_equal(adata.obs["in_tissue"], whole[y, x] > 0)
        assert 0 < adata.obs["in_tissue"].sum() < adata.n_obs


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (np.arange(SIDE * SIDE).reshape(SIDE, SIDE).astype(np.uint16), "a mask of 0 and one other value, found values"),
        (np.zeros((SIDE, SIDE), dtype=np.uint8), "tissue in the mask 'mask.tif', found 0 everywhere"),
        (np.zeros((SIDE, SIDE, 3), dtype=np.uint8), "a mask with one channel, found 3 channels"),
        (
            np.zeros((4, SIDE, SIDE), dtype=np.uint8),
            "to be one image of 8 or 16 bits, grey or in colours, found 4 pages",
        ),
        (np.zeros((SIDE, SIDE), dtype=np.float32), "found pixels of type float32"),
        (np.eye(SIDE, dtype=np.uint8)[:50], "spots within the mask 'mask.tif', of which a pixel is a DNB|found none"),
    ],
)
def test_what_is_no_mask_of_the_sample(tmp_path, image, said):
    gef = write_gef(tmp_path / "SN.gef", MOLECULES)
    settings = {"photometric": "minisblack"} if image.shape[0] == 4 else {}
    mask = _save(tmp_path / "mask.tif", image, **settings)
    with pytest.raises(InputError, match=said):
        bin_file(gef, tmp_path / "out.h5ad", bin_size=20, tissue=mask)
    assert not (tmp_path / "out.h5ad").exists()


@pytest.mark.parametrize("given", ["image", "tissue"])
def test_files_that_cannot_be_read(tmp_path, given, monkeypatch):
    gef = write_gef(tmp_path / "SN.gef", MOLECULES)
    good = _save(tmp_path / "good.tif", _mask(), compression="deflate", rowsperstrip=10)
    (tmp_path / "text.tif").write_text("no image")
    (tmp_path / "empty.tif").touch()
    cut = tmp_path / "cut.tif"
    cut.write_bytes(good.read_bytes()[:-300])
    damaged = bytearray(good.read_bytes())
    damaged[8:200] = bytes(192)
    (tmp_path / "damaged.tif").write_bytes(damaged)
    for name, said in (
        ("none.tif", "no such file"),
        ("text.tif", "found another kind of file. Name a TIFF of SAW"),
        ("empty.tif", "found an empty file"),
        ("cut.tif", "truncated or damaged"),
        ("damaged.tif", "truncated or damaged|pixels of an unknown type"),
    ):
        with pytest.raises(InputError, match=said):
            bin_file(gef, tmp_path / "out.h5ad", **{given: tmp_path / name})
    output = good.rename(tmp_path / "good.h5ad")  # whatever its ending, it is a TIFF
    with pytest.raises(InputError, match="another file than"):
        bin_file(gef, output, **{given: output})
    good = output.rename(good)
    find = importlib.util.find_spec
    monkeypatch.setattr("spatialpdvi.binning.tiff.find_spec", lambda name: None if name == "tifffile" else find(name))
    with pytest.raises(InputError, match=r"not installed\. Install them with: pip install 'spatialpdvi\[images\]'"):
        bin_file(gef, tmp_path / "out.h5ad", **{given: good})
    assert not (tmp_path / "out.h5ad").exists()


def test_pieces_that_memory_cannot_hold_are_refused_and_others_bounded(tmp_path):
    image = np.zeros((3000, 3000), dtype=np.uint8)
    path = _save(tmp_path / "a.tif", image, compression="deflate", rowsperstrip=3000)
    with pytest.raises(InputError, match=r"pieces of 0\.009 GB\. Give `memory='1GB'`, or save it in tiles\."):
        Tiff(path, memory=20_000_000, given="image")
    for settings in ({}, {"compression": "deflate", "tile": (256, 256)}):
        tiff = Tiff(_save(tmp_path / "b.tif", image, **settings), memory=20_000_000, given="image")
        sizes = [piece.pixels.nbytes for piece in tiff.pieces()]
        assert sum(sizes) == image.nbytes
        assert max(sizes) <= 2_500_000


class TestImage:
    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("kind", ["grey", "16 bits", "colours"])
    def test_it_lies_under_the_spots(self, tmp_path, way, kind):
        gef = write_gef(tmp_path / "SN.raw.gef", MOLECULES)
        image = _mask(200) if kind != "16 bits" else _mask(1).astype(np.uint16) * 5000
        if kind == "colours":
            image = np.dstack([image, image // 2, 0 * image])
        path = _save(tmp_path / "SN_regist.tif", image, **WAYS[way])
        bin_file(gef, tmp_path / "out.h5ad", bin_size=10, image=path, tissue=_save(tmp_path / "m.tif", _mask()))
        adata = ad.read_h5ad(tmp_path / "out.h5ad")
        library = adata.uns["spatial"]["SN"]
        factors = {"tissue_hires_scalef": 1.0, "tissue_lowres_scalef": 1.0, "spot_diameter_fullres": 10.0}
        assert library["scalefactors"] == factors
        assert library["metadata"] == {"source_image_path": "SN_regist.tif"}
        hires = library["images"]["hires"]
        assert hires.shape == (SIDE, SIDE, 3)
        bright = 255 if kind == "16 bits" else 200
        expected = np.dstack([_mask(bright)] * 3)
        if kind == "colours":
            expected = image
        np.testing.assert_array_equal(hires, expected)
        assert adata.uns["binning"]["image"] == "SN_regist.tif"

    @pytest.mark.parametrize("way", ["mapped", "tiles"])
    def test_a_large_one_is_averaged(self, tmp_path, monkeypatch, way):
        monkeypatch.setattr("spatialpdvi.binning.tissue._HIRES", 40)
        monkeypatch.setattr("spatialpdvi.binning.tissue._LOWRES", 20)
        rng = np.random.default_rng(0)
        image = rng.integers(0, 256, size=(SIDE, SIDE - 1)).astype(np.uint8)
        path = _save(tmp_path / "r.tif", image, **WAYS[way])
        gef = write_gef(tmp_path / "SN.gef", MOLECULES)
        bin_file(gef, tmp_path / "out.h5ad", bin_size=10, image=path)
        library = ad.read_h5ad(tmp_path / "out.h5ad").uns["spatial"]["SN"]
        assert library["scalefactors"]["tissue_hires_scalef"] == pytest.approx(1 / 3)
        assert library["scalefactors"]["tissue_lowres_scalef"] == pytest.approx(1 / 6)
        hires = library["images"]["hires"]
        assert hires.shape == (44, 43, 3)
        for row, column in ((0, 0), (7, 20), (43, 42)):
            block = image[3 * row : 3 * row + 3, 3 * column : 3 * column + 3]
            assert hires[row, column, 0] == np.rint(block.mean())
        assert library["images"]["lowres"].shape == (22, 22, 3)

    def test_the_brightest_of_16_bits_is_white_however_few_pixels_are_lit(self, tmp_path):
        image = np.zeros((SIDE, SIDE), dtype=np.uint16)
        image[5, :4] = 1000, 5000, 5000, 5000
        gef = write_gef(tmp_path / "SN.gef", MOLECULES)
        bin_file(gef, tmp_path / "out.h5ad", bin_size=10, image=_save(tmp_path / "r.tif", image))
        hires = ad.read_h5ad(tmp_path / "out.h5ad").uns["spatial"]["SN"]["images"]["hires"]
        assert hires[5, :5, 0].tolist() == [51, 255, 255, 255, 0]

    def test_squares_may_end_beyond_it(self, tmp_path):
        gef = write_gef(tmp_path / "SN.gef", MOLECULES)
        bin_file(gef, tmp_path / "out.h5ad", bin_size=100, image=_save(tmp_path / "r.tif", _mask(200)))
        adata = ad.read_h5ad(tmp_path / "out.h5ad")
        assert adata.obsm["spatial"].max() == 149.5 > SIDE
        assert adata.uns["spatial"]["SN"]["images"]["hires"].shape == (SIDE, SIDE, 3)

    def test_a_gem_with_an_offset_and_cells(self, tmp_path):
        far = MOLECULES._replace(x=MOLECULES.x + 40, y=MOLECULES.y + 7)
        gem = write_gem(tmp_path / "SN.gem", far, cells="CellID")
        bin_file(gem, tmp_path / "out.h5ad", cell_bin=True, image=_save(tmp_path / "r.tif", _mask(200)))
        adata = ad.read_h5ad(tmp_path / "out.h5ad")
        library = adata.uns["spatial"]["SN"]
        np.testing.assert_array_equal(library["images"]["hires"][7:, 40:, 0], _mask(200))
        assert library["images"]["hires"].shape == (SIDE + 7, SIDE + 40, 3)
        assert 25 < library["scalefactors"]["spot_diameter_fullres"] < 45  # a cell each 40 DNBs

    def test_one_that_begins_below_zero(self, tmp_path):
        """A pixel of ``uns['spatial']`` is a place times a factor, so that none can lie at negative places."""
        far = MOLECULES._replace(x=MOLECULES.x - 40, y=MOLECULES.y + 7)
        gem = write_gem(tmp_path / "SN.gem", far)
        said = (
            r"in a GEM for `image`, as no pixel .*, found \(-40, 7\) as the first\. "
            r"Add 40 to x and 0 to y of all its records, or leave out `image`\."
        )
        with pytest.raises(InputError, match=said):
            bin_file(gem, tmp_path / "out.h5ad", bin_size=10, image=_save(tmp_path / "r.tif", _mask(200)))
        assert not (tmp_path / "out.h5ad").exists()

    def test_it_is_drawn(self, tmp_path):
        gef = write_gef(tmp_path / "SN.gef", MOLECULES)
        bin_file(gef, tmp_path / "out.h5ad", bin_size=10, image=_save(tmp_path / "r.tif", _mask(200)))
        adata = ad.read_h5ad(tmp_path / "out.h5ad")
        adata.obs["pdvi_domain"] = adata.obs_names.str.endswith("0").astype(str)
        adata.obs["pdvi_domain"] = adata.obs["pdvi_domain"].astype("category")
        adata.obs["pdvi_confidence"] = 0.9
        trace = {"epoch": np.arange(2), "neg_elbo": np.arange(2.0)}
        adata.uns["pdvi"] = {"params": {}, "scores": {}, "trace": trace}
        axes = pl.domains(adata, image=True)
        assert len(axes.images) == 1
        from matplotlib import pyplot as plt

        plt.close("all")

    def test_an_image_of_another_chip(self, tmp_path):
        gef = write_gef(tmp_path / "SN.gef", MOLECULES)
        with pytest.raises(
            InputError, match=r"spots within the image of 'SN', of which a pixel is a DNB, found [\d,]+ "
        ):
            bin_file(gef, tmp_path / "out.h5ad", bin_size=10, image=_save(tmp_path / "r.tif", _mask()[:60]))
        assert not (tmp_path / "out.h5ad").exists()


class TestSpaceRanger:
    def test_a_column_marks_the_spots_of_the_raw_matrix(self, tmp_path):
        counts = write_space_ranger(tmp_path / "outs")
        matrix = tmp_path / "outs" / "filtered_feature_bc_matrix.h5"
        with pytest.raises(InputError, match=r"with one raw_feature_bc_matrix\.h5, found none .* It has the spots off"):
            bin_file(tmp_path / "outs", tmp_path / "out.h5ad", tissue="in_tissue")
        matrix.rename(matrix.with_name("raw_feature_bc_matrix.h5"))
        write_images(tmp_path / "outs" / "spatial", matrix=matrix.with_name("raw_feature_bc_matrix.h5"))
        bin_file(tmp_path / "outs", tmp_path / "out.h5ad", tissue="in_tissue")
        adata = ad.read_h5ad(tmp_path / "out.h5ad")
        np.testing.assert_array_equal(adata.obs["in_tissue"], [i % 5 != 0 for i in range(20)])
        np.testing.assert_array_equal(adata.X.toarray(), counts[:, :5])
        assert list(adata.uns["spatial"]) == ["V1_Brain"]
        assert adata.uns["binning"]["tissue"] == "in_tissue"

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"tissue": "covered"}, "a column 'covered' in .* found columns: .*'in_tissue'"),
            ({"tissue": "array_row"}, "to hold 1 and 0, found other numbers"),
            ({"tissue": "mask.tif"}, "`tissue` to be a column of the positions of Space Ranger, found 'mask.tif'"),
            ({"image": "r.tif"}, "a GEF or a GEM for `image`, found the folder"),
        ],
    )
    def test_what_does_not_fit(self, tmp_path, options, said):
        write_space_ranger(tmp_path / "outs")
        matrix = tmp_path / "outs" / "filtered_feature_bc_matrix.h5"
        matrix.rename(matrix.with_name("raw_feature_bc_matrix.h5"))
        with pytest.raises(InputError, match=said):
            bin_file(tmp_path / "outs", tmp_path / "out.h5ad", **options)

    def test_a_column_for_stereo_seq(self, tmp_path):
        gef = write_gef(tmp_path / "SN.gef", MOLECULES)
        with pytest.raises(
            InputError, match=r"`tissue` to be the mask of the tissue, a TIFF, .* found 'in_tissue'\. Only"
        ):
            bin_file(gef, tmp_path / "out.h5ad", tissue="in_tissue")


def test_a_cell_lies_on_the_dnb_that_is_nearest_to_its_centre(tmp_path):
    image = np.zeros((40, 40), dtype=np.uint8)
    image[:, 21:] = 1
    tiff = Tiff(_save(tmp_path / "mask.tif", image), memory=10**8, given="tissue")
    mask = TissueMask(tiff, side=None, corner=(0, 0), memory=10**8)
    inside, outside = mask.at(np.array([[20.4, 5.0], [20.6, 5.0], [30.0, 39.6], [-0.4, 5.0]]))
    assert inside.tolist() == [False, True, False, False]
    assert outside.tolist() == [False, False, True, False]


def test_a_mask_of_a_part_of_the_chip_is_that_of_another_sample(tmp_path):
    gef = write_gef(tmp_path / "SN.gef", MOLECULES)
    mask = _save(tmp_path / "mask.tif", np.ones((99, SIDE), dtype=np.uint8))
    with pytest.raises(InputError, match=r"^Expected spots within the mask 'mask.tif', .* found 14 of 49 outside"):
        bin_file(gef, tmp_path / "out.h5ad", bin_size=20, tissue=mask)
