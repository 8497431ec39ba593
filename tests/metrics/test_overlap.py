"""The table of two labellings."""

import numpy as np

from spatialpdvi.metrics.clustering import overlap


def test_every_pair_of_labels_has_its_cell():
    first, second = np.array([0, 0, 1, 2, 2], dtype=np.int8), np.array([1, 1, 0, 3, 1])
    table = overlap(first, second, shape=(4, 4))
    assert table.tolist() == [[0, 2, 0, 0], [1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]]


def test_labels_of_few_bits_do_not_overflow():
    first = np.full(3, 120, dtype=np.int8)
    assert overlap(first, first, shape=(121, 121))[120, 120] == 3
