"""Figures: what is drawn where, that nothing overlaps, colours that can be told apart, files."""

import itertools
import re
from collections import Counter
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from figures import are_apart, drawn_colours, heading, lattice, legend_colours, legend_of, panels
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex, to_rgb, to_rgba
from matplotlib.figure import Figure

from spatialpdvi.errors import InputError
from spatialpdvi.palette import UNLABELLED, palette
from spatialpdvi.plotting import plot_section, save_figure
from spatialpdvi.plotting import spots as spots_module
from spatialpdvi.plotting.charts import composition_size
from spatialpdvi.plotting.description import composition_figure, contacts_figure
from spatialpdvi.plotting.intervals import intervals_figure
from spatialpdvi.plotting.labels import check_colours, check_labels, match_colours
from spatialpdvi.plotting.spots import place_spots
from spatialpdvi.plotting.tissue import place_tissue

TRACE = {
    "epoch": np.arange(6),
    "seconds": np.arange(6) / 10,
    "neg_elbo": [-3.0e6, -3.1e6, np.nan, -3.2e6, -3.25e6, -3.26e6],
    "gradient_norm": [10.0, 1.0, np.nan, 0.1, 0.01, 0.0],
}
CALIBRATION = {
    "accuracy": 0.8,
    "ece": 0.2,
    "reliability": {"confidence": [0.55, 0.98], "correct": [0.0, 0.8], "spots": [4, 236]},
    "ece_calibrated": 0.031,
    "reliability_calibrated": {"confidence": [0.65, 0.75, 0.87], "correct": [0.6, 0.8, 0.9], "spots": [60, 60, 120]},
}


def turned(places, angle):
    return places @ np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])


def count_drawn(monkeypatch):
    """The spots that matplotlib is given to draw from now on."""
    drawn = Counter()
    original = PathCollection.draw

    def draw(self, renderer):
        drawn["spots"] += len(self.get_offsets())
        original(self, renderer)

    monkeypatch.setattr(PathCollection, "draw", draw)
    return drawn


def _expect_apart(figure):
    """Panels overlap neither each other nor the title, and none is cut off."""
    figure.canvas.draw()
    boxes = [axes.get_tightbbox() for axes in panels(figure).values()]
    for box in boxes:
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert 0 <= box.y0 < box.y1 < figure._suptitle.get_window_extent().y0
    assert are_apart(boxes)


