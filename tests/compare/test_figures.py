"""The two pictures: what is drawn, and in which colours."""

import numpy as np
import pandas as pd
import pytest
from figures import are_apart, drawn_colours
from matplotlib.colors import to_hex

from spatialpdvi.compare.convergence import band, draw_convergence
from spatialpdvi.compare.maps import draw_maps
from spatialpdvi.palette import UNLABELLED, palette


def test_a_band_is_mean_and_sd_with_ended_runs_held():
    xs = [np.array([0.0, 1.0]), np.array([0.0, 1.0, 2.0])]
    ys = [np.array([4.0, 2.0]), np.array([4.0, 4.0, 6.0])]
    curve = band(xs, ys, np.arange(3.0))
    np.testing.assert_allclose(curve.middle, [4, 3, 4])
    np.testing.assert_allclose(curve.spread, [0, 2**0.5, 8**0.5])
    assert (band(xs[:1], ys[:1], np.arange(2.0)).spread == 0).all()


def _panels(figure):
    return {(axes.get_xlabel(), axes.get_ylabel().split(" (")[0]): axes for axes in figure.axes if axes.axison}


def test_convergence_has_every_panel_and_the_curves_of_runs_that_did_not_fail(make_run):
    runs = [
        make_run("a", 0, [-10.0, -20.0, -30.0], ari=0.5, converged=True),
        make_run("a", 1, [-12.0, -22.0, -32.0], ari=0.5, converged=True),
        make_run("b", 0, [-10.0, None], ari=0.5, failed=True),
        make_run("b", 1, [-12.0, -20.0, -20.0], ari=0.5),
    ]
    figure = draw_convergence(runs)
    panels = _panels(figure)
    assert set(panels) == {
        ("epoch", "negative ELBO F"),
        ("seconds in the solver", "negative ELBO F"),
        ("epoch", "ARI"),
        ("epoch", "F above the seed's best, of the scale"),
        ("seconds in the solver", "F above the seed's best, of the scale"),
        ("epoch", "gradient norm of the globals"),
    }
    objective = panels["epoch", "negative ELBO F"]
    # the best of the seeds are -30 and -32: curves are moved to their mean, and so lie on one another
    np.testing.assert_allclose(objective.lines[0].get_ydata(), [-11, -21, -31])
    assert objective.lines[1].get_marker() == "o"  # all runs of a converged
    np.testing.assert_allclose(objective.lines[2].get_ydata(), [-11, -19, -19])
    assert len(objective.lines) == 3
    gradient = panels["epoch", "gradient norm of the globals"]
    assert gradient.get_yscale() == "log"
    np.testing.assert_allclose(gradient.lines[0].get_ydata(), [1, 0.1, 0.01])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b (1 of 2 failed)"]
    low, high = objective.collections[0].get_datalim(objective.transData).intervaly
    assert (low, high) == pytest.approx((-31, -11))


def test_convergence_without_labels_has_no_ari(make_run):
    figure = draw_convergence([make_run("a", 0, [-10.0, -20.0])])
    assert not any(label == "ARI" for _, label in _panels(figure))
    assert figure.legends[0].get_title().get_text() == "one seed"


def test_convergence_can_be_drawn_when_every_run_failed(make_run, tmp_path):
    figure = draw_convergence([make_run("a", 0, [-10.0, None], failed=True)])
    figure.savefig(tmp_path / "c.png")
    assert "failed" in figure.legends[0].get_texts()[0].get_text()


def _colours(axes, xy):
    found = drawn_colours(axes, len(xy))
    return [to_hex(found[tuple(place)]) for place in xy]


