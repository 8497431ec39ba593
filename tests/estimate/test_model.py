"""The model by itself: every term has its coefficient, and more of anything never costs less."""

from dataclasses import replace

import numpy as np
import pytest

from spatialpdvi.estimate import cost_model
from spatialpdvi.estimate.cost_model import (
    MEMORY,
    PARALLEL,
    SECONDS,
    Work,
    predict_bytes,
    predict_seconds,
    rate_of,
)
from spatialpdvi.estimate.machine import REFERENCE, Speed, measure_speed
from spatialpdvi.features import smoothing
from spatialpdvi.graph import neighbors
from spatialpdvi.initialization import restarts
from spatialpdvi.initialization.consensus import _COMPARED

SAME = REFERENCE.relative_to(REFERENCE)
SECTION = Work(
    n=20_000,
    genes=8_000,
    values=12_000_000,
    kept_genes=3_000,
    counts_bytes=96_000_000,
    packed_bytes=96_000_000,
    file_bytes=30_000_000,
    k=20,
    states=22,
    labelled=True,
    markers=True,
)


def total(work, speed=SAME, threads=2):
    return sum(predict_seconds(work, speed, threads=threads).values())


def test_every_term_has_a_coefficient_and_none_is_left_over():
    others = replace(SECTION, block_bytes=1_000_000), replace(SECTION, gene_wise=True), replace(SECTION, n=2_000_000)
    for table, terms in ((SECONDS, Work.terms), (MEMORY, Work.memory_terms)):
        stages = terms(SECTION)
        assert list(stages) == list(table)
        for stage, names in stages.items():
            assert set(names).union(*(terms(other)[stage] for other in others)) == set(table[stage]), stage
    assert list(PARALLEL) == list(SECONDS)
    assert all(0.0 <= share <= 1.0 for share in PARALLEL.values())
    assert all(value >= 0.0 for table in (SECONDS, MEMORY) for row in table.values() for value in row.values())


def test_sizes_are_those_of_the_stages():
    assert cost_model._TRAINED_ON == restarts.LEARNT_FROM == smoothing._SAMPLED
    assert cost_model._SPARE == neighbors._SPARE
    assert smoothing.CANDIDATES[-1] == cost_model._SCALE_NEIGHBOURS - neighbors._SPARE
    assert cost_model._COMPARED == _COMPARED
    assert cost_model._MIXTURES == restarts._MIXTURES
    assert len(smoothing.SCALES) == cost_model._SCALES


@pytest.mark.parametrize(
    "name",
    [
        "n",
        "genes",
        "values",
        "counts_bytes",
        "packed_bytes",
        "file_bytes",
        "k",
        "epochs",
        "n_init",
        "flow_neighbors",
        "states",
        "search",
    ],
)
def test_more_never_costs_less(name):
    costs = []
    for factor in (1, 2, 5, 40):
        more = replace(SECTION, **{name: factor * getattr(SECTION, name)})
        if name == "genes":  # as many values, of more genes: fewer are of genes that are kept
            more = replace(more, kept_genes=factor * SECTION.kept_genes)
        costs.append((total(more), max(predict_bytes(more).values())))
    seconds, peak = np.array(costs).T
    assert (np.diff(seconds) > 0).all()
    assert (np.diff(peak) >= 0).all()


def test_a_large_section_costs_in_proportion():
    sizes = ("n", "values", "counts_bytes", "packed_bytes", "file_bytes")
    once, twice = (replace(SECTION, **{name: times * getattr(SECTION, name) for name in sizes}) for times in (50, 100))
    assert 1.8 < total(twice) / total(once) < 2.05
    assert 1.7 < max(predict_bytes(twice).values()) / max(predict_bytes(once).values()) < 2.05


def test_blocks_take_less_memory_and_are_decompressed_once_as_well():
    blocks = replace(SECTION, counts_bytes=10**10, packed_bytes=10**10, block_bytes=10**8)
    whole = replace(blocks, block_bytes=0)
    assert max(predict_bytes(blocks).values()) < 2e9 < max(predict_bytes(whole).values())
    in_blocks, at_once = (predict_seconds(work, SAME, threads=2) for work in (blocks, whole))
    assert in_blocks["read"] < 0.1
    assert 10 < in_blocks["genes"] - at_once["genes"] < at_once["read"]


def test_values_that_are_not_held_are_read_again_in_both_passes_of_the_components():
    held, read = (replace(SECTION, holds_kept=holds).terms()["PCA"]["values again"] for holds in (True, False))
    assert (held, read) == (0.0, 2 * SECTION.values)


def test_a_smoothing_scale_that_is_given_is_not_looked_for():
    found = replace(SECTION, smooth=40).terms()["smooth"]
    assert (found["scale queries"], found["neighbours"]) == (0, 20_000 * (2 * 40 + 16))
    assert SECTION.terms()["smooth"]["scale queries"] > 0


def test_copies_of_the_counts_are_in_memory_only_while_they_are_read():
    once, twice = SECTION.memory_terms(), replace(SECTION, copies=2).memory_terms()
    assert twice["read"].pop("counts") == 2 * once["read"].pop("counts") == 2 * SECTION.counts_bytes
    assert once == twice


def test_threads_and_speed():
    assert total(SECTION, threads=1) > total(SECTION, threads=2) > total(SECTION, threads=16)
    twice = Speed(2.0, 2.0, 2.0, 2.0)
    assert total(SECTION, twice) == pytest.approx(total(SECTION) / 2)
    assert {rate_of(term) for row in SECONDS.values() for term in row} == set(Speed._fields)
    found = measure_speed()
    assert all(0.02 < rate < 50 for rate in found.relative_to(REFERENCE))


@pytest.mark.usefixtures("usual_defaults")
@pytest.mark.parametrize(("n", "at_once"), [(999, 1), (1_000, 15), (10_000, 15), (15_000, 3), (20_000, 2)])
def test_a_search_uses_as_many_threads_as_it_has_tasks_at_a_time(n, at_once):
    seconds = [predict_seconds(Work(n=n, k=7, states=20), SAME, threads=t)["search"] for t in (1, at_once, 64)]
    assert seconds[1] == seconds[2] == pytest.approx(seconds[0] / at_once)


def test_ready_features_have_no_stages_of_genes():
    ready = replace(SECTION, genes=0, values=0, kept_genes=0)
    assert not {"genes", "PCA", "markers"} & (set(ready.terms()) | set(ready.memory_terms()))
    assert total(ready) < total(SECTION)
    assert replace(SECTION, given_start=True).restarts == 0
    assert 3 * replace(SECTION, smooth=0).restarts == SECTION.restarts > 0  # all scales are one without averages


def test_a_search_of_a_sample_holds_no_posteriors_of_all_spots():
    sizes = [replace(SECTION, n=n).memory_terms()["search"]["searched"] for n in (19_999, 20_000)]
    assert sizes == [8.0 * 3 * 19_999 * (SECTION.k + SECTION.states), 0.0]
