"""Every kind of picture: what is drawn of a fitted section, on pages and on axes of the user's own."""

import inspect
import re
import tracemalloc

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from conftest import loaded_by
from figures import are_apart, drawn_colours, heading, lattice, legend_colours, legend_of, panels
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver
from matplotlib.text import Text

import spatialpdvi
from spatialpdvi.api import plot_file
from spatialpdvi.cli import main
from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.palette import palette
from spatialpdvi.plotting import plot_section, save_figure
from spatialpdvi.plotting import spots as spots_module
from spatialpdvi.plotting.charts import count_confusion
from spatialpdvi.plotting.fields import _thin, choose_edges
from spatialpdvi.plotting.kinds import KINDS
from spatialpdvi.plotting.labels import check_labels
from spatialpdvi.plotting.page import Heading, Panel, draw_page, write_title
from spatialpdvi.plotting.spots import place_spots
from spatialpdvi.plotting.tissue import place_tissue

pytestmark = pytest.mark.cli

pl = spatialpdvi.pl
MAPS = ["domains", "annotation", "confidence", "entropy", "agreement", "flow", "edges", "states"]
COLOURS = ["#cf3d3e", "#3f6fb5", "#3f9b4b"]


def _fitted(coordinates, domains, *, annotation=None, prefix="pdvi", samples=None):
    """An AnnData with all that a fit of such domains writes and pictures read."""
    n, k = len(domains), int(np.max(domains)) + 1
    obs = pd.DataFrame(index=[f"s{i}" for i in range(n)])
    obs[f"{prefix}_domain"] = pd.Categorical.from_codes(domains, [str(i) for i in range(k)])
    obs[f"{prefix}_confidence"] = np.linspace(0.71, 1, n)
    obs[f"{prefix}_confidence_calibrated"] = np.linspace(0.52, 0.9, n)
    obs[f"{prefix}_entropy"] = np.linspace(0, 0.63, n)
    obs[f"{prefix}_agreement"] = np.linspace(1, 0.35, n)
    if annotation is not None:
        obs["annotation"] = pd.Categorical(annotation)
    params = {"seed": 0}
    if samples is not None:
        obs["slice"] = pd.Categorical(samples)
        params["sample_key"] = "slice"
    adata = ad.AnnData(obs=obs)
    adata.obsm["spatial"] = coordinates
    adata.obsm[f"{prefix}_state"] = np.float32([0.7, 0.2, 0.1])[(np.arange(3) - np.arange(n)[:, None]) % 3]
    adata.obsm[f"{prefix}_flow"] = np.tile(np.float32([0.6, 0.8]), (n, 1))
    chain = sp.diags_array(np.arange(1.0, n), offsets=1, shape=(n, n)).tocsr()
    adata.obsp[f"{prefix}_connectivities"] = sp.csr_matrix(chain + chain.T)
    places = np.ceil(np.asarray(coordinates)[:, :2].max(axis=0)).astype(int) + 1
    library = {
        "images": {"hires": np.full((places[1], places[0], 3), 230, dtype=np.uint8)},
        "scalefactors": {"tissue_hires_scalef": 1.0, "spot_diameter_fullres": 20.0},
    }
    names = ["one"] if samples is None else np.unique(samples)
    adata.uns["spatial"] = {str(name): library for name in names}
    adata.uns[f"{prefix}_domain_colors"] = np.array([COLOURS[i % 3] for i in range(k)], dtype=object)
    epochs = np.arange(4)
    adata.uns[prefix] = {
        "params": params,
        "certificate": {"tolerance": 1e-3},
        "scores": {"chaos": 0.1, "pas": 0.02},
        "trace": {
            "epoch": epochs,
            "neg_elbo": -1e6 - epochs,
            "gradient_norm": 0.1**epochs,
            "stationarity_mean": 0.1**epochs,
            "stationarity_log_variance": 0.2**epochs,
            "stationarity_posterior": np.array([0.5, 0.1, 0.0, 0.0]),
        },
        "composition": np.tile([0.5, 0.3, 0.2], (k, 1)),
        "k_scan": {"k": np.arange(2, 5), "found_again": [1.0, 2.0, 1.5], "neg_elbo": [5.0, 4.0, 3.0]},
    }
    adata.uns[f"{prefix}_intervals"] = {
        "params": {"level": 0.9, "method": "blocks"},
        "expression": {
            "domain": ["0", "0"],
            "gene": ["a", "b"],
            "mean": [3.0, 0.1],
            "lower": [2.0, 0.0],
            "upper": [4.0, 0.9],
        },
        "contrasts": {
            "domain": ["0", "0"],
            "other": ["1", "1"],
            "gene": ["a", "b"],
            "log2_fold_change": [1.0, -0.2],
            "lower": [0.6, -0.7],
            "upper": [1.4, 0.3],
        },
    }
    return adata


