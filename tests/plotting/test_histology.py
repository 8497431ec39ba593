"""Maps over the image of the tissue, and maps of genes: what lies where, what is read, and what is said of mistakes."""

import warnings

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from zarr_samples import write_zarr

from spatialpdvi import InputError, InputWarning, pl, simulate
from spatialpdvi.api import plot_file
from spatialpdvi.cli import main
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.results.expression import read_gene_counts
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.left_out import select_fitted
from spatialpdvi.io.section.images import TissueImage
from spatialpdvi.marker_genes import expression_tenths, log_normalised
from spatialpdvi.plotting.histology import _range, check_image
from spatialpdvi.plotting.spots import SpotCollection

pytestmark = pytest.mark.cli

SCALE, DIAMETER = 0.5, 55.0
GENES = ["Mbp", "mbp2", "Snap25", "TTR", "Apoe"]


def _spots(columns=9, rows=8):
    """A hexagonal lattice with a pitch of 100 pixels of the full-resolution image, as in Visium."""
    column, row = np.indices((columns, rows)).reshape(2, -1)
    return np.column_stack([300 + 100 * column + 50 * (row % 2), 200 + 100 * np.sqrt(0.75) * row])


def _image(width=700, height=520):
    """The column is the red value (modulo 256), the row the green one."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([columns % 256, rows % 256, 0 * rows + 90], axis=-1).astype(np.uint8)


def _library(image, size="hires"):
    factors = {f"tissue_{size}_scalef": SCALE, "spot_diameter_fullres": DIAMETER, "fiducial_diameter_fullres": 90.0}
    return {"images": {size: image}, "scalefactors": factors, "metadata": {}}


def _fitted(coordinates, *, excluded=0):
    n = len(coordinates)
    rng = np.random.default_rng(0)
    obs = pd.DataFrame(index=[f"s{i}" for i in range(n)])
    codes = np.arange(n) % 3
    codes[:excluded] = -1
    obs["pdvi_domain"] = pd.Categorical.from_codes(codes, ["0", "1", "2"])
    obs["pdvi_confidence"] = np.where(codes < 0, np.nan, 0.9)
    counts = rng.poisson(1.5, size=(n, len(GENES))).astype(np.float32)
    counts[5] = 0
    adata = ad.AnnData(sp.csr_matrix(counts), obs=obs, var=pd.DataFrame(index=GENES))
    adata.obsm["spatial"] = coordinates
    params = {"seed": 0, "counts": "X"} | ({"n_excluded": excluded} if excluded else {})
    trace = {"epoch": np.arange(3), "neg_elbo": np.arange(3.0)}
    adata.uns["pdvi"] = {"params": params, "scores": {"chaos": 0.1}, "trace": trace}
    adata.uns["spatial"] = {"V1": _library(_image())}
    return adata


@pytest.fixture
def adata():
    return _fitted(_spots())


def _plot(*arguments):
    return CliRunner().invoke(main, ["plot", *map(str, arguments)])


def _pixel_at(axes, place):
    """The pixel of the drawn image that lies at coordinates."""
    (drawn,) = axes.images
    left, right, bottom, top = drawn.get_extent()
    height, width = drawn.get_array().shape[:2]
    column = int((place[0] - left) / (right - left) * width)
    row = int((place[1] - top) / (bottom - top) * height)
    return drawn.get_array()[row, column]


class TestImage:
    @pytest.mark.parametrize("size", ["hires", "lowres"])
    def test_the_image_lies_where_the_spots_are_and_is_cropped_to_them(self, adata, size):
        adata.uns["spatial"]["V1"] = _library(_image(), size)
        axes = pl.domains(adata, image=True)
        for place in adata.obsm["spatial"][[0, 20, 71]]:
            x, y = np.floor(SCALE * place + 0.5).astype(int)
            assert _pixel_at(axes, place)[:2].tolist() == [x % 256, y % 256]
        assert axes.get_ylim()[0] > axes.get_ylim()[1]  # rows go down, as in the image
        (drawn,) = axes.images
        x0, x1 = axes.get_xlim()
        assert drawn.get_array().shape[1] == pytest.approx(SCALE * (x1 - x0), abs=3)
        assert drawn.get_array().shape[0] < 520
        assert drawn.zorder < axes.collections[0].zorder

    def test_spots_of_visium_are_as_wide_as_they_are(self, adata):
        axes = pl.domains(adata, image=True, alpha=0.4)
        axes.figure.canvas.draw()
        (spots,) = axes.collections
        assert isinstance(spots, SpotCollection)
        scale = axes.transData.get_matrix()[0, 0]
        width = np.sqrt(spots.get_sizes()[0]) * axes.figure.dpi / 72
        assert width == pytest.approx(DIAMETER * scale, rel=1e-6)
        axes = pl.domains(adata)
        axes.figure.canvas.draw()
        assert np.sqrt(axes.collections[0].get_sizes()[0]) * axes.figure.dpi / 72 > 100 * scale  # they tile

    def test_bins_that_fill_the_section_still_do(self, adata):
        adata.obsm["spatial"] = np.indices((9, 8)).reshape(2, -1).T * 50.0 + 300
        adata.uns["spatial"]["V1"]["scalefactors"]["spot_diameter_fullres"] = 50.0
        axes = pl.domains(adata, image=True)
        axes.figure.canvas.draw()
        scale = axes.transData.get_matrix()[0, 0]
        width = np.sqrt(axes.collections[0].get_sizes()[0]) * axes.figure.dpi / 72
        assert width == pytest.approx(50 * scale + 1, rel=0.01)

    def test_markers_that_overlap_are_faded_together(self):
        """Every pixel inside the tissue is the same mixture of the image and the colour: no grid of darker lines."""
        adata = _fitted(np.indices((20, 20)).reshape(2, -1).T * 20.0 + 200)
        adata.obs["pdvi_domain"] = pd.Categorical(["0"] * 400)
        adata.uns["pdvi_domain_colors"] = ["#ff0000"]
        adata.uns["spatial"] = {"V1": _library(np.full((400, 400, 3), 100, dtype=np.uint8))}
        adata.uns["spatial"]["V1"]["scalefactors"]["spot_diameter_fullres"] = 20.0
        axes = pl.domains(adata, image=True, alpha=0.25)
        axes.figure.canvas.draw()
        dots = np.asarray(axes.figure.canvas.buffer_rgba())
        (x0, y0), (x1, y1) = axes.transData.transform([(215, 565), (565, 215)]).astype(int)
        inside = dots[len(dots) - y1 : len(dots) - y0, x0:x1, :3].reshape(-1, 3).astype(int)
        assert len(inside) > 10_000
        expected = 0.75 * np.array([100, 100, 100]) + 0.25 * np.array([255, 0, 0])
        assert np.abs(inside - expected).max() <= 2

    @pytest.mark.parametrize(
        ("image", "dtype"),
        [
            (np.linspace(0, 1, 700 * 520).reshape(520, 700), np.float32),
            (np.linspace(0, 4000, 700 * 520).reshape(520, 700), np.uint16),
            (np.full((520, 700, 1), 7), np.uint8),
            (np.full((520, 700, 4), 0.5), np.float64),
            (np.full((520, 700, 3), 60_000), np.uint16),
        ],
    )
    def test_images_of_other_kinds(self, adata, image, dtype):
        adata.uns["spatial"]["V1"]["images"]["hires"] = image.astype(dtype)
        axes = pl.image(adata)
        axes.figure.canvas.draw()
        (drawn,) = axes.images
        assert drawn.get_array().ndim == (2 if image.ndim == 2 or image.shape[2] == 1 else 3)
        assert np.asarray(drawn.get_array()).max() <= (255 if dtype == np.uint8 else 1)
        assert len(axes.collections) == 0

    def test_each_section_has_its_own(self, adata):
        other = adata.copy()
        both = ad.concat({"V1": adata, "V2": other}, label="library_id", index_unique="-", uns_merge="first")
        both.uns["spatial"] = {"V1": _library(_image()), "V2": _library(255 - _image())}
        both.uns["pdvi"]["params"]["sample_key"] = "library_id"
        both.obs["library_id"] = both.obs["library_id"].astype("category")
        axes = pl.domains(both, image=True)
        first, second = axes.child_axes
        place = adata.obsm["spatial"][10]
        np.testing.assert_array_equal(_pixel_at(first, place), 255 - _pixel_at(second, place))
        del both.uns["spatial"]["V2"]
        with pytest.warns(InputWarning, match=r"has no image of 'V2' in uns\['spatial'\]; drawn without one"):
            axes = pl.domains(both, image=True)
        assert [len(child.images) for child in axes.child_axes] == [1, 0]

    def test_a_section_that_is_selected_from_several_has_no_image_of_another(self, adata):
        both = ad.concat({"V1": adata, "V2": adata.copy()}, label="library_id", index_unique="-", uns_merge="first")
        both.uns["spatial"] = {"V1": _library(_image()), "V2": _library(255 - _image())}
        both.uns["pdvi"]["params"]["sample_key"] = "library_id"
        both.uns["pdvi"]["scores"]["samples"] = {"sample": np.array(["V1", "V2"], dtype=object)}
        second = both[both.obs["library_id"] == "V2"].copy()
        place = adata.obsm["spatial"][10]
        blue = _pixel_at(pl.domains(second, image=True), place)[2]
        assert blue == 255 - 90
        del second.uns["spatial"]["V2"]
        with pytest.raises(InputError, match=r"one section, 'V2', found images of 'V1'\. Select the section again"):
            pl.domains(second, image=True)

    def test_grey_is_as_bright_as_the_image_wherever_it_is_cropped(self, adata):
        adata.uns["spatial"]["V1"]["images"]["hires"] = np.full((520, 700), 200, dtype=np.uint8)
        (drawn,) = pl.image(adata).images
        red, green, blue = drawn.to_rgba(drawn.get_array(), bytes=True)[0, 0, :3]
        assert red == green == blue == pytest.approx(200, abs=1)

    def test_coordinates_of_another_unit_are_told(self, adata):
        adata.obsm["spatial"] = adata.obsm["spatial"] / 100  # rows and columns of the array, say
        with pytest.warns(
            InputWarning, match=r"cover columns 1\.5 to 5\.75 and rows 1 to 4\.03109 of their image of 700"
        ):
            pl.domains(adata, image=True)

    @pytest.mark.parametrize(
        ("columns", "rows", "fits"),
        [
            ((350, 699), (0, 299), True),  # of 700 columns and 300 rows
            ((-0.5, 699.5), (-0.5, 299.5), True),
            ((-200, 200), (0, 299), True),  # half of the spots
            ((-210, 200), (0, 299), False),
            ((0, 699), (290, 400), False),
        ],
    )
    def test_most_spots_lie_within_the_columns_and_rows_of_their_image(self, columns, rows, fits):
        place = np.column_stack([np.linspace(*ends, 100) for ends in (columns, rows)]) / SCALE
        image = TissueImage(np.zeros((300, 700, 3), dtype=np.uint8), SCALE, None)
        if fits:
            check_image(place, image, "V1")
            return
        with pytest.raises(InputError, match="spots of 'V1' within their image of 700 x 300 pixels, found"):
            check_image(place, image, "V1")

    @pytest.mark.parametrize(
        ("low", "high", "scale", "pixels"),
        [
            (10.4, 20.4, 1.0, (10, 21)),
            (10.5, 20.7, 1.0, (11, 22)),
            (21.2, 41.2, 0.5, (11, 22)),
            (-9, 900, 0.5, (0, 100)),
        ],
    )
    def test_the_pixels_of_a_range_are_those_whose_squares_it_meets(self, low, high, scale, pixels):
        assert _range(low, high, scale, 100) == pixels  # the centre of pixel i is at i / scale

    @pytest.mark.parametrize(("reach", "warned"), [(34.9, True), (35.1, False)])
    def test_spots_in_a_twentieth_of_the_longer_side_are_told(self, reach, warned):
        place = np.array([[100.0, 100.0], [100.0 + reach, 110.0]]) / SCALE
        image = TissueImage(np.zeros((300, 700, 3), dtype=np.uint8), SCALE, None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check_image(place, image, "")
        assert [issubclass(one.category, InputWarning) for one in caught] == [True] * warned

    def test_every_map_can_be_drawn_over_it(self, adata, tmp_path):
        adata.obs["annotation"] = pd.Categorical(["a", "b"] * 36)
        adata.obs["pdvi_entropy"] = 0.3
        path, out = tmp_path / "a.h5ad", tmp_path / "a.svg"
        adata.write_h5ad(path)
        result = _plot(path, "--image", "--kind", "annotation,domains,confidence,entropy", "--gene", "TTR", "-o", out)
        assert result.exit_code == 0, result.stderr
        assert out.stat().st_size < 2_000_000
        figure = plot_file(path, image=True)
        assert [axes.texts[0].get_text() for axes in figure.axes] == ["Image of the tissue", "Domains"]

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda adata: adata.uns.pop("spatial"), r"an image of the tissue in uns\['spatial'\]\[section\]"),
            (lambda adata: adata.uns["spatial"]["V1"].pop("images"), "found none. `spatialpdvi bin`, scanpy and squid"),
            (
                lambda adata: adata.uns.update(spatial={}, spatialdata_attrs={"region": "bins"}),
                r"found none\. The images of a SpatialData store are beside its tables, and cannot be drawn\.",
            ),
            (lambda adata: adata.uns["spatial"].update(V2=_library(_image())), "images of 'V1', 'V2'. Name the column"),
            (
                lambda adata: adata.uns["spatial"]["V1"].pop("scalefactors"),
                "a number above 0 under 'tissue_hires_scalef' .* found no such key",
            ),
            (
                lambda adata: adata.uns["spatial"]["V1"]["scalefactors"].update(tissue_hires_scalef=-1.0),
                "a number above 0 under 'tissue_hires_scalef' .* found -1.0",
            ),
            (
                lambda adata: adata.uns["spatial"]["V1"]["images"].update(hires=np.zeros((3, 4, 7))),
                r"to be an image, .* found an array of shape \(3, 4, 7\) and type float64",
            ),
            (
                lambda adata: adata.obsm.update(spatial=adata.obsm["spatial"] * 5),
                "spots within their image of 700 x 520",
            ),
        ],
    )
    def test_what_is_missing_is_one_sentence(self, adata, tmp_path, change, said):
        change(adata)
        with pytest.raises(InputError, match=said):
            pl.domains(adata, image=True)
        path, out = tmp_path / "a.h5ad", tmp_path / "out.png"
        adata.write_h5ad(path)
        result = _plot(path, "--image", "-o", out)
        assert result.exit_code == 2
        assert "Traceback" not in result.stderr
        assert not out.exists()

    def test_nobody_is_told_to_leave_out_an_image_that_is_all_there_is(self, adata, tmp_path):
        del adata.uns["spatial"]
        with pytest.raises(InputError, match=r"squidpy write it there: read the section again with its image\.$"):
            pl.image(adata)
        with pytest.raises(InputError, match=r"with its image\. Or draw without `image`\.$"):
            pl.domains(adata, image=True)
        with pytest.raises(InputError, match=r"^Expected `alpha` to be a number, found '0\.5'\.$"):
            pl.domains(adata, image=True, alpha="0.5")
        path = tmp_path / "a.h5ad"
        adata.write_h5ad(path)
        said = _plot(path, "--kind", "image", "-o", tmp_path / "out.png").stderr
        assert said.endswith("squidpy write it there: read the section again with its image.\n")
        assert "Or draw without --image." in _plot(path, "--image", "-o", tmp_path / "out.png").stderr

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--image", "--alpha", "0"), "Expected `--alpha` to be above 0 and at most 1, found 0.0."),
            (("--image", "--alpha", "nan"), "Expected `--alpha` to be above 0 and at most 1, found nan."),
            (("--alpha", "0.5"), "Expected --image with --alpha, found none."),
            (("--layer", "counts"), "Expected --gene with --layer, found none."),
            (("--gene-key", "symbol"), "Expected --gene with --gene-key, found none."),
            (("--image", "--kind", "overview"), "Expected kinds of pictures for --image, found the overview"),
            (("--gene", "TTR", "--kind", "overview"), "Expected kinds of pictures for --gene, found the overview"),
            (("--gene", "TTR", "--kind", "overview"), "Name panels with --kind, such as domains and confidence."),
        ],
    )
    def test_options_that_do_not_fit(self, adata, tmp_path, options, said):
        adata.write_h5ad(tmp_path / "a.h5ad")
        result = _plot(tmp_path / "a.h5ad", *options, "-o", tmp_path / "out.png")
        assert result.exit_code == 2
        assert said in result.stderr

    def test_in_python_errors_name_the_arguments(self, adata, tmp_path):
        adata.write_h5ad(tmp_path / "a.h5ad")
        with pytest.raises(InputError, match=r"kinds of pictures for `genes`, .* Name panels with `kinds`, such as"):
            plot_file(tmp_path / "a.h5ad", kinds="overview", genes="TTR")
        with pytest.raises(InputError, match=r"^Expected `genes` with `counts`, found none\. Only genes are read"):
            plot_file(tmp_path / "a.h5ad", counts=tmp_path / "other.h5ad")


class TestGene:
    def test_the_map_has_the_expression_that_markers_compare(self, adata):
        axes = pl.gene(adata, "Snap25")
        (spots,) = axes.collections
        counts = adata.X.toarray().astype(np.float64)
        totals = counts.sum(axis=1)
        expected = np.log1p(1e4 * counts[:, 2] / np.where(totals > 0, totals, 1))
        np.testing.assert_allclose(spots.get_array(), expected, rtol=1e-12)
        high = np.percentile(expected[expected > 0], 99)
        assert spots.get_clim() == pytest.approx((0, high))
        assert axes.texts[1].get_text() == f"expressed in {(expected > 0).mean():.0%} of the spots"

    @pytest.mark.parametrize("layout", ["csr", "csc", "dense", "zarr csc"])
    @pytest.mark.parametrize("excluded", [0, 7])
    def test_however_counts_are_stored(self, tmp_path, monkeypatch, layout, excluded):
        monkeypatch.setattr("spatialpdvi.io.formats.streaming.BLOCK_VALUES", 50)  # many blocks
        monkeypatch.setattr("spatialpdvi.io.formats.h5ad.H5adSource.matrix", None)  # never whole
        adata = _fitted(_spots(), excluded=excluded)
        counts = adata.X.toarray()
        make = {"csr": sp.csr_matrix, "csc": sp.csc_matrix, "dense": np.array, "zarr csc": sp.csc_matrix}[layout]
        adata.X = make(counts)
        path = tmp_path / ("a.zarr" if "zarr" in layout else "a.h5ad")
        if "zarr" in layout:
            write_zarr(path, adata, 3)
        else:
            adata.write_h5ad(path)
        with H5adSource(path) as file:
            found = read_gene_counts(select_fitted(file, Keys("pdvi")), Keys("pdvi"), ["Apoe", "Mbp"])
        np.testing.assert_array_equal(found.counts, counts[excluded:][:, [4, 0]])
        np.testing.assert_array_equal(found.totals, counts[excluded:].sum(axis=1))
        own = log_normalised(*found)
        np.testing.assert_array_equal(
            np.rint(10 * own), expression_tenths(sp.csr_matrix(counts[excluded:]), np.array([4, 0]))
        )
        figure = plot_file(path, genes=["Apoe", "Mbp"])
        np.testing.assert_array_equal(figure.axes[0].collections[0].get_array(), own[:, 0])
        np.testing.assert_array_equal(figure.axes[0].collections[0].get_offsets(), adata.obsm["spatial"][excluded:])

    @pytest.mark.parametrize("layout", [sp.csr_matrix, sp.csc_matrix])
    def test_values_that_are_no_counts_are_refused_wherever_they_are(self, adata, tmp_path, monkeypatch, layout):
        monkeypatch.setattr("spatialpdvi.io.formats.matrices.FIRST_VALUES", 8)
        counts = adata.X.toarray()
        counts[-1, -1] = 0.5
        adata.X = layout(counts)
        adata.write_h5ad(tmp_path / "a.h5ad")
        with pytest.raises(InputError, match=r"Expected X to hold raw counts .* found 0\.5 \(not a whole number\)"):
            plot_file(tmp_path / "a.h5ad", genes=["TTR"])

    @pytest.mark.parametrize("where", ["indices", "indptr"])
    @pytest.mark.parametrize("layout", [sp.csr_matrix, sp.csc_matrix])
    def test_damage_is_one_sentence(self, adata, tmp_path, layout, where):
        adata.X = layout(adata.X)
        adata.write_h5ad(tmp_path / "a.h5ad")
        with h5py.File(tmp_path / "a.h5ad", "r+") as file:
            file[f"X/{where}"][2] = 10**6
        result = _plot(tmp_path / "a.h5ad", "--gene", "TTR", "-o", tmp_path / "out.png")
        assert result.exit_code == 2, result.output
        assert "to read X of" in result.stderr

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (
                ("--gene", "ttr"),
                "Expected a gene called 'ttr' in the counts, found none of this name; near it are 'TTR'.",
            ),
            (("--gene", "Snap24"), "near it are 'Snap25'. Give the name of a gene. Columns of var with other names: "),
            (("--gene", "poe"), "near it are 'Apoe'"),
            (("--gene", "☃"), "found none of this name. Give"),
            (("--gene", ""), "Expected a gene called ''"),
            (
                ("--gene", "same", "--gene-key", "symbol"),
                "Expected one gene called 'same' in the counts, found 2. Name it",
            ),
            (("--gene", "TTR", "--gene-key", "no"), "Expected a column 'no' with names of genes"),
            (("--gene", "TTR", "--layer", "no"), "Expected layers['no'] to be in 'PATH'"),
        ],
    )
    def test_a_gene_that_is_not_there(self, adata, tmp_path, options, said):
        adata.var["symbol"] = ["same", "same", "x", "y", "z"]
        path = tmp_path / "a.h5ad"
        adata.write_h5ad(path)
        result = _plot(path, *options, "-o", tmp_path / "out.png")
        assert result.exit_code == 2
        assert said.replace("PATH", str(path)) in result.stderr
        assert not (tmp_path / "out.png").exists()

    def test_other_names_layers_and_a_gene_without_counts(self, adata):
        adata.var["symbol"] = ["a", "b", "$c_", "d", "e"]
        adata.layers["two"] = sp.csr_matrix(2 * adata.X.toarray() * [1, 1, 0, 1, 1])
        axes = pl.gene(adata, "$c_", gene_key="symbol", layer="two")
        axes.figure.canvas.draw()
        assert axes.texts[0].get_text() == "$c_"
        assert not axes.collections[0].get_array().any()

    def test_help_says_what_it_needs(self, adata):
        assert "Name of the gene." in pl.gene.__doc__
        with pytest.raises(TypeError, match="missing a required argument: 'gene'"):
            pl.gene(adata)

    @pytest.mark.parametrize("gene", [["Ttr", "Snap25"], ("Ttr",), np.array(["Ttr"]), 3, None])
    def test_a_gene_that_is_no_text(self, adata, gene):
        with pytest.raises(InputError, match=r"^Expected `gene` to be the name of one gene, as text, found .*genes=\["):
            pl.gene(adata, gene)


def _same(found, expected):
    """Nested dicts of arrays, numbers and texts."""
    assert set(found) == set(expected)
    for key, value in expected.items():
        if isinstance(value, dict):
            _same(found[key], value)
        else:
            np.testing.assert_array_equal(found[key], value)


@pytest.fixture(scope="module")
def pictured(tmp_path_factory):
    """Two sections in one file, each with an image of its own under its name."""
    parts = {f"V/{i}": simulate(n_spots=150, n_genes=30, k=2, easy=True, seed=i) for i in range(2)}
    both = ad.concat(parts, label="library_id", index_unique="-")
    both.obs["library_id"] = both.obs["library_id"].cat.rename_categories(["A1", "B 2"])
    width, height = np.ceil(both.obsm["spatial"].max(axis=0) * SCALE).astype(int) + 1
    both.uns["spatial"] = {"A1": _library(_image(width, height)), "B 2": _library(255 - _image(width, height))}
    both.uns["spatial"]["A1"]["metadata"] = {"chemistry_description": "custom", "source_image_path": "/a/b.tif"}
    return both


def _invoke(*arguments):
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("first", "second"), [("h5ad", "zarr"), pytest.param("zarr", "h5ad", marks=pytest.mark.longest)]
)
def test_every_command_keeps_the_images(pictured, tmp_path, first, second):
    path, out = tmp_path / f"a.{first}", tmp_path / f"b.{second}"
    if first == "zarr":
        write_zarr(path, pictured, 3)
    else:
        pictured.write_h5ad(path)

    def check(where):
        found = ad.read_zarr(where) if where.suffix == ".zarr" else ad.read_h5ad(where)
        _same(found.uns["spatial"], pictured.uns["spatial"])
        assert found.obs["library_id"].tolist() == pictured.obs["library_id"].tolist()
        return found

    fit = ["--k", "2", "--sample-key", "library_id", "--n-init", "2", "--states", "off", "-q"]
    _invoke("fit", path, *fit, "-o", out, "--save-model", tmp_path / "model.npz")
    check(out)
    check(path)
    _invoke("fit", path, *fit)  # into the file itself
    _invoke("label", "merge", out, "--domain", "0", "--domain", "1", "-o", tmp_path / f"c.{first}")
    check(tmp_path / f"c.{first}")
    _invoke("markers", out, "--store", "-q")
    check(out)
    _invoke("predict", path, "--model", tmp_path / "model.npz", "--sample-key", "library_id", "-o", out, "-q")
    check(out)
    axes = pl.image(check(out))
    assert [len(child.images) for child in axes.child_axes] == [1, 1]


def test_files_of_a_joint_fit_keep_their_own_image(pictured, tmp_path):
    paths = []
    for name in ("A1", "B 2"):
        own = pictured[pictured.obs["library_id"] == name].copy()
        own.uns["spatial"] = {name: pictured.uns["spatial"][name]}
        paths.append(tmp_path / f"{name}.h5ad")
        own.write_h5ad(paths[-1])
    _invoke("fit", *paths, "--k", "2", "--n-init", "2", "--states", "off", "-q", "-o", tmp_path / "fitted")
    for path in paths:
        found = ad.read_h5ad(tmp_path / "fitted" / path.name)
        _same(found.uns["spatial"], {path.stem: pictured.uns["spatial"][path.stem]})
        assert plot_file(tmp_path / "fitted" / path.name, image=True).axes[0].images


def test_squidpy_and_scanpy_draw_a_fitted_file_over_its_image(real_data, tmp_path):
    """The file that a fit writes has what both look for: image, scale factors, domains and their colours."""
    sq = pytest.importorskip("squidpy")
    path = real_data / "visium_mouse_brain_raw_100g.h5ad"
    if not path.exists():
        pytest.skip("the section is not among the real sections")
    from matplotlib import pyplot as plt

    from spatialpdvi import FitOptions, fit_file

    fit_file(path, FitOptions(k=3, mask="in_tissue", states="off", n_init=1), output=tmp_path / "a.h5ad")
    before, after = ad.read_h5ad(path), ad.read_h5ad(tmp_path / "a.h5ad")
    (name,) = after.uns["spatial"]
    np.testing.assert_array_equal(
        after.uns["spatial"][name]["images"]["lowres"], before.uns["spatial"][name]["images"]["lowres"]
    )
    fitted = after[after.obs["pdvi_domain"].notna()].copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # squidpy's own
        axes = sq.pl.spatial_scatter(fitted, color="pdvi_domain", img_res_key="lowres", return_ax=True)
    assert len(axes.images) == 1
    ours = pl.domains(after, image=True)
    scale = after.uns["spatial"][name]["scalefactors"]["tissue_lowres_scalef"]
    theirs = np.array([patch.get_extents().get_points().mean(axis=0) for patch in axes.collections[0].get_paths()])
    np.testing.assert_allclose(theirs, scale * np.asarray(ours.collections[0].get_offsets()), atol=0.01)
    plt.close("all")
