"""Scores against their definitions, worked small cases and scikit-learn."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import (
    adjusted_rand_score,
    completeness_score,
    homogeneity_score,
    normalized_mutual_info_score,
)

from spatialpdvi.errors import InputError
from spatialpdvi.metrics.clustering import adjusted_rand_index, chaos, domain_scores, pas


def chaos_by_definition(labels, coordinates):
    z = coordinates - coordinates.mean(axis=0)
    z = z / np.where(coordinates.std(axis=0) > 0, coordinates.std(axis=0), 1)
    total = 0.0
    for label in np.unique(labels):
        own = z[labels == label]
        if len(own) > 2:
            distance = np.linalg.norm(own[:, None] - own[None], axis=2)
            np.fill_diagonal(distance, np.inf)
            total += distance.min(axis=1).sum()
    return total / len(labels)


def pas_by_definition(labels, coordinates):
    n = len(labels)
    k = min(10, n - 1)
    abnormal = 0
    for i in range(n):
        squared = ((coordinates - coordinates[i]) ** 2).sum(axis=1)
        others = [j for j in range(n) if j != i]
        nearest = sorted(others, key=lambda j: (squared[j], j))[:k]
        abnormal += sum(labels[j] != labels[i] for j in nearest) > k / 2
    return abnormal / n


def square_lattice(side):
    return np.indices((side, side)).reshape(2, -1).T.astype(np.float64)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


class TestAdjustedRandIndex:
    def test_worked_case(self):
        # of 15 pairs of spots, 2 have equal labels in both, 6 in a, 3 in b:
        # (2 - 6 * 3 / 15) / ((6 + 3) / 2 - 6 * 3 / 15)
        a, b = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 1, 2, 2])
        assert adjusted_rand_index(a, b) == pytest.approx((2 - 1.2) / (4.5 - 1.2), rel=1e-15)

    @pytest.mark.parametrize("seed", range(20))
    def test_equals_scikit_learn(self, seed):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 400))
        a, b = rng.integers(0, rng.integers(1, 12, size=2)[:, None], size=(2, n))
        b = np.where(rng.random(n) < rng.random(), a, b)
        assert adjusted_rand_index(a, b) == pytest.approx(adjusted_rand_score(a, b), abs=1e-14)

    @pytest.mark.parametrize(
        ("a", "b", "expected"),
        [
            ([0, 0, 0], [0, 0, 0], 1.0),
            ([0, 1, 2], [2, 1, 0], 1.0),
            ([0, 0, 0], [0, 1, 2], 0.0),
            ([0, 0, 1, 1], [0, 0, 0, 0], 0.0),
            ([0, 0, 1, 1], [0, 1, 0, 1], -0.5),
            ([5], [3], 1.0),
        ],
    )
    def test_edges(self, a, b, expected):
        assert adjusted_rand_index(np.array(a), np.array(b)) == expected
        assert adjusted_rand_score(a, b) == pytest.approx(expected)

    def test_no_overflow_where_pairs_of_pairs_pass_64_bits(self):
        # 4e6 spots in two halves: 6.4e13 * 1.6e13 in one product.
        a = np.repeat([0, 1], 2_000_000)
        b = a.copy()
        b[:1000] = 1
        small = adjusted_rand_index(np.repeat([0, 1], 2000), np.repeat([0, 1], [1999, 2001]))
        assert adjusted_rand_index(a, b) == pytest.approx(small, abs=2e-6)

    def test_unlabelled_spots_are_left_out(self, rng):
        a, b = rng.integers(-1, 4, size=(2, 200))
        both = (a >= 0) & (b >= 0)
        assert adjusted_rand_index(a, b) == pytest.approx(adjusted_rand_score(a[both], b[both]))

    def test_nothing_labelled_is_nan(self):
        assert np.isnan(adjusted_rand_index(np.array([0, -1]), np.array([-1, 0])))

    def test_huge_codes_and_many_clusters(self, rng):
        a = rng.integers(0, 3000, size=5000)
        b = np.where(rng.random(5000) < 0.5, a, rng.integers(0, 3000, size=5000))
        expected = adjusted_rand_score(a, b)
        assert adjusted_rand_index(a, b) == pytest.approx(expected, rel=1e-12)
        assert adjusted_rand_index(a * 10**12, b) == pytest.approx(expected, rel=1e-12)

    def test_relabelling_changes_nothing(self, rng):
        a, b = rng.integers(0, 5, size=(2, 300))
        new = rng.permutation(5)
        assert adjusted_rand_index(new[a], b) == adjusted_rand_index(a, b)

    def test_inputs_are_left_alone(self):
        codes = np.array([10**12, -7, 10**12])
        adjusted_rand_index(codes, codes)
        assert codes.tolist() == [10**12, -7, 10**12]

    def test_lengths_must_agree(self):
        sentence = "Expected as many labels as domains, found 2 labels for 3 domains. Give one of each for every spot."
        with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
            adjusted_rand_index(np.zeros(3, int), np.zeros(2, int))

    def test_one_column_only(self):
        sentence = "Expected labels in one column, found an array of shape (3, 2). Give one label per spot."
        with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
            adjusted_rand_index(np.zeros((3, 2), int), np.zeros(3, int))


class TestChaos:
    def test_worked_case(self):
        # z-scores of 0, 1, 3, 4: all distances divided by sqrt(2.5); the pair on the right is
        # skipped but counted in the mean; y is constant.
        coordinates = np.array([[0.0, 9], [1, 9], [3, 9], [4, 9], [2, 9]])
        labels = np.array([0, 0, 1, 1, 0])
        assert chaos(labels, coordinates) == pytest.approx(3 / np.sqrt(2) / 5, rel=1e-14)

    @pytest.mark.parametrize("dimensions", [2, 3])
    def test_equals_the_definition(self, rng, dimensions):
        coordinates = rng.random((150, dimensions)) * [3, 1, 7][:dimensions]
        coordinates[20:30] = coordinates[10:20]  # duplicates are at distance 0
        labels = rng.integers(0, 4, size=150)
        labels[:2] = [8, 9]  # one spot alone, as is the other
        expected = chaos_by_definition(labels, coordinates)
        assert chaos(labels, coordinates) == pytest.approx(expected, rel=1e-12)

    def test_single_cluster_on_a_lattice(self):
        coordinates = square_lattice(5)
        assert chaos(np.zeros(25, int), coordinates) == pytest.approx(1 / np.sqrt(2))

    def test_units_and_relabelling_change_nothing(self, rng):
        coordinates, labels = rng.random((80, 2)), rng.integers(0, 3, size=80)
        value = chaos(labels, coordinates)
        assert chaos(2 - labels, 1e-3 * coordinates - 5) == pytest.approx(value, rel=1e-9)

    @pytest.mark.parametrize("other", [0.1, 0.3 - 0.2])
    def test_an_axis_that_is_constant_but_for_rounding_has_no_spread(self, other):
        coordinates = np.column_stack([np.arange(7.0), np.where(np.arange(7) % 2, other, 0.1)])
        assert chaos(np.zeros(7, int), coordinates) == pytest.approx(1 / np.arange(7).std())

    def test_unlabelled_spots_are_left_out(self, rng):
        coordinates, labels = rng.random((80, 2)), rng.integers(-1, 3, size=80)
        known = labels >= 0
        assert chaos(labels, coordinates) == chaos(labels[known], coordinates[known])

    def test_nothing_labelled_is_nan(self):
        assert np.isnan(chaos(np.full(3, -1), np.zeros((3, 2))))

    def test_rows_must_agree(self):
        sentence = (
            "Expected coordinates of shape (3, 2) or (3, 3), since there are 3 labels, "
            "found shape (4, 2). Give both for the same spots."
        )
        with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
            chaos(np.zeros(3, int), np.zeros((4, 2)))

    def test_coordinates_must_be_finite(self):
        sentence = (
            "Expected finite coordinates, found 1 spot with NaN or infinity. "
            "Remove these spots, or correct their coordinates."
        )
        with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
            chaos(np.zeros(2, int), np.array([[0, np.nan], [1, 1]]))


class TestPas:
    def test_six_of_ten_is_abnormal_and_five_is_not(self):
        # A spot in the middle of a ring of 10; the ring's own neighbours are of mixed label.
        angle = np.arange(10) * np.pi / 5
        coordinates = np.vstack([[[0, 0]], np.column_stack([np.cos(angle), np.sin(angle)])])
        labels = np.array([0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0])
        # Each sees all the others: those of 1 see 6 of 10 differ; those of 0 see 5.
        assert pas(labels, coordinates) == pytest.approx(5 / 11)

    @pytest.mark.parametrize("n", [2, 3, 6, 10, 11, 12, 16, 17, 120])
    def test_equals_the_definition(self, rng, n):
        coordinates, labels = rng.random((n, 2)), rng.integers(0, 3, size=n)
        assert pas(labels, coordinates) == pas_by_definition(labels, coordinates)

    def test_exactly_half_differs(self):
        # Four neighbours of five spots: two differ of four is not more than half.
        coordinates = np.arange(5.0)[:, None] * [1, 0]
        assert pas(np.array([0, 0, 0, 1, 1]), coordinates) == pytest.approx(2 / 5)

    @pytest.mark.parametrize("seed", range(3))
    def test_lattice_ties_go_to_the_smaller_index(self, seed):
        rng = np.random.default_rng(seed)
        coordinates = square_lattice(14)[rng.permutation(196)]
        labels = rng.integers(0, 2, size=196)
        assert pas(labels, coordinates) == pas_by_definition(labels, coordinates)

    @pytest.mark.parametrize("seed", range(3))
    def test_lattice_whose_pitch_is_no_binary_fraction(self, seed):
        rng = np.random.default_rng(seed)
        lattice = square_lattice(14)[rng.permutation(196)]
        labels = rng.integers(0, 2, size=196)
        assert pas(labels, 0.715 * lattice + 1000.3) == pas_by_definition(labels, lattice)

    def test_hexagonal_lattice(self, rng):
        row, column = np.indices((12, 12)).reshape(2, -1)
        doubled = np.column_stack([2 * column + row % 2, row])  # exact stand-in for squared distance
        labels = rng.integers(0, 2, size=144)
        exact = 0
        for i in range(144):
            dx, dy = (doubled - doubled[i]).T
            order = np.lexsort([np.arange(144), dx**2 + 3 * dy**2])
            exact += (labels[order[order != i][:10]] != labels[i]).sum() > 5
        assert pas(labels, doubled * [0.5, np.sqrt(0.75)]) == exact / 144

    def test_many_duplicates(self, rng):
        coordinates = rng.integers(0, 3, size=(150, 2)).astype(np.float64)
        labels = rng.integers(0, 2, size=150)
        assert pas(labels, coordinates) == pas_by_definition(labels, coordinates)

    def test_all_spots_in_one_place(self):
        labels = np.arange(40) % 2
        assert pas(labels, np.zeros((40, 2))) == pas_by_definition(labels, np.zeros((40, 2)))

    def test_more_spots_than_are_handled_at_a_time(self, rng, monkeypatch):
        coordinates, labels = square_lattice(14), rng.integers(0, 2, size=196)
        whole = pas(labels, coordinates)
        monkeypatch.setattr("spatialpdvi.metrics.clustering._BLOCK", 16 * 17)
        assert pas(labels, coordinates) == whole > 0

    def test_three_dimensions(self, rng):
        coordinates, labels = rng.random((90, 3)), rng.integers(0, 2, size=90)
        assert pas(labels, coordinates) == pas_by_definition(labels, coordinates)

    def test_single_cluster_and_single_spot(self):
        assert pas(np.zeros(49, int), square_lattice(7)) == 0
        assert pas(np.zeros(1, int), np.zeros((1, 2))) == 0
        assert np.isnan(pas(np.full(3, -1), np.zeros((3, 2))))

    def test_order_of_spots_changes_nothing_without_ties(self, rng):
        coordinates, labels = rng.random((200, 2)), rng.integers(0, 3, size=200)
        order = rng.permutation(200)
        assert pas(labels[order], coordinates[order]) == pas(2 - labels, coordinates) > 0

    def test_axes_are_not_rescaled(self, rng):
        coordinates = rng.random((200, 2)) * [1, 0.01]
        labels = (np.argsort(np.argsort(coordinates[:, 0])) // 10) % 2
        assert pas(labels, coordinates) < pas(labels, coordinates * [0.01, 100])


class TestScores:
    def test_all_of_them(self, rng):
        coordinates = square_lattice(20)
        domains = (coordinates[:, 0] // 5).astype(int)
        truth = np.where(rng.random(400) < 0.8, domains, rng.integers(0, 4, size=400))
        labels = np.where(rng.random(400) < 0.9, truth, -1)
        known = labels >= 0
        found = domain_scores(domains, coordinates, labels=labels)
        both = (labels[known], domains[known])
        assert found == pytest.approx(
            {
                "ari": adjusted_rand_score(*both),
                "nmi": normalized_mutual_info_score(*both),
                "homogeneity": homogeneity_score(*both),
                "completeness": completeness_score(*both),
                "n_scored": int(known.sum()),
                "chaos": chaos_by_definition(domains, coordinates),
                "pas": pas_by_definition(domains, coordinates),
                "n_spots": 400,
            },
            rel=1e-12,
        )
        assert {type(value) for value in found.values()} == {float, int}

    def test_without_labels(self):
        found = domain_scores(np.zeros(9, int), square_lattice(3))
        assert sorted(found) == ["chaos", "n_spots", "pas"]

    def test_homogeneity_and_completeness_are_not_exchanged(self):
        found = domain_scores(np.arange(9), square_lattice(3), labels=np.repeat([0, 1, 2], 3))
        assert found["homogeneity"] == pytest.approx(1)
        assert found["completeness"] == pytest.approx(0.5)

    def test_labels_of_any_kind(self):
        coordinates, domains = square_lattice(3), np.repeat([0, 1, 2], 3)
        names = np.array(["b", "b", None, "a", "a", "b", "c", "c", "c"], dtype=object)
        codes = np.array([1, 1, -1, 0, 0, 1, 2, 2, 2])
        expected = domain_scores(domains, coordinates, labels=codes)
        numbers = np.where(codes < 0, np.nan, codes + 0.5)
        for labels in (names, pd.Categorical(names), pd.Series(names), numbers):
            assert domain_scores(pd.Series(pd.Categorical(domains)), coordinates, labels=labels) == expected

    def test_no_spot_labelled(self):
        found = domain_scores(np.zeros(9, int), square_lattice(3), labels=pd.Categorical([None] * 9))
        assert found["n_scored"] == 0
        assert np.isnan([found[key] for key in ("ari", "nmi", "homogeneity", "completeness")]).all()
        assert found["chaos"] > 0

    def test_as_many_labels_as_domains(self):
        sentence = "Expected as many labels as domains, found 8 labels for 9 domains. Give one of each for every spot."
        with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
            domain_scores(np.zeros(9, int), square_lattice(3), labels=np.zeros(8, int))