def _stripes(columns=12, rows=10):
    coordinates = 25.0 * lattice(columns, rows)
    return coordinates, (coordinates[:, 0] // (25 * columns / 3)).astype(int)


@pytest.fixture
def adata():
    coordinates, domains = _stripes()
    names = np.array(["heart", "brain", "liver"], dtype=object)[domains]
    names[:7] = None
    return _fitted(coordinates, domains, annotation=names)


@pytest.fixture
def file(adata, tmp_path):
    path = tmp_path / "embryo.h5ad"
    adata.write_h5ad(path)
    return path


@pytest.fixture
def sections():
    """Three sections that lie upon one another, the last one half as long and in other units."""
    coordinates, domains = _stripes()
    last = 0.1 * coordinates[:60]
    samples = np.repeat(["a", "b", "c"], [120, 120, 60])
    return _fitted(np.vstack([coordinates, coordinates, last]), np.r_[domains, domains, domains[:60]], samples=samples)


def _is_name(artist):
    """Whether it is the text above a map."""
    return isinstance(artist, Text) and artist.get_text() != ""


def _figure(width, height):
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def _invoke(*arguments):
    return CliRunner().invoke(main, ["plot", *map(str, arguments)])


class TestKinds:
    @pytest.mark.parametrize(
        ("kind", "suffix", "magic"),
        [
            *((kind, "svg", b"<?xml") for kind in KINDS),
            *(("confusion", *one) for one in (("png", b"\x89PNG"), ("pdf", b"%PDF"))),
            *(("flow", *one) for one in (("png", b"\x89PNG"), ("pdf", b"%PDF"))),
        ],
    )
    def test_each_is_written(self, file, tmp_path, kind, suffix, magic):
        figure = plot_file(file, kinds=[kind])
        assert len(panels(figure)) == 1
        path = tmp_path / f"{kind}.{suffix}"
        save_figure(figure, path, dpi=40)
        assert path.read_bytes().startswith(magic)
        assert 1000 < path.stat().st_size < 300_000

    def test_several_stand_side_by_side_in_their_order(self, file, tmp_path):
        kinds = ["confusion", "domains", "entropy", "trace"]
        figure = plot_file(file, kinds=kinds)
        figure.canvas.draw()
        found = panels(figure)
        assert list(found) == ["Domains and labels", "Domains", "Entropy", "Convergence"]
        boxes = [axes.get_tightbbox() for axes in found.values()]
        for box in boxes:
            assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
            assert 0 <= box.y0 < box.y1 <= figure.bbox.y1
        assert are_apart(boxes)
        assert _invoke(file, "--kind", ", ".join(kinds), "-o", tmp_path / "a.svg").exit_code == 0
        one_by_one = [word for name in kinds for word in ("--kind", name)]
        assert _invoke(file, *one_by_one, "-o", tmp_path / "b.svg").exit_code == 0
        assert (tmp_path / "a.svg").stat().st_size == pytest.approx((tmp_path / "b.svg").stat().st_size, rel=0.01)

    def test_the_default_is_the_overview(self, file):
        titles = ["Annotation", "Domains", "Confidence", "Convergence", "Number of domains", "Reliability"]
        assert list(panels(plot_file(file))) == titles

    @pytest.mark.parametrize(("kind", "found"), [("domain", "'domain'"), ("overview,flow", "'overview'"), ("", "''")])
    def test_unknown_ones_are_refused(self, file, tmp_path, kind, found):
        done = _invoke(file, "--kind", kind, "-o", tmp_path / "a.png")
        assert done.exit_code == 2
        assert f"Expected kinds of pictures, found {found}. Choose from domains, annotation, " in done.stderr
        assert not (tmp_path / "a.png").exists()

    def test_one_text_is_one_name(self, adata, file):
        assert list(panels(plot_file(file, kinds="domains"))) == ["Domains"]
        assert list(panels(plot_file(file, kinds="overview"))) == list(panels(plot_file(file)))
        with pytest.raises(InputError, match=r"Expected kinds of pictures, found 'domain'\. Choose from domains, "):
            plot_file(file, kinds="domain")
        counts = np.arange(240).reshape(120, 2)
        with_genes = ad.AnnData(counts.astype(np.float32), obs=adata.obs, var=pd.DataFrame(index=["gene1", "gene2"]))
        with_genes.obsm["spatial"], with_genes.uns["pdvi"] = adata.obsm["spatial"], adata.uns["pdvi"]
        with_genes.write_h5ad(file)
        assert list(panels(plot_file(file, genes="gene1"))) == ["gene1"]
        assert list(panels(plot_file(file, kinds="domains", genes="gene2"))) == ["Domains", "gene2"]

    def test_help_names_every_kind(self):
        (option,) = [option for option in main.commands["plot"].params if option.name == "kind"]
        assert re.split(r", |; ", option.help.split(": ")[1])[: len(KINDS)] == list(KINDS)

    def test_every_kind_is_a_function_in_python(self):
        assert sorted(pl.__all__) == sorted([*KINDS, "gene"])

    @pytest.mark.parametrize("kind", KINDS)
    def test_each_function_documents_the_options_that_it_takes(self, kind, adata):
        function = getattr(pl, kind)
        parameters = inspect.signature(function).parameters
        assert list(parameters)[:3] == ["adata", "ax", "key_added"]
        assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in list(parameters)[1:])
        documented = re.search(r"Parameters\n-+\n(.*?)\n\n", inspect.getdoc(function), flags=re.DOTALL)
        assert re.findall(r"^(\w+)$", documented[1], flags=re.MULTILINE) == list(parameters)
        with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
            function(adata, colour="red")