@pytest.fixture
def section():
    coordinates = 25 * lattice(12, 20)
    domains = (coordinates[:, 0] // 100).astype(int)
    names = np.array(["heart", "brain", "liver"], dtype=object)[domains]
    names[:5] = None
    return coordinates, domains, pd.Categorical(names)


@pytest.fixture
def full(section):
    coordinates, domains, annotation = section
    return plot_section(
        coordinates,
        domains,
        annotation=annotation,
        confidence=np.linspace(0.43, 1, 240),
        trace=TRACE,
        scores={"ari": 0.51234, "nmi": 0.6, "pas": 0.1, "n_spots": 240, "baseline": {}},
        calibration=CALIBRATION,
        title="A section",
    )


class TestPanels:
    def test_all_of_them_from_left_to_right(self, full):
        by_title = panels(full)
        assert list(by_title) == ["Annotation", "Domains", "Confidence", "Convergence", "Reliability"]
        boxes = [axes.get_position() for axes in by_title.values()]
        places = [(-round(box.y1, 6), box.x0) for box in boxes]  # row by row
        assert places == sorted(places)
        assert full.get_suptitle() == "A section"

    def test_only_what_is_given(self, section):
        assert list(panels(plot_section(section[0], section[1]))) == ["Domains"]
        figure = plot_section(section[0], section[1], trace=TRACE)
        assert list(panels(figure)) == ["Domains", "Convergence"]

    def test_scores_below_the_title_of_the_domains(self, full):
        assert heading(panels(full)["Domains"]) == ["Domains", "ARI 0.512   NMI 0.600   PAS 0.100"]

    def test_scores_of_more_spots_than_the_map_has_say_so(self, section):
        """As above one file of several that were fitted together."""
        figure = plot_section(section[0], section[1], scores={"ari": 0.5, "n_spots": len(section[0]) + 1})
        assert heading(panels(figure)["Domains"]) == ["Domains", "all sections: ARI 0.500"]

    def test_nothing_overlaps_and_nothing_is_cut_off(self, full):
        full.canvas.draw()
        _expect_apart(full)

    def test_a_wide_section_has_its_panels_in_rows(self):
        coordinates = lattice(40, 20)
        domains = (coordinates[:, 0] // 10).astype(int)
        figure = plot_section(
            coordinates,
            domains,
            annotation=domains,
            confidence=np.linspace(0.4, 1, 800),
            trace=TRACE,
            calibration=CALIBRATION,
            title="Wide",
        )
        _expect_apart(figure)
        assert len({round(axes.get_position().y1, 6) for axes in panels(figure).values()}) == 2

    def test_forty_domains_have_a_legend_that_fits(self):
        coordinates = lattice(40, 40)
        domains = pd.Categorical([f"a long name {i // 40}" for i in range(1600)])
        figure = plot_section(coordinates, domains, confidence=np.ones(1600))
        figure.canvas.draw()
        legend = legend_of(panels(figure)["Domains"])
        assert len(legend.get_texts()) == 40
        box, page = legend.get_window_extent(), figure.bbox
        assert box.x0 >= panels(figure)["Domains"].get_window_extent().x1
        assert box.x1 < panels(figure)["Confidence"].get_window_extent().x0
        assert page.y0 <= box.y0 < box.y1 <= page.y1

    def test_pyplot_is_not_touched(self, full):
        assert full.canvas.manager is None

    def test_three_axes_are_said_to_be_two(self, section):
        flat, domains, _ = section
        deep = np.column_stack([flat, np.arange(240)])
        assert plot_section(deep, domains).get_suptitle() == "First 2 of 3 axes"
        figure = plot_section(deep, domains, title="Embryo")
        assert figure.get_suptitle() == "Embryo (first 2 of 3 axes)"
        drawn = np.asarray(panels(figure)["Domains"].collections[0].get_offsets())
        np.testing.assert_array_equal(drawn, flat)


class TestMaps:
    def test_each_spot_has_the_colour_of_its_label(self, full, section):
        coordinates, domains, annotation = section
        entries = legend_colours(panels(full)["Annotation"])
        assert list(entries) == ["brain", "heart", "liver", "unlabelled"]
        assert entries["unlabelled"] == to_rgba(UNLABELLED)
        drawn = drawn_colours(panels(full)["Annotation"], 240)
        names = annotation.astype(object)
        for place, name in zip(coordinates, names, strict=True):
            expected = entries[name if isinstance(name, str) else "unlabelled"]
            assert drawn[tuple(place)] == pytest.approx(expected)
        # 0 is heart, 1 brain, 2 liver.
        codes = legend_colours(panels(full)["Domains"])
        assert [codes[str(i)] for i in range(3)] == [
            entries["heart"],
            entries["brain"],
            entries["liver"],
        ]
        drawn = drawn_colours(panels(full)["Domains"], 240)
        for place, domain in zip(coordinates, domains, strict=True):
            assert drawn[tuple(place)] == pytest.approx(codes[str(domain)])

    def test_y_points_down_and_both_axes_have_one_scale(self, full):
        full.canvas.draw()
        axes = panels(full)["Domains"]
        assert axes.get_ylim()[0] > axes.get_ylim()[1]
        assert axes.get_xlim()[0] < axes.get_xlim()[1]
        origin, x, y = axes.transData.transform([(0, 0), (100, 0), (0, 100)])
        assert x[0] - origin[0] == pytest.approx(origin[1] - y[1])

    @pytest.mark.parametrize("shape", [(6, 10), (140, 140), (300, 4), (4, 300)])
    def test_markers_are_as_wide_as_the_spacing_and_inside(self, shape):
        coordinates = 0.7 * lattice(*shape)
        figure = plot_section(coordinates, np.zeros(len(coordinates), int))
        figure.canvas.draw()
        axes = panels(figure)["Domains"]
        a, b = axes.transData.transform([(0, 0), (0.7, 0)])
        side = np.sqrt(axes.collections[0].get_sizes()[0]) * figure.dpi / 72
        assert side == pytest.approx(b[0] - a[0] + 1, rel=0.01)  # a dot of overlap, or paper shows between them
        side -= 1
        spots = axes.transData.transform(coordinates)
        box = axes.get_window_extent()
        assert (spots - side / 2 >= [box.x0, box.y0]).all()
        assert (spots + side / 2 <= [box.x1, box.y1]).all()

    def test_spots_are_pixels_in_vector_files(self, full):
        for title in ("Annotation", "Domains", "Confidence"):
            assert all(drawn.get_rasterized() for drawn in panels(full)[title].collections)

    def test_confidence_runs_from_a_round_number_to_one(self, full):
        (drawn,) = panels(full)["Confidence"].collections
        assert drawn.get_clim() == (pytest.approx(0.4), 1)
        np.testing.assert_array_equal(drawn.get_array(), np.linspace(0.43, 1, 240))

    def test_nobody_labelled(self):
        figure = plot_section(lattice(5, 5), np.zeros(25, int), annotation=[None] * 25)
        assert list(legend_colours(panels(figure)["Annotation"])) == ["unlabelled"]

    def test_one_spot(self):
        figure = plot_section([[3.0, 4.0]], ["a"], confidence=[1.0])
        figure.canvas.draw()
        assert list(panels(figure)) == ["Domains", "Confidence"]
        assert panels(figure)["Confidence"].collections[0].get_clim() == (pytest.approx(0.9), 1)


class TestTrace:
    def test_curves(self, full):
        left = panels(full)["Convergence"]
        (line,) = left.lines
        np.testing.assert_array_equal(line.get_xdata(), [0, 1, 3, 4, 5])
        np.testing.assert_allclose(line.get_ydata(), [-3, -3.1, -3.2, -3.25, -3.26])
        assert left.get_ylabel() == "negative ELBO ($10^{6}$ nats)"
        assert left.get_yscale() == "linear"
        (right,) = [axes for axes in full.axes if axes.get_ylabel() == "gradient norm"]
        assert right.get_yscale() == "log"
        (line,) = right.lines
        np.testing.assert_array_equal(line.get_xdata(), [0, 1, 3, 4])
        np.testing.assert_array_equal(line.get_ydata(), [10, 1, 0.1, 0.01])

    def test_stationarity_instead(self, section):
        trace = {"epoch": [1, 2], "neg_elbo": [5.0, 4.0], "stationarity": [0.1, 0.01]}
        figure = plot_section(section[0], section[1], trace=trace)
        labels = [axes.get_ylabel() for axes in figure.axes]
        assert labels[1:] == ["negative ELBO (nats)", "stationarity"]

    def test_no_gradient_no_second_axis(self, section):
        trace = {"epoch": [1, 2], "neg_elbo": [5.0, 4.0], "gradient_norm": [np.nan, np.nan]}
        assert len(plot_section(section[0], section[1], trace=trace).axes) == 2

    def test_missing_column(self, section):
        sentence = (
            "Expected a column 'neg_elbo' in the trace, found 'epoch', 'loss'. Give the trace that a fit has written."
        )
        with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
            plot_section(section[0], section[1], trace={"loss": [1], "epoch": [1]})

    def test_unequal_columns(self, section):
        sentence = (
            "Expected columns of equal length in the trace, found 2 epochs and 'neg_elbo' of "
            "shape (3,). Give the trace that a fit has written."
        )
        with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
            plot_section(section[0], section[1], trace={"neg_elbo": [1, 2, 3], "epoch": [1, 2]})


class TestReliability:
    def test_curves_bars_and_errors(self, full):
        upper, lower = panels(full)["Reliability"].child_axes
        lines = {line.get_label(): line.get_xydata() for line in upper.lines}
        posterior, calibrated = lines["posterior, ECE 0.200"], lines["calibrated, ECE 0.031"]
        np.testing.assert_allclose(posterior, [[0.98, 0.8]])  # the other bin holds 4 spots
        np.testing.assert_allclose(calibrated, [[0.65, 0.6], [0.75, 0.8], [0.87, 0.9]])
        np.testing.assert_allclose(upper.lines[0].get_xydata(), [[0, 0], [1, 1]])
        heights = [bar.get_height() for bar in lower.patches]
        np.testing.assert_allclose(heights, [4 / 240, 236 / 240, 0.25, 0.25, 0.5])
        places = [bar.get_x() + bar.get_width() / 2 for bar in lower.patches]
        np.testing.assert_array_equal(np.floor(10 * np.array(places)), [5, 9, 6, 7, 8])

    @pytest.mark.parametrize(("spots", "joined"), [(9, 1), (10, 2)])
    def test_bins_of_fewer_than_ten_spots_do_not_join_the_curve(self, section, spots, joined):
        table = {"confidence": [0.55, 0.98], "correct": [0.5, 0.8], "spots": [spots, 240 - spots]}
        figure = plot_section(section[0], section[1], calibration={"ece": 0.1, "reliability": table})
        curve, pale = panels(figure)["Reliability"].child_axes[0].lines[1:]
        assert (len(curve.get_xdata()), len(pale.get_xdata())) == (joined, 2 - joined)

    def test_without_calibration_one_curve(self, section):
        known = {key: CALIBRATION[key] for key in ("accuracy", "ece", "reliability")}
        figure = plot_section(section[0], section[1], calibration=known)
        labels = [text.get_text() for text in panels(figure)["Reliability"].child_axes[0].get_legend().get_texts()]
        assert labels == ["posterior, ECE 0.200"]

    @pytest.mark.parametrize("calibration", [None, {}, {"accuracy": 0.5, "ece": 0.1}])
    def test_without_bins_no_panel(self, section, calibration):
        assert list(panels(plot_section(section[0], section[1], calibration=calibration))) == ["Domains"]

    def test_unequal_columns(self, section):
        wrong = {"ece": 0.1, "reliability": {"confidence": [0.5], "correct": [0.5, 0.6], "spots": [3]}}
        with pytest.raises(InputError, match=r"Expected columns of equal length in 'reliability', found 'confidence'"):
            plot_section(section[0], section[1], calibration=wrong)


SCAN = {"k": [2, 3, 4, 5], "found_again": [1.5, 2.5, 3.75, 2.0], "neg_elbo": [5e3, 4e3, 3.5e3, 3.4e3]}


class TestScan:
    def test_curves_and_the_chosen_number(self, section):
        figure = plot_section(section[0], section[1], trace=TRACE, k_scan=SCAN, k=4)
        assert list(panels(figure)) == ["Domains", "Convergence", "Number of domains"]
        left = panels(figure)["Number of domains"]
        mark, curve = left.lines
        assert list(mark.get_xdata()) == [4, 4]
        assert list(curve.get_xdata()) == [2, 3, 4, 5]
        assert list(curve.get_ydata()) == SCAN["found_again"]
        assert left.get_ylabel() == "domains found again (net)"
        (right,) = [axes for axes in figure.axes if axes.get_ylabel() == "complete negative ELBO ($10^{3}$ nats)"]
        np.testing.assert_allclose(right.lines[0].get_ydata(), [5, 4, 3.5, 3.4])

    def test_the_evidence_is_drawn_where_there_is_any_since_it_decides(self, section):
        evidence = [0.1, 0.6, 0.2, 0.1]
        figure = plot_section(section[0], section[1], k_scan=SCAN | {"evidence": evidence}, k=3)
        left = panels(figure)["Number of domains"]
        assert list(left.lines[1].get_ydata()) == evidence
        assert left.get_ylabel() == "share of the evidence"

    def test_nothing_is_marked_where_nothing_was_chosen(self, section):
        figure = plot_section(section[0], section[1], k_scan=SCAN)
        assert len(panels(figure)["Number of domains"].lines) == 1

    def test_missing_and_unequal_columns(self, section):
        with pytest.raises(InputError, match="Expected a column 'found_again' in the scan, found 'k', 'neg_elbo'"):
            plot_section(section[0], section[1], k_scan={"k": [2], "neg_elbo": [1.0]})
        with pytest.raises(InputError, match="in the scan, found 4 rows of 'k' and 'neg_elbo' of shape"):
            plot_section(section[0], section[1], k_scan=SCAN | {"neg_elbo": [1.0]})
        with pytest.raises(InputError, match="Expected a column 'k' in the scan, found 'found_again'"):
            plot_section(section[0], section[1], k_scan={"found_again": [1.0]})


class TestIntervals:
    @staticmethod
    def _of_expression(rows):
        """Axes of intervals of the mean expression, drawn, from rows of estimate, lower and upper bound."""
        table = pd.DataFrame(rows, columns=["mean", "lower", "upper"])
        table = table.assign(domain="0", gene=[f"gene {i}" for i in range(len(rows))])
        figure = intervals_figure({"expression": table}, {"level": 0.9, "method": "blocks"})
        figure.canvas.draw()
        return figure.axes[0]

    def test_an_estimate_of_nothing_lies_within_its_interval(self):
        axes = self._of_expression([(0.0, 0.0, 0.5), (50.0, 40.0, 60.0), (np.nan, np.nan, np.nan)])
        lines, dots = axes.collections
        assert axes.get_xscale() == "log"
        for ((low, _), (high, _)), (dot, _) in zip(lines.get_segments()[:2], dots.get_offsets()[:2], strict=True):
            assert 0 < low <= dot <= high

    @pytest.mark.parametrize(
        ("rows", "written"),
        [
            ([(0.004, 0.002, 0.01), (2.0, 1.0, 3.0), (50.0, 40.0, 60.0)], ["0.01", "0.1", "1", "10"]),
            ([(3.0, 2.5, 45.0)], ["5", "10", "20"]),
            ([(10.0, 8.0, 12.0)], ["8", "9", "10", "11", "12"]),  # less than a decade, with one power of ten
            ([(3.0, 2.1, 4.9)], ["3", "4"]),  # and with none
        ],
    )
    def test_ticks_are_plain_numbers_that_can_be_told_apart(self, rows, written):
        axes = self._of_expression(rows)
        labels = axes.get_xticklabels()
        texts = [label.get_text() for label in labels]
        assert set(written) <= set(texts)
        assert len(set(texts)) == len(texts)
        assert not any(label.get_text() for label in axes.get_xticklabels(minor=True))
        inside = [label.get_window_extent() for label in labels if label.get_text() in written]
        assert all(one.x1 < other.x0 for one, other in itertools.pairwise(inside))

    def test_contrasts_say_which_domain_is_higher_and_pale_ones_hold_no_difference(self):
        rows = [("a", "0", "1", 1.0, 0.6, 1.4), ("b", "1", "2", -0.9, -1.2, -0.3), ("c", "0", "2", 0.1, -0.2, 0.4)]
        columns = ["gene", "domain", "other", "log2_fold_change", "lower", "upper"]
        table = pd.DataFrame(rows, columns=columns)
        figure = intervals_figure({"contrasts": table}, {"level": 0.95, "method": "blocks"})
        (axes,) = figure.axes
        assert [text.get_text() for text in axes.get_yticklabels()] == ["a  0 / 1", "b  1 / 2", "c  0 / 2"]
        lines, dots = axes.collections
        np.testing.assert_array_equal(dots.get_offsets(), [[1.0, 0], [-0.9, 1], [0.1, 2]])
        np.testing.assert_array_equal(
            lines.get_segments(), [[[low, row], [high, row]] for row, (*_, low, high) in enumerate(rows)]
        )
        dark, also_dark, pale = (tuple(colour) for colour in lines.get_color())
        assert dark == also_dark == to_rgba("#3f6fb5") != pale
        assert heading(axes) == ["Contrasts", "95 % intervals, blocks"]

    def test_of_many_rows_the_first_are_drawn(self, monkeypatch):
        monkeypatch.setattr("spatialpdvi.plotting.intervals._MOST", 2)
        axes = self._of_expression([(3.0, 2.0, 4.0), (5.0, 4.0, 6.0), (7.0, 6.0, 8.0)])
        assert [text.get_text() for text in axes.get_yticklabels()] == ["gene 0  0", "gene 1  0"]
        assert heading(axes)[1] == "90 % intervals, blocks; the first 2 of 3"

    def test_shares_are_named_by_their_type(self):
        table = pd.DataFrame({"domain": ["0"], "type": ["neuron"], "share": [0.4], "lower": [0.3], "upper": [0.5]})
        figure = intervals_figure({"composition": table}, {"level": 0.9, "method": "blocks"})
        assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["neuron  0"]


def test_rows_of_contacts_are_the_domains_whose_borders_they_share():
    rows = [
        *(("s", "b", "b", 70, np.nan), ("s", "b", "a", 8, 0.8), ("s", "b", "c", 2, 0.2)),
        *(("s", "a", "b", 8, 1.0), ("s", "a", "a", 30, np.nan), ("s", "a", "c", 0, 0.0)),
        *(("s", "c", "b", 2, 1.0), ("s", "c", "a", 0, 0.0), ("s", "c", "c", 9, np.nan)),
    ]
    table = pd.DataFrame(rows, columns=["section", "domain", "other", "contacts", "border_share"])
    (axes,) = contacts_figure(table).axes
    np.testing.assert_array_equal(axes.images[0].get_array(), [[0, 0.8, 0.2], [1, 0, 0], [1, 0, 0]])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["b", "a", "c"]
    texts = axes.texts[:-2]  # without the heading
    assert [(*text.get_position(), text.get_text()) for text in texts] == [  # column, row
        *((1, 0, "8"), (2, 0, "2"), (0, 1, "8"), (0, 2, "2")),
        *((0, 0, "–"), (1, 1, "–"), (2, 2, "–")),
    ]
    cells = {text.get_position(): text for text in texts}
    assert cells[1, 0].get_color() == "white"  # on a dark cell
    assert cells[2, 0].get_color() == "#333333"


def test_bars_of_a_composition_have_the_colours_of_their_types(monkeypatch):
    monkeypatch.setattr("spatialpdvi.plotting.description._MOST", 2)
    rows = [
        *(("one", "x", "glia", 0.7), ("one", "x", "axon", 0.3), ("one", "y", "glia", 0.1), ("one", "y", "axon", 0.9)),
        *(("two", "x", "glia", 0.2), ("two", "x", "axon", 0.8), ("two", "y", "glia", np.nan)),
        ("three", "x", "glia", 1.0),
    ]
    figure = composition_figure(pd.DataFrame(rows, columns=["section", "domain", "type", "share"]), "cell_type")
    assert figure.get_suptitle() == "The first 2 of 3 sections"
    one, two = figure.axes
    bars = [(round(bar.get_width(), 9), to_hex(bar.get_facecolor())) for bar in one.patches]
    glia, axon = palette(2)
    assert bars == [(0.7, glia), (0.1, glia), (0.3, axon), (0.9, axon)]
    assert [text.get_text() for text in two.get_yticklabels()] == ["x"]  # the section has no y
    assert one.get_legend() is None
    assert [text.get_text() for text in legend_of(two).get_texts()] == ["glia", "axon"]


def test_every_type_of_a_composition_is_in_its_legend():
    rows = [("s", domain, f"type {i}", 1 / 45) for domain in "ab" for i in range(45)]
    figure = composition_figure(pd.DataFrame(rows, columns=["section", "domain", "type", "share"]), "cell_type")
    figure.canvas.draw()
    legend = legend_of(figure.axes[0])
    assert [text.get_text() for text in legend.get_texts()] == [f"type {i}" for i in range(45)]
    box = legend.get_window_extent()
    assert box.x0 >= figure.axes[0].get_window_extent().x1
    assert box.x1 <= figure.bbox.x1
    assert box.y0 >= 0


@pytest.mark.parametrize("n_sections", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3, 5))])
@pytest.mark.parametrize("n_types", [3, 12, 45])
def test_a_long_legend_stretches_no_composition(n_sections, n_types):
    rows = [
        (f"s{section}", domain, f"type {i}", 1 / n_types)
        for section in range(n_sections)
        for domain in "abc"
        for i in range(n_types)
    ]
    figure = composition_figure(pd.DataFrame(rows, columns=["section", "domain", "type", "share"]), "cell_type")
    figure.canvas.draw()
    boxes = [axes.get_window_extent() for axes in figure.axes]
    expected = np.array(composition_size(3)) * figure.dpi
    np.testing.assert_allclose([box.size for box in boxes], np.tile(expected, (n_sections, 1)), rtol=0.05)
    legend = legend_of(figure.axes[-1]).get_window_extent()
    assert legend.y0 >= 0
    assert not any(legend.overlaps(box) for box in boxes)


