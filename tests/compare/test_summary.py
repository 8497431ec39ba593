"""The table, by hand."""

import pytest

from spatialpdvi.compare.summary import best_by_seed, markdown, summarise


@pytest.fixture
def runs(make_run):
    return [
        make_run("good", 0, [-100.0, -999.5, -1000.0], ari=0.5, converged=True),
        make_run("good", 1, [-100.0, -1000.0, -2000.0, -1990.0], ari=0.7),
        make_run("slow", 0, [-100.0, -500.0, -900.0], ari=0.4),
        make_run("slow", 1, [-100.0, -1000.0, -1998.0], ari=0.4),
        make_run("wild", 0, [-100.0, None], ari=0.4, failed=True, step=10.0),
        make_run("wild", 1, [-100.0, -5000.0, None], ari=0.4, failed=True, step=10.0),
    ]


def test_the_best_is_the_lowest_that_was_seen_by_a_run_that_did_not_fail(runs):
    assert best_by_seed(runs) == {0: -1000.0, 1: -2000.0}


def test_a_row_per_solver(runs):
    good, slow, wild = summarise(runs)
    assert good["solver"] == "good"
    assert good["neg_elbo"] == -1495.0
    assert good["gap"] == pytest.approx((0 + 10 / 2000) / 2)
    assert good["epochs_to_near_best"] == good["seconds_to_near_best"] == 1.5  # epoch 1 of seed 0, epoch 2 of seed 1
    assert (good["n_near_best"], good["n_converged"], good["n_runs"], good["n_failed"]) == (2, 1, 2, 0)
    assert good["ari_mean"] == pytest.approx(0.6)
    assert good["ari_sd"] == pytest.approx(0.2 / 2**0.5)
    assert (slow["n_near_best"], slow["epochs_to_near_best"]) == (1, 2.0)
    assert wild["n_failed"] == 2
    assert wild["step"] == 10.0
    assert wild["neg_elbo"] is wild["gap"] is wild["ari_mean"] is wild["epochs_to_near_best"] is None


def test_gaps_do_not_depend_on_where_zero_is(make_run):
    rows = []
    for zero in (0.0, 1e6):
        values = {"good": [0.0, -3.0], "slow": [0.0, -1.5]}
        rows.append(
            summarise([make_run(name, 0, [zero + f for f in own], scale=100.0) for name, own in values.items()])
        )
    assert rows[0][1]["gap"] == rows[1][1]["gap"] == 0.015
    assert rows[0][1]["n_near_best"] == rows[1][1]["n_near_best"] == 0


def test_the_table_in_words(runs):
    lines = markdown(summarise(runs)).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(lines) == 5
    assert "2.0 (1 of 2)" in lines[3]
    assert "0 of 2, 2 failed" in lines[4]
    assert lines[4].count("never") == 2
    assert "0.600 ± 0.141" in lines[2]


def test_without_labels_and_with_one_seed(make_run):
    (row,) = summarise([make_run("a", 0, [-1.0, -2.0])])
    assert row["ari_mean"] is row["ari_sd"] is None
    assert summarise([make_run("a", 0, [-1.0, -2.0], ari=0.3)])[0]["ari_sd"] == 0.0