class TestMaps:
    def test_domains_have_their_stored_colours_and_places(self, adata):
        axes = pl.domains(adata)
        drawn = drawn_colours(axes, 120)
        for place, domain in zip(adata.obsm["spatial"], adata.obs["pdvi_domain"].cat.codes, strict=True):
            assert drawn[tuple(place)] == pytest.approx(to_rgba(COLOURS[domain]))
        assert legend_colours(axes) == {str(i): pytest.approx(to_rgba(COLOURS[i])) for i in range(3)}

    def test_labels_have_the_colour_of_their_domain(self, adata):
        entries = legend_colours(pl.annotation(adata))
        assert entries["heart"] == pytest.approx(to_rgba(COLOURS[0]))
        assert entries["brain"] == pytest.approx(to_rgba(COLOURS[1]))
        assert list(entries) == ["brain", "heart", "liver", "unlabelled"]

    def test_or_the_colours_that_the_user_stored_for_them(self, adata, file, tmp_path):
        own = {"brain": "gold", "heart": "#00ff00", "liver": "#102030"}
        adata.uns["annotation_colors"] = list(own.values())
        entries = legend_colours(pl.annotation(adata))
        assert {name: to_hex(entries[name]) for name in own} == {name: to_hex(colour) for name, colour in own.items()}
        assert legend_colours(pl.domains(adata)) == {str(i): pytest.approx(to_rgba(COLOURS[i])) for i in range(3)}
        adata.write_h5ad(file)
        overview = plot_file(file)
        entries = legend_colours(panels(overview)["Annotation"])
        assert {name: to_hex(entries[name]) for name in own} == {name: to_hex(colour) for name, colour in own.items()}
        del adata.uns["pdvi_domain_colors"]  # domains then have the colours of their labels
        assert to_hex(legend_colours(pl.domains(adata))["0"]) == "#00ff00"

    @pytest.mark.parametrize("colours", [["red"], ["red", "gold", "no colour"]])
    def test_colours_of_labels_that_cannot_be_used_are_named_in_a_warning(self, adata, colours):
        adata.uns["annotation_colors"] = colours
        with pytest.warns(InputWarning, match="labels are not used|does not hold a colour for each"):
            entries = legend_colours(pl.annotation(adata))
        assert entries["heart"] == pytest.approx(to_rgba(COLOURS[0]))

    def test_edited_domains_say_whose_convergence_is_drawn(self, adata, file):
        adata.uns["pdvi"]["edits"] = {"action": ["merge"], "detail": ["'0', '1' to 'x'"], "n_domains": [3]}
        assert "before its domains were edited" in heading(pl.trace(adata))[1]
        adata.write_h5ad(file)
        assert "before its domains were edited" in heading(panels(plot_file(file))["Convergence"])[1]

    def test_the_convergence_of_domains_from_another_section_names_it(self, adata):
        adata.uns["pdvi"]["transfer"] = {"fit": "bin50\n.h5ad"}
        assert heading(pl.trace(adata)) == ["Convergence", "of the fit of bin50?.h5ad"]

    def test_the_scan_marks_the_number_that_was_fitted_although_domains_were_edited(self, adata):
        assert list(pl.scan(adata).lines[0].get_xdata()) == [3, 3]
        adata.uns["pdvi"]["edits"] = {"action": ["merge"], "detail": ["'0', '1' to 'x'"], "n_domains": [3]}
        adata.uns["pdvi"]["params"]["k"] = 4
        assert list(pl.scan(adata).lines[0].get_xdata()) == [4, 4]

    def test_pictures_of_a_section_in_space_say_that_two_axes_are_drawn(self, adata, file):
        adata.obsm["spatial"] = np.column_stack([adata.obsm["spatial"], np.arange(120.0)])
        adata.write_h5ad(file)
        assert plot_file(file, kinds=["domains"]).get_suptitle() == "embryo (first 2 of 3 axes)"

    @pytest.mark.parametrize(
        ("kind", "limits", "label"),
        [
            ("confidence", (0.5, 1), "calibrated posterior of the domain"),
            ("entropy", (0, 0.7), "entropy of the posterior (nats)"),
            ("agreement", (0.3, 1), "share of restarts that agree"),
        ],
    )
    def test_numbers(self, adata, kind, limits, label):
        axes = getattr(pl, kind)(adata)
        (drawn,) = axes.collections
        key = "pdvi_confidence_calibrated" if kind == "confidence" else f"pdvi_{kind}"
        np.testing.assert_allclose(drawn.get_array(), adata.obs[key])
        np.testing.assert_array_equal(drawn.get_offsets(), adata.obsm["spatial"])
        assert drawn.get_clim() == pytest.approx(limits)
        assert [child.get_ylabel() for child in axes.child_axes] == [label]

    def test_confidence_that_is_not_calibrated(self, adata):
        for wanted in (False, True):
            axes = pl.confidence(adata, calibrated=wanted)
            np.testing.assert_allclose(axes.collections[0].get_array(), adata.obs["pdvi_confidence"])
            assert axes.child_axes[0].get_ylabel() == "posterior of the domain"
            adata.obs = adata.obs.drop(columns="pdvi_confidence_calibrated", errors="ignore")

    def test_other_prefixes_and_coordinates(self, adata):
        other = _fitted(adata.obsm["spatial"], np.zeros(120, int), prefix="mine")
        other.obsm["place"] = 2 * other.obsm["spatial"]
        (drawn,) = pl.domains(other, key_added="mine", spatial_key="place").collections
        np.testing.assert_array_equal(drawn.get_offsets(), other.obsm["place"])

    @pytest.mark.parametrize("has_other", [True, False], ids=["beside others", "alone"])
    def test_the_coordinates_are_those_of_the_fit(self, adata, tmp_path, has_other):
        adata.uns["pdvi"]["params"]["spatial_key"] = "xy"
        adata.obsm["xy"] = place = adata.obsm["spatial"][::-1].copy()
        if not has_other:
            del adata.obsm["spatial"]
        adata.write_h5ad(tmp_path / "a.h5ad")
        for kind in MAPS:
            drawn = getattr(pl, kind)(adata).collections[0]
            if kind not in {"annotation", "flow", "edges"}:  # unlabelled spots, strokes and edges come first
                np.testing.assert_array_equal(drawn.get_offsets(), place)
            if kind in {"domains", "entropy"}:
                (drawn,) = panels(plot_file(tmp_path / "a.h5ad", kinds=[kind]))[kind.capitalize()].collections
                np.testing.assert_array_equal(drawn.get_offsets(), place)
        assert _invoke(tmp_path / "a.h5ad", "-o", tmp_path / "a.png", "--dpi", 40).exit_code == 0
        if has_other:
            (drawn,) = pl.domains(adata, spatial_key="spatial").collections
            np.testing.assert_array_equal(drawn.get_offsets(), adata.obsm["spatial"])

    @pytest.mark.parametrize("angle", [0.0, 17.0, 30.0])
    @pytest.mark.parametrize("sides", [4, 6])
    def test_markers_tile_lattices_however_they_are_turned(self, sides, angle):
        grid = lattice(14, 14)
        if sides == 6:
            grid = grid * [1, np.sqrt(0.75)] + np.outer(grid[:, 1] % 2, [0.5, 0])
        turn = np.radians(angle)
        position = 3 * grid @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
        figure = plot_section(position, np.zeros(len(grid), int))
        axes = panels(figure)["Domains"]
        figure.canvas.draw()
        (drawn,) = axes.collections
        (outline,) = drawn.get_paths()
        scale = np.sqrt(drawn.get_sizes()[0]) * figure.dpi / 72 - 1  # a dot of overlap
        corners = axes.transData.inverted().transform(
            scale * outline.vertices[:sides] + axes.transData.transform(position[100])
        )
        # half-way to each of its neighbours: the middle of a side
        around = position[np.argsort(np.linalg.norm(position - position[100], axis=1))[1 : sides + 1]]
        middles = (corners + np.roll(corners, 1, axis=0)) / 2
        found = position[100] + (middles - position[100]) * 2
        for place in around:
            assert np.linalg.norm(found - place, axis=1).min() < 0.05

    def test_spots_grow_with_axes_that_grow(self, adata):
        figure = _figure(4, 3)
        axes = pl.domains(adata, ax=figure.subplots())
        figure.canvas.draw()
        before = np.sqrt(axes.collections[0].get_sizes()[0]) * figure.dpi / 72
        figure.set_size_inches(8, 6)
        figure.canvas.draw()
        after = np.sqrt(axes.collections[0].get_sizes()[0]) * figure.dpi / 72
        assert after - 1 == pytest.approx(2 * (before - 1), rel=0.02)