class TestColours:
    def test_sixty_can_be_told_apart(self):
        colours = [*palette(60), UNLABELLED, "#ffffff"]
        rgb = np.array([to_rgb(colour) for colour in colours])
        apart = np.abs(rgb[:, None] - rgb[None]).max(axis=2) + np.eye(62)
        assert apart.min() > 0.08

    def test_shorter_palettes_are_the_beginning_of_longer_ones(self):
        for n in (0, 1, 7, 20, 33):
            assert palette(n) == palette(60)[:n]
        assert len(set(palette(200))) == 200

    def test_pairs_share_as_many_spots_as_they_can(self):
        # Domain 0 covers label 0 best, but giving it label 1 lets domain 1 have label 0: 5 + 6 > 6
        # + 0.
        domains = np.repeat([0, 0, 1], [6, 5, 6])
        annotation = np.repeat([0, 1, 0], [6, 5, 6])
        of_domains, of_labels = match_colours(domains, annotation)
        assert of_domains == [of_labels[1], of_labels[0]]

    def test_domains_in_no_pair_have_their_own(self):
        domains = np.array([0, 1, 2, 2, 3])
        annotation = np.array([0, 0, 0, 0, -1])
        of_domains, of_labels = match_colours(domains, annotation)
        assert of_labels == [palette(1)[0]]
        assert of_domains[2] == of_labels[0]
        assert len(set(of_domains)) == 4

    def test_without_overlap_no_pair(self):
        of_domains, of_labels = match_colours(np.array([0, -1]), np.array([-1, 0]))
        assert set(of_domains).isdisjoint(of_labels)

    def test_names_with_signs_that_no_font_has_keep_their_colours(self):
        assert check_colours({"a\n": "red", "b": "#00ff00"}, ["a?", "b"]) == ["#ff0000", "#00ff00"]

    def test_without_labels(self):
        assert match_colours(np.array([1, 0, 2])) == (list(palette(3)), [])


