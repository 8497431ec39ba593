"""The table of two labellings, and the pairs that it gives."""

import numpy as np

from spatialpdvi.metrics.clustering import best_pairs, overlap


def test_every_pair_of_labels_has_its_cell():
    first, second = np.array([0, 0, 1, 2, 2], dtype=np.int8), np.array([1, 1, 0, 3, 1])
    table = overlap(first, second, shape=(4, 4))
    assert table.tolist() == [[0, 2, 0, 0], [1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]]


def test_a_spot_without_one_of_the_labels_is_not_counted():
    table = overlap(np.array([0, -1, 1, 1]), np.array([1, 0, -1, 0]), shape=(2, 2))
    assert table.tolist() == [[0, 1], [1, 0]]


def test_labels_of_few_bits_do_not_overflow():
    first = np.full(3, 120, dtype=np.int8)
    assert overlap(first, first, shape=(121, 121))[120, 120] == 3


def test_labels_are_paired_by_the_spots_that_pairs_have_in_common_and_those_without_any_are_not():
    # 0 with 1 alone would have more spots than 0 with 0, and leave 1 with none
    assert best_pairs(np.array([[5, 6, 0], [0, 4, 0], [0, 0, 0]])) == [(0, 0), (1, 1)]
    assert best_pairs(np.array([[3, 0], [2, 0]])) == [(0, 0)]
    assert best_pairs(np.zeros((2, 3), dtype=np.int64)) == []