class TestFields:
    def test_strokes_lie_along_the_flow_and_are_thinned(self, adata):
        adata.obsm["pdvi_flow"][:40] = 0
        (arrows,) = [drawn for drawn in pl.flow(adata).collections if isinstance(drawn, Quiver)]
        assert 20 <= arrows.N <= 80
        places = {tuple(place) for place in adata.obsm["spatial"][40:]}
        assert {tuple(place) for place in arrows.get_offsets()} <= places
        np.testing.assert_allclose(arrows.V / arrows.U, 0.8 / 0.6, rtol=1e-6)
        assert arrows.headwidth == 0
        gaps = np.diff(np.unique(arrows.X))
        length = np.hypot(arrows.U, arrows.V).max()
        assert length < gaps.min() + 1e-9

    def test_many_spots_have_few_arrows(self):
        position = lattice(150, 150)
        big = _fitted(position, (position[:, 0] // 50).astype(int))
        (arrows,) = [drawn for drawn in pl.flow(big).collections if isinstance(drawn, Quiver)]
        assert 700 < arrows.N < 2000
        pairs = np.linalg.norm(arrows.get_offsets()[:, None] - arrows.get_offsets()[None], axis=2)
        assert pairs[~np.eye(arrows.N, dtype=bool)].min() >= 2

    def test_the_arrow_of_a_square_is_that_of_the_spot_nearest_to_its_middle(self):
        rng = np.random.default_rng(0)
        position, defined = 10 * rng.random((400, 2)), rng.random(400) < 0.7
        middles = np.array(list(np.ndindex(7, 7))) * 1.7 + position.min(axis=0)
        expected = set()
        for middle in middles:
            inside = defined & (np.abs(position - middle) < 0.85).all(axis=1)
            if inside.any():
                off = np.linalg.norm(position - middle, axis=1)
                expected.add(int(np.flatnonzero(inside)[off[inside].argmin()]))
        assert _thin(position, defined, 1.7).tolist() == sorted(expected)

    def test_normals_in_space_are_arrows_as_long_as_they_are_seen(self, adata):
        adata.obsm["pdvi_flow"] = np.tile([0.6, 0.0, 0.8], (120, 1))
        adata.obsm["pdvi_flow"][60:] = [0.0, 1.0, 0.0]
        axes = pl.flow(adata)
        assert heading(axes)[0] == "Border normals"
        (arrows,) = [drawn for drawn in axes.collections if isinstance(drawn, Quiver)]
        assert arrows.headwidth > 0
        lengths = np.hypot(arrows.U, arrows.V)
        assert set(np.round(lengths / lengths.max(), 6)) == {0.6, 1.0}

    def test_edges_have_their_ends_and_weights(self, adata):
        axes = pl.edges(adata)
        (lines,) = [drawn for drawn in axes.collections if isinstance(drawn, LineCollection)]
        np.testing.assert_array_equal(lines.get_array(), np.arange(1, 120))
        place = adata.obsm["spatial"]
        np.testing.assert_array_equal(lines.get_segments(), np.stack([place[:-1], place[1:]], axis=1))
        assert lines.get_clim() == (1, 119)
        assert lines.get_rasterized()
        assert heading(axes)[1] == "119 edges"

    def test_of_many_edges_some_are_drawn(self, monkeypatch):
        monkeypatch.setattr("spatialpdvi.plotting.fields._MOST", 30)
        coordinates, domains = _stripes()
        graph = _fitted(coordinates, domains).obsp["pdvi_connectivities"]
        edges = choose_edges(place_tissue(coordinates), graph)
        assert len(edges.weights) == 30
        assert (np.diff(edges.weights) > 0).all()
        assert edges.weights[-1] > 100  # chosen among all, not the first of them, which are the weakest here
        np.testing.assert_array_equal(np.asarray(graph[edges.ends[:, 0], edges.ends[:, 1]]).ravel(), edges.weights)
        assert edges.note == "30 of 119 edges"

    def test_edges_between_sections_are_counted(self, sections):
        axes = pl.edges(sections)
        assert heading(axes)[1] == "297 edges; 2 between sections not shown"
        drawn = [
            lines
            for child in axes.child_axes
            for lines in child.collections
            if isinstance(lines, LineCollection) and lines.get_array() is not None
        ]
        assert [len(lines.get_segments()) for lines in drawn] == [119, 119, 59]


class TestCharts:
    def test_trace(self, adata):
        axes = pl.trace(adata)
        (line,) = axes.lines
        np.testing.assert_allclose(line.get_ydata() * 1e6, adata.uns["pdvi"]["trace"]["neg_elbo"])
        (right,) = [other for other in axes.figure.axes if other.get_ylabel() == "stationarity"]
        curves = {line.get_label(): line.get_ydata() for line in right.lines}
        np.testing.assert_allclose(curves["means"], [1, 0.1, 0.01, 0.001])
        np.testing.assert_allclose(curves["variances"], [1, 0.2, 0.04, 0.008])
        np.testing.assert_allclose(curves["posteriors"], [0.5, 0.1])
        assert set(curves["tolerance"]) == {1e-3}
        assert right.get_yscale() == "log"

    def test_what_is_stationary_from_the_start_does_not_press_the_rest_together(self, adata):
        adata.uns["pdvi"]["trace"]["stationarity_posterior"] = np.full(4, 1e-14)
        axes = pl.trace(adata)
        (right,) = [other for other in axes.figure.axes if other.get_ylabel() == "stationarity"]
        assert right.get_ylim()[0] == pytest.approx(1e-6)

    def test_the_trace_of_domains_that_are_compositions_has_these_instead_of_means(self, adata):
        adata.uns["pdvi"]["trace"]["stationarity_composition"] = [0.4, 0.3, 0.2, 0.1]
        axes = pl.trace(adata)
        (right,) = [other for other in axes.figure.axes if other.get_ylabel() == "stationarity"]
        curves = {line.get_label(): line.get_ydata() for line in right.lines}
        assert list(curves) == ["compositions", "posteriors", "tolerance"]
        np.testing.assert_array_equal(curves["compositions"], [0.4, 0.3, 0.2, 0.1])

    def test_reliability_has_a_curve_before_and_after_calibration(self, adata):
        texts = pl.reliability(adata).child_axes[0].get_legend().get_texts()
        assert [text.get_text().split(",")[0] for text in texts] == ["posterior", "calibrated"]

    def test_charts_need_no_coordinates(self, adata):
        del adata.obsm["spatial"]
        for kind in ("trace", "scan", "confusion", "reliability"):
            axes = getattr(pl, kind)(adata)
            assert any(one.has_data() for one in (axes, *axes.child_axes)), kind

    def test_confusion(self, adata):
        axes = pl.confusion(adata)
        (image,) = axes.images
        rows = [text.get_text() for text in axes.get_yticklabels()]
        columns = [text.get_text() for text in axes.get_xticklabels()]
        assert columns == ["brain", "heart", "liver"]
        assert rows == ["1", "0", "2"]
        np.testing.assert_array_equal(image.get_array(), np.eye(3))
        counts = [text.get_text() for text in axes.texts if text.get_text() not in heading(axes)]
        assert counts == ["40", "33", "40"]
        assert heading(axes) == ["Domains and labels", "7 spots without a label"]

    def test_rows_follow_the_labels_that_they_are_paired_with(self):
        rng = np.random.default_rng(0)
        partner = np.array([2, 0, 3, 1, 0, 2, 2])  # of domains 0..6; 3 has the most of label 1, and so on
        domains = rng.choice(7, p=[0.25, 0.2, 0.15, 0.15, 0.1, 0.1, 0.05], size=2000)
        labels = np.where(rng.random(2000) < 0.8, partner[domains], rng.integers(4, size=2000))
        names = np.array([f"label {i}" for i in range(4)])[labels]
        found = count_confusion(*(check_labels(values, n=2000, what="labels") for values in (domains, names)))
        assert found.labels == [f"label {i}" for i in range(4)]
        assert found.domains == ["1", "4", "3", "0", "5", "6", "2"]
        np.testing.assert_array_equal(found.counts, pd.crosstab(domains.astype(str), names).loc[found.domains])

    def test_a_pair_without_a_common_spot_is_none(self):
        domains = check_labels(np.array([0, 0, 1, 1, 1]), n=5, what="domains")
        labels = check_labels(np.array(["a", "a", "a", "a", "c"]), n=5, what="labels")
        found = count_confusion(domains, labels)
        assert found.domains == ["0", "1"]
        lone = check_labels(np.array(["b", "b", "b", "a", "c"]), n=5, what="labels")
        assert count_confusion(check_labels(np.array([1, 0, 0, 0, 0]), n=5, what="domains"), lone).domains == ["0", "1"]

    def test_counts_that_do_not_fit_are_left_out(self, adata):
        figure = _figure(0.2, 0.15)
        axes = pl.confusion(adata, ax=figure.add_axes((0, 0, 1, 1)))
        assert [text.get_text() for text in axes.texts if text.get_text()] == []


class TestSections:
    def test_each_has_axes_of_its_own_side_by_side(self, sections):
        axes = pl.domains(sections)
        children = axes.child_axes
        assert [child.get_title(loc="left") for child in children] == ["a", "b", "c"]
        axes.figure.canvas.draw()
        assert are_apart([child.get_window_extent() for child in children])
        codes = sections.obs["slice"].cat.codes.to_numpy()
        for number, child in enumerate(children):
            (drawn,) = child.collections
            own = codes == number
            np.testing.assert_array_equal(drawn.get_offsets(), sections.obsm["spatial"][own])
            np.testing.assert_array_equal(drawn.get_array(), sections.obs["pdvi_domain"].cat.codes[own])
            # the section fills its axes, whatever its units are
            room = np.abs([np.diff(child.get_xlim()), np.diff(child.get_ylim())]).ravel()
            assert (np.ptp(drawn.get_offsets(), axis=0) / room).max() > 0.7
        assert len(legend_of(axes).get_texts()) == 3

    @pytest.mark.parametrize("kind", MAPS[2:])
    def test_of_every_map(self, sections, kind):
        children = getattr(pl, kind)(sections).child_axes
        assert [child.get_title(loc="left") for child in children[:3]] == ["a", "b", "c"]
        assert [len(child.collections[0].get_offsets()) for child in children[:3]] == [120, 120, 60]

    def test_in_the_overview_and_on_the_command_line(self, sections, tmp_path):
        path = tmp_path / "joint.h5ad"
        sections.write_h5ad(path)
        figure = plot_file(path)
        for title in ("Domains", "Confidence"):
            names = [child.get_title(loc="left") for child in panels(figure)[title].child_axes]
            assert names[:3] == ["a", "b", "c"]
        assert _invoke(path, "-o", tmp_path / "a.png").exit_code == 0
        one = plot_file(path, sample_key="slice", kinds=["domains"])
        assert len(panels(one)["Domains"].child_axes) == 3

    def test_by_another_column(self, sections):
        sections.obs["half"] = pd.Categorical(np.arange(300) >= 120)
        sections.obsm["spatial"][240:] += 0.001
        assert len(pl.domains(sections, sample_key="half").child_axes) == 2

    def test_a_column_that_has_gone(self, sections):
        del sections.obs["slice"]
        lost = (
            r"^The column obs\['slice'\], by which the fit told sections apart, is not in the AnnData\. All spots "
            r"count as one section; name another column with `sample_key`\.$"
        )
        twice = (
            r"^121 of 300 spots have the same coordinates in obsm\['spatial'\] as an earlier spot \(first: 's120'\)\."
        )
        with pytest.warns(InputWarning, match=lost), pytest.warns(InputWarning, match=twice):
            assert pl.domains(sections).child_axes == []

    def test_one_of_them_is_drawn_alone(self, sections):
        one = sections[sections.obs["slice"] == "b"].copy()
        assert pl.domains(one).child_axes == []

    def test_twelve_fit_the_page(self):
        position = np.tile(_stripes()[0], (12, 1))
        samples = np.repeat(np.arange(12), 120)
        figure = plot_section(position, np.zeros(1440, int), samples=samples)
        assert max(figure.get_size_inches()) < 12
        figure.canvas.draw()
        children = panels(figure)["Domains"].child_axes
        assert len(children) == 12
        assert len({round(child.get_window_extent().width) for child in children}) == 1

    @pytest.mark.parametrize(
        ("n", "name"),
        [
            (12, "mouse_embryo_E14.5_replicate_{:02d}_slice_7_left"),
            (30, "Mouse_E14.5_S{:02d}.MOSTA.bin50"),
            (12, "A_SECTION_OF_SOME_WHOLE_MOUNT_NUMBER_{:02d}"),
        ],
    )
    def test_long_names_stand_apart_and_can_be_told_apart(self, n, name):
        position = np.tile(lattice(10, 10), (n, 1))
        samples = np.repeat([name.format(i) for i in range(n)], 100)
        figure = plot_section(position, np.zeros(100 * n, int), samples=samples)
        figure.canvas.draw()
        texts = [
            text for child in panels(figure)["Domains"].child_axes for text in child.get_children() if _is_name(text)
        ]
        assert len({text.get_text() for text in texts}) == n
        assert all(f"{i:02d}" in text.get_text() for i, text in enumerate(texts))
        assert are_apart([text.get_window_extent() for text in texts])

    def test_names_that_no_font_can_draw(self):
        tissue = place_tissue(lattice(2, 2), ["a\n", "a\n", "\udcff", "\udcff"])
        assert [section.name for section in tissue.sections] == ["a?", "?"]

    def test_samples_of_some_spots(self):
        with pytest.raises(InputError, match="Expected the section of every spot, found 1 spots without one"):
            plot_section(lattice(2, 2), np.zeros(4, int), samples=["a", "b", None, "a"])


class TestStates:
    def test_bars_are_the_shares_in_the_colours_of_the_map(self, adata):
        bars = pl.composition(adata)
        assert len(bars.patches) == 3 * 3
        np.testing.assert_allclose([bar.get_width() for bar in bars.patches], np.repeat([0.5, 0.3, 0.2], 3))
        np.testing.assert_allclose([bar.get_x() for bar in bars.patches], np.repeat([0.0, 0.5, 0.8], 3), atol=1e-12)
        assert [tick.get_text() for tick in bars.get_yticklabels()] == ["0", "1", "2"]
        assert bars.get_ylim() == (2.5, -0.5)  # no more room above and below than between bars
        legend = pl.states(adata).get_legend()
        assert [text.get_text() for text in legend.get_texts()] == ["0", "1", "2"]
        of_map = [handle.get_color() for handle in legend.legend_handles]
        assert of_map == [to_hex(bar.get_facecolor()) for bar in bars.patches[::3]]

    def test_the_map_shows_the_likeliest(self, adata):
        (drawn,) = (one for one in pl.states(adata).collections if one.get_array() is not None)
        np.testing.assert_array_equal(np.sort(drawn.get_array()), np.sort(np.arange(adata.n_obs) % 3))

    def test_states_that_are_nowhere_the_likeliest_leave_the_others_their_colours(self, adata):
        adata.obsm["pdvi_state"] = np.float32([[0.3, 0.6, 0.1], [0.3, 0.1, 0.6]])[np.arange(120) % 2]
        colours = {name: to_hex(colour) for name, colour in legend_colours(pl.states(adata)).items()}
        assert colours == dict(zip("12", palette(3)[1:], strict=True))

    @pytest.mark.parametrize(("kind", "name"), [("states", "obsm"), ("composition", "uns")])
    def test_a_fit_without_states_says_so(self, adata, kind, name):
        del adata.obsm["pdvi_state"]
        del adata.uns["pdvi"]["composition"]
        with pytest.raises(InputError, match=rf"Expected {name}\[.*found no such element. Only fits whose domains are"):
            getattr(pl, kind)(adata)

    def test_a_domain_without_spots_has_no_bar(self, adata):
        """As in one file of several that were fitted together."""
        categories = adata.obs["pdvi_domain"].cat.categories
        codes = np.where(adata.obs["pdvi_domain"].cat.codes == 1, 2, adata.obs["pdvi_domain"].cat.codes)
        adata.obs["pdvi_domain"] = pd.Categorical.from_codes(codes, categories)
        adata.uns["pdvi"]["composition"] = np.array([[0.5, 0.3, 0.2], [0.0, 0.0, 1.0], [0.1, 0.2, 0.7]])
        bars = pl.composition(adata)
        assert [tick.get_text() for tick in bars.get_yticklabels()] == ["0", "2"]
        widths = [bar.get_width() for bar in bars.patches]
        np.testing.assert_allclose(widths, [0.5, 0.1, 0.3, 0.2, 0.2, 0.7])

    def test_a_selection_has_the_rows_of_its_domains(self, adata):
        adata.uns["pdvi"]["composition"] = np.array([[0.5, 0.5], [1.0, 0.0], [0.1, 0.9]])
        bars = pl.composition(adata[adata.obs["pdvi_domain"] != "1"].copy())
        assert [tick.get_text() for tick in bars.get_yticklabels()] == ["0", "2"]
        np.testing.assert_allclose([bar.get_width() for bar in bars.patches], [0.5, 0.1, 0.5, 0.9])

    def test_a_selection_of_named_domains_has_fewer_categories_than_rows(self, adata):
        adata.obs["pdvi_domain"] = adata.obs["pdvi_domain"].cat.rename_categories(["a", "b", "c"])
        some = adata[adata.obs["pdvi_domain"] != "b"].copy()
        with pytest.raises(
            InputError, match=r"each of the 2 categories of .*, found 3 rows\. A selection of spots loses"
        ):
            pl.composition(some)

    @pytest.mark.parametrize(
        "shares", [np.ones((2, 3)), np.ones(3), np.full((3, 2), np.nan), np.array([["a"]] * 3), -np.ones((3, 2))]
    )
    def test_shares_that_no_fit_writes_are_refused(self, adata, shares):
        adata.uns["pdvi"]["composition"] = shares
        with pytest.raises(InputError, match=r"\['composition'\] of .* to hold the result of a fit"):
            pl.composition(adata)

    def test_posteriors_that_no_fit_writes_are_refused(self, adata):
        adata.obsm["pdvi_state"][5, 1] = np.nan
        with pytest.raises(InputError, match=r"obsm\['pdvi_state'\] of .*, found NaN or infinity"):
            pl.states(adata)


class TestAxes:
    @pytest.mark.parametrize("kind", KINDS)
    def test_those_of_the_user_are_drawn_on(self, adata, kind):
        figure = _figure(9, 4)
        given, other = figure.subplots(1, 2)
        axes = getattr(pl, kind)(adata, ax=given)
        assert axes is given
        assert axes.get_title()
        assert any(one.has_data() for one in (given, *given.child_axes))
        assert not other.has_data()
        assert tuple(figure.get_size_inches()) == (9, 4)
        axes.set_title("mine")
        figure.canvas.draw()

    @pytest.mark.parametrize("layout", [None, "constrained"])
    @pytest.mark.parametrize(("size", "columns"), [((6.4, 4.8), 2), ((10, 4), 2), ((2, 3), 1)])
    def test_the_title_is_as_wide_as_they_are(self, adata, layout, size, columns):
        adata.uns["pdvi"]["scores"] = {"ari": 0.499, "nmi": 0.688, "chaos": 0.06, "pas": 0.004}
        figure = _figure(*size)
        figure.set_layout_engine(layout)
        several = np.ravel(figure.subplots(1, columns))
        for axes in several:
            pl.domains(adata, ax=axes)
        figure.canvas.draw()
        for axes in several:
            assert axes.get_title() == "Domains\nARI\xa00.499   NMI\xa00.688   CHAOS\xa00.060   PAS\xa00.004"
            title, box = axes.title.get_window_extent(), axes.get_window_extent()
            assert box.x0 <= title.x0 < title.x1 <= box.x1
            assert title.y0 >= box.y1
            if layout:
                assert title.y1 <= figure.bbox.y1

    @pytest.mark.parametrize("kind", ["domains", "annotation"])
    def test_long_names_leave_room_for_the_map(self, adata, kind):
        column = {"domains": "pdvi_domain", "annotation": "annotation"}[kind]
        names = adata.obs[column].cat.categories
        adata.obs[column] = adata.obs[column].cat.rename_categories({names[1]: "a name of many words, " * 4})
        figure = _figure(4, 3)
        figure.set_layout_engine("constrained")
        axes = getattr(pl, kind)(adata, ax=figure.subplots())
        figure.canvas.draw()
        texts = [text.get_text() for text in legend_of(axes).get_texts()]
        assert texts[:3] == [names[0], "a name of many words, a…", names[2]]
        assert axes.get_window_extent().width > 0.4 * figure.bbox.width

    @pytest.mark.parametrize("kind", ["domains", "annotation"])
    def test_long_names_can_be_told_apart(self, adata, kind):
        column = {"domains": "pdvi_domain", "annotation": "annotation"}[kind]
        names = list(adata.obs[column].cat.categories)
        long = {name: f"Excitatory neurons of layer {i}" for i, name in enumerate(names[:2])}
        adata.obs[column] = adata.obs[column].cat.rename_categories(long)
        texts = [text.get_text() for text in legend_of(getattr(pl, kind)(adata)).get_texts()]
        assert len(set(texts)) == len(texts)
        assert texts[0].startswith("Excitatory")
        assert texts[0].endswith("0")

    @pytest.mark.parametrize("name", ["a$_$b", "$A$", "a$b"])
    def test_dollars_in_a_heading_are_no_formula(self, name, tmp_path):
        figure = draw_page([Panel((2.0, 2.0), lambda _: Heading(name, name))], title=None)
        figure.savefig(tmp_path / "page.png")
        assert [text.get_text() for text in figure.axes[0].texts] == [name, name]
        assert not any(text.get_parse_math() for text in figure.axes[0].texts)
        axes = _figure(3, 3).subplots()
        write_title(axes, Heading(name, ""))
        axes.figure.canvas.draw()
        assert not axes.title.get_parse_math()

    def test_without_axes_there_is_one_new_figure_of_pyplot(self, adata):
        from matplotlib import pyplot as plt

        axes = pl.domains(adata)
        assert plt.get_fignums() == [axes.figure.number]
        del adata.obsm["pdvi_flow"]
        with pytest.raises(InputError):
            pl.flow(adata)
        assert plt.get_fignums() == [axes.figure.number]

    def test_importing_costs_nothing(self):
        code = "import spatialpdvi\nassert 'pl' in dir(spatialpdvi)"
        assert loaded_by(code).isdisjoint({"matplotlib", "numpy", "anndata"})
        assert "matplotlib.pyplot" not in loaded_by(f"{code}\nspatialpdvi.pl.domains")


class TestMissing:
    @pytest.mark.parametrize(
        ("kind", "drop", "sentence"),
        [
            (
                "annotation",
                ("obs", "annotation"),
                "Expected known labels in the AnnData, found no annotation. Name a column of obs",
            ),
            ("confusion", ("obs", "annotation"), "found no annotation"),
            ("reliability", ("obs", "annotation"), "found no annotation"),
            ("flow", ("obsm", "pdvi_flow"), "The graph was not saved: fit again with `save_graph=True`."),
            ("edges", ("obsp", "pdvi_connectivities"), "The graph was not saved: fit again with `save_graph=True`."),
            ("agreement", ("obs", "pdvi_agreement"), "found no such column. Only fits with restarts"),
            ("entropy", ("obs", "pdvi_entropy"), "Expected obs['pdvi_entropy'] in the AnnData, found no such column"),
            ("domains", ("obs", "pdvi_domain"), "Run `spatialpdvi fit` first, or name its `key_added`."),
            ("trace", ("uns", "pdvi"), "Expected a fitted section"),
        ],
    )
    def test_is_said(self, adata, kind, drop, sentence):
        group, key = drop
        del getattr(adata, group)[key]
        with pytest.raises(InputError, match=re.escape(sentence)):
            getattr(pl, kind)(adata)

    def test_a_scan(self, adata):
        del adata.uns["pdvi"]["k_scan"]
        with pytest.raises(InputError, match="Expected a scan over numbers of domains"):
            pl.scan(adata)

    def test_on_the_command_line_nothing_is_written(self, adata, tmp_path):
        del adata.obsp["pdvi_connectivities"]
        path = tmp_path / "a.h5ad"
        adata.write_h5ad(path)
        done = _invoke(path, "--kind", "domains,edges", "-o", tmp_path / "a.png")
        assert done.exit_code == 2
        assert "Expected obsp['pdvi_connectivities'] in" in done.stderr
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize(
        ("kind", "group", "key", "value", "found"),
        [
            ("flow", "obsm", "pdvi_flow", np.full((120, 2), np.nan), "NaN or infinity"),
            ("flow", "obsm", "pdvi_flow", np.ones((120, 5)), "5 columns"),
            ("edges", "obsp", "pdvi_connectivities", np.ones((120, 120)), "an object of type ndarray"),
            ("entropy", "obs", "pdvi_entropy", "high", f"values of type {pd.Series(['high']).dtype}"),
        ],
    )
    def test_what_is_not_a_fits_own_is_refused(self, adata, kind, group, key, value, found):
        getattr(adata, group)[key] = value
        with pytest.raises(InputError, match=f"to hold the result of a fit, found {found}. Run "):
            getattr(pl, kind)(adata)

    def test_labels_that_nobody_has(self, adata):
        adata.obs["annotation"] = pd.Categorical([None] * 120)
        for kind in ("confusion", "reliability"):
            with (
                pytest.warns(InputWarning, match="no label at all"),
                pytest.raises(InputError, match="Expected spots with a label, found none"),
            ):
                getattr(pl, kind)(adata)


class TestSizes:
    @pytest.mark.parametrize("kind", MAPS)
    def test_sixty_spots(self, kind, tmp_path):
        position = lattice(10, 6)
        domains = (position[:, 0] // 4).astype(int)
        adata = _fitted(position, domains, annotation=np.array(["x", "y", "z"])[domains])
        axes = getattr(pl, kind)(adata)
        save_figure(axes.figure, tmp_path / "a.png", dpi=50)
        box = axes.get_window_extent()
        spots = axes.transData.transform(position)
        side = box.width / 11.5 / 2
        assert (spots - side >= [box.x0 - 1, box.y0 - 1]).all()
        assert (spots + side <= [box.x1 + 1, box.y1 + 1]).all()

    @pytest.mark.parametrize("kind", KINDS)
    def test_one_spot_per_domain(self, kind, tmp_path):
        position = np.random.default_rng(0).random((40, 2))
        adata = _fitted(position, np.arange(40), annotation=[f"label {i // 2}" for i in range(40)])
        axes = getattr(pl, kind)(adata)
        save_figure(axes.figure, tmp_path / "a.png", dpi=50)
        if kind == "confusion":
            assert axes.images[0].get_array().shape == (40, 20)
            rows, columns = np.nonzero(axes.images[0].get_array())
            np.testing.assert_array_equal(rows, np.arange(40))
            np.testing.assert_array_equal(axes.images[0].get_array()[rows, columns], 1)
            assert (np.diff(columns) >= 0).all()

    @pytest.mark.parametrize("kind", MAPS)
    def test_one_spot(self, kind):
        adata = _fitted(np.array([[3.0, 4.0]]), np.array([0]), annotation=["a"])
        warning = (
            r"^obs\['annotation'\] has only the label 'a', so that scores against it mean nothing\. Name another "
            r"column with `label_key`\.$"
        )
        with pytest.warns(InputWarning, match=warning):
            axes = getattr(pl, kind)(adata)
        axes.figure.canvas.draw()

    def test_hexagons_where_spots_lie_so(self):
        grid = lattice(20, 20)
        assert place_spots(grid * [1, np.sqrt(0.75)] + np.outer(grid[:, 1] % 2, [0.5, 0])).marker[0] == 6
        noise = np.random.default_rng(0).normal(scale=0.02, size=grid.shape)
        assert place_spots(grid + noise).marker == "s"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")  # scanpy's own
def test_scanpy_draws_the_same_colours(adata):
    import scanpy as sc

    ours = drawn_colours(pl.domains(adata), 120)
    theirs = sc.pl.embedding(adata, basis="spatial", color="pdvi_domain", show=False).collections[0]
    places = np.asarray(theirs.get_offsets())
    for place, colour in zip(places, np.resize(theirs.get_facecolors(), (120, 4)), strict=True):
        assert to_hex(colour) == to_hex(ours[tuple(place)])


def test_a_real_fit_has_every_picture(toy_file, tmp_path):
    fit = ["fit", str(toy_file), "--rep", "X_pca", "--k", "3:4", "--n-init", "3", "--save-graph", "-q"]
    fit += ["--states", "6", "--search", "1"]
    done = CliRunner().invoke(main, fit)
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(main, ["intervals", str(toy_file), "-n", "1", "--store", "-q"])
    assert done.exit_code == 0, done.output
    for suffix in ("png", "pdf"):
        kinds = ",".join(kind for kind in KINDS if kind != "image")  # the section has none
        done = _invoke(toy_file, "--kind", kinds, "-o", tmp_path / f"all.{suffix}", "--dpi", "40")
        assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A file of more spots than are drawn at a time, and how many they are."""
    n, k = 220_000, 12
    column, row = np.divmod(np.arange(n), 1100)
    domains = column // 17
    annotation = pd.Categorical.from_codes((domains + row // 600) % k, [f"layer {i}" for i in range(k)])
    adata = _fitted(np.column_stack([column, row]).astype(float), domains, annotation=annotation)
    adata.obsm["pdvi_state"] = np.tile(adata.obsm["pdvi_state"], (1, 3)) / 3
    path = tmp_path_factory.mktemp("large") / "large.h5ad"
    adata.write_h5ad(path)
    return path, n


@pytest.mark.parametrize("kinds", [["domains"], ["states"], ["annotation", "confidence", "confusion"]])
def test_memory_of_a_large_section(large, tmp_path, monkeypatch, kinds):
    """A few numbers for each spot; names, which take more time and memory than all else, are not read."""
    monkeypatch.setattr(H5adSource, "obs_names", None)
    monkeypatch.setattr(spots_module, "_BLOCK", 50_000)
    path, n = large
    tracemalloc.start()
    save_figure(plot_file(path, kinds=kinds), tmp_path / "picture.png", dpi=60)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 30_000_000 + 180 * n