class TestLabels:
    @pytest.mark.parametrize(
        ("values", "codes", "names"),
        [
            ([3, -1, 10, 3, -7], [0, -1, 1, 0, -1], ["3", "10"]),
            ([2.0, np.nan, 10.0], [0, -1, 1], ["2", "10"]),
            (np.array(["b", None, "a"], dtype=object), [1, -1, 0], ["a", "b"]),
            (pd.Categorical(["10", "9", None], ["unused", "9", "10"]), [1, 0, -1], ["9", "10"]),
            (pd.Series(["x", "x"]), [0, 0], ["x"]),
            (pd.Series([True, False]), [1, 0], ["False", "True"]),
            (pd.Series(pd.Categorical([None, None])), [-1, -1], []),
        ],
    )
    def test_any_kind(self, values, codes, names):
        found = check_labels(values, n=len(values), what="domains")
        assert found.codes.tolist() == codes
        assert found.names == names


class TestSpots:
    def test_square_lattice(self):
        spots = place_spots(0.715 * lattice(7, 9) + 1e4)
        assert (spots.marker, spots.spacing) == ("s", pytest.approx(0.715))

    def test_scattered_cells_are_discs(self):
        assert place_spots(np.random.default_rng(0).random((300, 2))).marker == "o"

    @pytest.mark.parametrize("shape", ["square", "hexagonal"])
    def test_of_a_lattice_that_is_not_exact_hardly_any_overlap(self, shape):
        """As of Spatial Transcriptomics, whose spots are found one by one."""
        grid = lattice(16, 18)
        if shape == "hexagonal":
            grid = grid * [1, np.sqrt(0.75)] + np.outer(grid[:, 1] % 2, [0.5, 0])
        places = 200 * (grid + np.random.default_rng(0).uniform(-0.07, 0.07, size=grid.shape))
        spots = place_spots(places)
        assert spots.marker == "o"
        assert spots.width > 0.8 * spots.spacing
        apart = np.linalg.norm(places[:, None] - places, axis=2)[np.triu_indices(len(places), 1)]
        neighbours = apart[apart < 1.2 * spots.spacing]
        assert (neighbours < spots.width).mean() <= 0.02
        figure = plot_section(places, np.zeros(len(places), int))
        figure.canvas.draw()
        (drawn,) = panels(figure)["Domains"].collections
        a, b = panels(figure)["Domains"].transData.transform([(0, 0), (spots.width, 0)])
        assert np.sqrt(drawn.get_sizes()[0]) * figure.dpi / 72 == pytest.approx(b[0] - a[0])

    def test_small_ones_whose_places_are_rounded_still_tile(self):
        places = np.rint(7.3 * lattice(110, 110))
        assert place_spots(places)[2::3] == ("s", None)

    @pytest.mark.parametrize("room", [None, (5.0, 3.0)])
    def test_maps_of_sections_lie_beside_one_another_within_their_room(self, room):
        tissue = place_tissue(np.tile(lattice(6, 4), (5, 1)), np.repeat(list("abcde"), 24))
        tissue = tissue if room is None else tissue.within(room)
        assert 1 < tissue.columns < 5
        cells = tissue.cells()
        boxes = [(cell.left, cell.top, cell.left + cell.spots.size[0], cell.top + cell.spots.size[1]) for cell in cells]
        assert (np.min(boxes, axis=0)[:2] >= 0).all()
        assert np.max(boxes, axis=0)[2:] == pytest.approx(tissue.size)
        for one, other in itertools.combinations(boxes, 2):
            assert one[2] < other[0] or other[2] < one[0] or one[3] < other[1] or other[3] < one[1]

    def test_duplicates_do_not_shrink_the_spacing(self):
        assert place_spots(np.repeat(lattice(5, 5), 3, axis=0)).spacing == 1

    @pytest.mark.parametrize("repeats", [1, 3])
    def test_the_order_of_spots_does_not_matter(self, repeats):
        places = np.repeat(0.3 * lattice(60, 70), repeats, axis=0)
        some = place_spots(np.random.default_rng(0).permutation(places))
        assert some[1:4] == place_spots(places)[1:4]
        np.testing.assert_array_equal(some.box, [[0, 0], places.max(axis=0)])

    @pytest.mark.parametrize("turn", [0.0, 0.3])
    def test_strips_of_a_large_section_show_its_lattice(self, monkeypatch, turn):
        places = turned(25.0 * lattice(150, 140), turn)
        whole = place_spots(places)
        monkeypatch.setattr(spots_module, "_WHOLE", 20_000)
        monkeypatch.setattr(spots_module, "_OF_STRIP", 1_500)
        strips = place_spots(places)
        assert strips.spacing == pytest.approx(whole.spacing, rel=1e-12)
        assert (strips.marker == "s") == (turn == 0.0)
        assert strips.marker == whole.marker or strips.marker == pytest.approx(whole.marker, abs=1e-6)