def test_maps_show_the_annotation_first_and_domains_in_its_colours(make_run, tmp_path):
    xy = np.array([[i % 4, i // 4] for i in range(12)], dtype=float)
    annotation = pd.Categorical(["u"] * 4 + ["v"] * 4 + ["w"] * 4)
    domains = [2] * 4 + [0] * 4 + [1] * 3 + [3]
    runs = [
        make_run("a", 0, [-1.0, -2.0], ari=0.9123, domains=domains),
        make_run("b", 0, [-1.0, None], failed=True, domains=[-1] * 12),
    ]
    figure = draw_maps(xy, None, annotation, runs)
    figure.savefig(tmp_path / "m.png")
    first, a, b = figure.axes
    assert "Annotation" in [text.get_text() for text in first.texts]
    assert a.texts[0].get_text() == "a  ARI 0.912"
    assert b.texts[0].get_text() == "b  failed"
    u, v, w, own = palette(4)
    assert _colours(a, xy) == [u] * 4 + [v] * 4 + [w] * 3 + [own]
    assert set(_colours(b, xy)) == {UNLABELLED}
    boxes = [axes.get_position() for axes in figure.axes]
    assert boxes[0].x1 < boxes[1].x0
    assert are_apart(boxes)


def test_sections_that_lie_upon_each_other_have_a_map_each(make_run):
    xy = np.array([[i % 4, i // 4] for i in range(12)], dtype=float)
    runs = [make_run("a", 0, [-1.0], domains=([0] * 6 + [1] * 6) * 2)]
    figure = draw_maps(np.vstack([xy, xy]), pd.Categorical(["one"] * 12 + ["two"] * 12), None, runs)
    figure.draw_without_rendering()
    maps = figure.axes[0].child_axes
    assert [axes.get_title(loc="left") for axes in maps] == ["one", "two"]
    assert _colours(maps[0], xy) == _colours(maps[1], xy)
    assert are_apart([axes.get_position() for axes in maps])


def test_maps_without_labels_match_the_first_solver(make_run):
    xy = np.array([[i % 4, i // 4] for i in range(8)], dtype=float)
    runs = [
        make_run("a", 0, [-1.0], domains=[0] * 4 + [1] * 4),
        make_run("b", 0, [-1.0], domains=[1] * 4 + [0] * 4),
    ]
    a, b = draw_maps(xy, None, None, runs).axes
    assert a.texts[0].get_text() == "a"
    assert _colours(a, xy) == _colours(b, xy)
    assert len(set(_colours(a, xy))) == 2


def test_maps_without_labels_match_the_first_solver_that_did_not_fail(make_run):
    xy = np.array([[i % 4, i // 4] for i in range(8)], dtype=float)
    runs = [
        make_run("a", 0, [-1.0, None], failed=True, domains=[-1] * 8),
        make_run("b", 0, [-1.0], domains=[0] * 4 + [1] * 4),
        make_run("c", 0, [-1.0], domains=[1] * 4 + [0] * 4),
    ]
    a, b, c = draw_maps(xy, None, None, runs).axes
    assert set(_colours(a, xy)) == {UNLABELLED}
    assert _colours(b, xy) == _colours(c, xy)
    assert [axes.texts[0].get_text() for axes in draw_maps(xy, None, None, runs[:1]).axes] == ["a  failed"]


def test_titles_of_narrow_maps_do_not_touch(make_run):
    xy = np.array([[i % 3, i // 3] for i in range(60)], dtype=float)
    runs = [make_run(f"a-long-name-{i}", 0, [-1.0], ari=0.5, domains=[0] * 30 + [1] * 30) for i in range(5)]
    figure = draw_maps(xy, None, None, runs)
    figure.draw_without_rendering()
    right = figure.bbox.x1
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    assert are_apart(boxes)
    assert all(box.x0 >= 0 and box.x1 <= right for box in boxes)


def test_the_distance_from_the_best_is_relative_to_the_scale(make_run):
    runs = [make_run("a", 0, [-10.0, -20.0], scale=500.0), make_run("b", 0, [-10.0, -15.0], scale=500.0)]
    gap = _panels(draw_convergence(runs))["epoch", "F above the seed's best, of the scale"]
    np.testing.assert_allclose(gap.lines[0].get_ydata(), [10 / 500, 1e-8])  # the best itself is drawn at the floor
    np.testing.assert_allclose(gap.lines[1].get_ydata(), [10 / 500, 5 / 500])


def test_a_solver_of_which_one_run_has_not_converged_ends_in_no_dot(make_run):
    runs = [make_run("a", seed, [-10.0, -20.0], converged=seed == 0) for seed in range(2)]
    for axes in _panels(draw_convergence(runs)).values():
        assert [line.get_marker() for line in axes.lines] == ["None"]


def test_curves_over_seconds_begin_at_the_start_of_the_solver(make_run):
    panels = _panels(draw_convergence([make_run("a", 0, [-10.0, -20.0, -30.0])]))
    x, y = panels["seconds in the solver", "negative ELBO F"].lines[0].get_data()
    assert (x[0], y[0]) == (0, -10)
    assert (x[1], y[1]) == pytest.approx((1, -20))
    assert (x[-1], y[-1]) == pytest.approx((2, -30))