@pytest.mark.cli
class TestManySpots:
    """Spots that others hide are left out, which must not change a pixel."""

    PLACES: ClassVar = {
        "square lattice": lattice(150, 140),
        "turned lattice": None,
        "hexagons": lattice(150, 140) * [1, np.sqrt(0.75)] + np.outer(lattice(150, 140)[:, 1] % 2, [0.5, 0]),
        "cells": lattice(150, 140) + np.random.default_rng(1).uniform(-0.48, 0.48, size=(21_000, 2)),
        "cells in any order": np.random.default_rng(2).normal(size=(21_000, 2)),
    }

    @staticmethod
    def pixels(places, path, dpi, *, alone=False, samples=None):
        n = len(places)
        rng = np.random.default_rng(0)
        labels = np.where(rng.random(n) < 0.1, -1, 0 if alone else np.arange(n) * 7 // n)
        figure = plot_section(
            places, np.arange(n) * 9 // n, annotation=labels, confidence=rng.random(n), samples=samples
        )
        save_figure(figure, path, dpi=dpi)
        content = path.read_bytes()
        # of an SVG the pixels alone
        return re.findall(rb'href="data:image/png;base64,([^"]+)"', content) if path.suffix == ".svg" else content

    @pytest.mark.parametrize("name", PLACES)
    @pytest.mark.parametrize("dpi", [20, 30])
    def test_blocks_have_the_pixels_of_the_whole(self, tmp_path, monkeypatch, name, dpi):
        places = turned(lattice(150, 140), 0.3) if name == "turned lattice" else self.PLACES[name]
        drawn = count_drawn(monkeypatch)
        whole = self.pixels(places, tmp_path / "picture.png", dpi)
        monkeypatch.setattr(spots_module, "_BLOCK", 2_251)
        before = drawn.pop("spots")
        assert self.pixels(places, tmp_path / "picture.png", dpi) == whole
        assert before == 6 * 21_000  # three maps, measured and drawn
        if dpi == 20:
            assert drawn["spots"] < before / 2

    def test_one_colour_sections_and_vector_files(self, tmp_path, monkeypatch):
        places, samples = lattice(150, 140), np.repeat(["a", "b"], 10_500)
        runs = [("picture.png", {"alone": True}), ("picture.png", {"samples": samples}), ("picture.svg", {})]
        whole = [self.pixels(places, tmp_path / name, 20, **choices) for name, choices in runs]
        monkeypatch.setattr(spots_module, "_BLOCK", 1_250)
        assert len(whole[2]) >= 3  # the maps are pixels in an SVG too
        assert [self.pixels(places, tmp_path / name, 20, **choices) for name, choices in runs] == whole

    def test_all_spots_at_one_place(self, tmp_path, monkeypatch):
        places = np.vstack([np.zeros((300, 2)), np.ones((300, 2))])
        whole = self.pixels(places, tmp_path / "picture.png", 40)
        monkeypatch.setattr(spots_module, "_BLOCK", 7)
        monkeypatch.setattr(spots_module, "_MOST_DOTS", 10_000)
        assert self.pixels(places, tmp_path / "picture.png", 40) == whole

    def test_large_markers_and_a_zoom(self, tmp_path, monkeypatch):
        """Blocks without a search for hidden spots, and a map that shows a corner of the section."""

        def zoomed(dpi):
            figure = plot_section(self.PLACES["cells"], np.arange(21_000) // 2_350)
            figure.axes[0].set_xlim(-2, 20)
            save_figure(figure, tmp_path / "picture.png", dpi=dpi)
            return (tmp_path / "picture.png").read_bytes()

        whole = [zoomed(dpi) for dpi in (20, 45)]
        monkeypatch.setattr(spots_module, "_BLOCK", 2_500)
        assert [zoomed(dpi) for dpi in (20, 45)] == whole


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            {"coordinates": np.zeros((3, 1))},
            ("Expected coordinates of shape (spots, 2) or (spots, 3), found (3, 1). Give one row per spot."),
        ),
        (
            {"coordinates": [[0, np.inf], [0, 0], [1, 1]]},
            (
                "Expected finite coordinates, found 1 spot with NaN or infinity. "
                "Remove these spots, or correct their coordinates."
            ),
        ),
        (
            {"domains": [0, 1]},
            (
                "Expected as many domains as spots, 3, found an array of shape (2,). "
                "Give domains and coordinates of the same spots."
            ),
        ),
        (
            {"annotation": pd.Categorical(["a"] * 4)},
            (
                "Expected as many labels as spots, 3, found an array of shape (4,). "
                "Give labels and coordinates of the same spots."
            ),
        ),
        (
            {"confidence": np.ones((3, 2))},
            (
                "Expected one confidence per spot, 3 of them, found an array of shape (3, 2). "
                "Give confidence and coordinates of the same spots."
            ),
        ),
    ],
)
def test_wrong_input(wrong, sentence):
    given = {"coordinates": [[0, 0], [0, 1], [1, 1]], "domains": [0, 1, 0]} | wrong
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        plot_section(**given)


class TestSave:
    @pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF")])
    def test_kind_by_suffix(self, section, tmp_path, name, magic):
        path = tmp_path / name
        path.write_text("old")
        save_figure(plot_section(section[0], section[1]), path)
        assert path.read_bytes().startswith(magic)
        assert list(tmp_path.iterdir()) == [path]

    def test_dots_per_inch(self, section, tmp_path):
        figure = plot_section(section[0], section[1])
        save_figure(figure, tmp_path / "a.png", dpi=50)
        width = int.from_bytes((tmp_path / "a.png").read_bytes()[16:20])
        assert width == pytest.approx(50 * figure.get_size_inches()[0], abs=1)

    def test_vector_files_stay_small(self, tmp_path):
        figure = plot_section(lattice(150, 150), np.zeros(22_500, int))
        save_figure(figure, tmp_path / "a.svg")
        assert (tmp_path / "a.svg").stat().st_size < 200_000

    def test_unknown_suffix(self, tmp_path):
        sentence = (
            "Expected a picture whose name ends in .png, .svg or .pdf, found 'a.jpg'. Give it one of these endings."
        )
        with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
            save_figure(Figure(), tmp_path / "a.jpg")

    def test_missing_folder(self, tmp_path):
        sentence = (
            f"Expected an existing folder for the picture, found '{tmp_path / 'no'}'. "
            "Make the folder first, or choose another one."
        )
        with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
            save_figure(Figure(), tmp_path / "no" / "a.png")

    def test_a_folder_in_its_place(self, tmp_path):
        (tmp_path / "a.png").mkdir()
        sentence = f"Expected '{tmp_path / 'a.png'}' to be a file to write, found a folder. Choose another `output`."
        with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
            save_figure(Figure(), tmp_path / "a.png")

    def test_no_dots(self, tmp_path):
        sentence = "Expected `dpi` to be at least 20, found 0. Give `dpi=150`, for example."
        with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
            save_figure(Figure(), tmp_path / "a.png", dpi=0)

    def test_a_failure_leaves_the_old_file(self, tmp_path, monkeypatch):
        def fail(*_, **__):
            raise MemoryError

        path = tmp_path / "a.png"
        path.write_text("old")
        figure = Figure()
        monkeypatch.setattr(figure, "savefig", fail)
        with pytest.raises(MemoryError):
            save_figure(figure, path)
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]

    def test_a_large_figure_has_as_many_dots_as_it_can(self, tmp_path, monkeypatch):
        figure, used = Figure((600, 1)), []
        monkeypatch.setattr(figure, "savefig", lambda path, dpi, **_: used.append(dpi) or path.touch())
        save_figure(figure, tmp_path / "a.png")
        assert used == [109]
        with pytest.raises(InputError, match=r"found 150, which makes 90,000 pixels along a side\. Give `dpi=109`"):
            save_figure(figure, tmp_path / "a.png", dpi=150)

    @pytest.mark.parametrize("dpi", [2401, 10**9])
    def test_too_many_dots(self, tmp_path, dpi):
        with pytest.raises(
            InputError,
            match=f"Expected `dpi` to be at most 2,400, and to make at most 65,535 pixels along a side, found {dpi}",
        ):
            save_figure(Figure(), tmp_path / "a.png", dpi=dpi)
        assert list(tmp_path.iterdir()) == []

    def test_too_many_pixels(self, tmp_path):
        with pytest.raises(
            InputError, match=r"65,535 pixels along a side, found 2000, which makes 100,000 pixels along a side"
        ):
            save_figure(Figure(figsize=(50, 2)), tmp_path / "a.png", dpi=2000)
        assert list(tmp_path.iterdir()) == []

    def test_names_are_no_formulas(self, section, tmp_path):
        names = np.array(["$x^{", "a\\frac$b$", "_c", "d\udcff\n\x07"])[np.arange(len(section[0])) % 4]
        figure = plot_section(section[0], names, annotation=names, title="$\\frac{ \udce9")
        assert figure.get_suptitle() == "$\\frac{ ?"
        labels = {text.get_text() for text in legend_of(figure.axes[0]).get_texts()}
        assert labels == {"$x^{", "a\\frac$b$", "_c", "d???"}
        for suffix in ("png", "svg", "pdf"):
            save_figure(figure, tmp_path / f"a.{suffix}")


def test_a_bin_whose_confidence_is_exactly_one_has_its_bar_in_the_last_tenth(section):
    table = {"confidence": [0.95, 1.0], "correct": [0.9, 1.0], "spots": [40, 200]}
    figure = plot_section(section[0], section[1], calibration={"ece": 0.1, "reliability": table})
    lower = panels(figure)["Reliability"].child_axes[1]
    ends = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in lower.patches]
    assert len(ends) == 2
    assert all(0.9 <= low < high <= 1.0 for low, high in ends)


@pytest.mark.parametrize("n", [30, 45])
def test_a_legend_is_no_longer_than_its_map(n):
    figure = plot_section(lattice(40, 40), np.arange(1600) % n)
    figure.canvas.draw()
    axes = panels(figure)["Domains"]
    assert len(legend_of(axes).get_texts()) == n
    assert legend_of(axes).get_window_extent().y0 >= axes.get_window_extent().y0 - 1


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_same_picture_is_the_same_file(tmp_path, ending):
    """Parts of an SVG had random names."""
    for name in ("a", "b"):
        save_figure(plot_section(lattice(12, 12), np.arange(144) % 3), tmp_path / f"{name}.{ending}")
    assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
