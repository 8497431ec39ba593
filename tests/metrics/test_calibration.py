"""Calibrated posteriors: their mean confidence is the agreement of the restarts."""

import numpy as np
import pytest
from conftest import plain_section

import spatialpdvi
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.section.section import read_section
from spatialpdvi.metrics.calibration import (
    Calibration,
    calibrate,
    calibration_error,
    calibration_scores,
    is_of_majority,
    reliability,
    temper,
)
from spatialpdvi.metrics.section import section_scores


def _posterior(n=2000, k=5, sharpness=8.0, seed=0):
    """Correct probabilities, a posterior whose logits are ``sharpness`` times too large, and labels drawn correctly."""
    rng = np.random.default_rng(seed)
    score = 1.5 * rng.normal(size=(n, k))
    right = np.exp(score) / np.exp(score).sum(axis=1, keepdims=True)
    truth = (right.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    sharp = np.exp(sharpness * score)
    return right, (sharp / sharp.sum(axis=1, keepdims=True)).astype(np.float32), truth


def test_the_mean_confidence_becomes_the_agreement():
    right, sharp, _ = _posterior()
    agreement = right.max(axis=1).mean()
    found = calibrate(sharp, agreement)
    assert found.posterior.max(axis=1).mean() == pytest.approx(agreement, abs=1e-4)
    assert found.temperature == pytest.approx(8.0, rel=0.05)
    np.testing.assert_allclose(found.posterior, right, atol=0.02)
    np.testing.assert_array_equal(found.posterior.argmax(axis=1), sharp.argmax(axis=1))
    np.testing.assert_allclose(found.posterior.sum(axis=1), 1.0, rtol=1e-5)


def test_the_right_temperature_removes_the_calibration_error():
    right, sharp, truth = _posterior(n=20_000)
    found = calibrate(sharp, right.max(axis=1).mean()).posterior
    correct = sharp.argmax(axis=1) == truth
    assert calibration_error(sharp.max(axis=1), correct) > 0.2
    assert calibration_error(found.max(axis=1), correct) < 0.02


def test_confidences_are_never_raised():
    right, _, _ = _posterior()
    assert calibrate(right, 0.99).temperature == 1.0
    np.testing.assert_allclose(calibrate(right, 0.99).posterior, right, rtol=1e-5)


def test_restarts_that_agree_less_than_chance_give_a_uniform_posterior():
    _, sharp, _ = _posterior()
    np.testing.assert_allclose(calibrate(sharp, 0.05).posterior, 0.2, atol=0.01)


def test_posteriors_of_zeros_and_ones_can_be_calibrated():
    found = calibrate(np.eye(4, dtype=np.float32), 0.5).posterior
    np.testing.assert_allclose(found, np.full((4, 4), 1 / 6) + np.eye(4) / 3, atol=1e-6)
    np.testing.assert_allclose(temper(np.eye(4), 1.0), np.eye(4), atol=1e-29)


def test_of_many_spots_the_temperature_is_that_of_some_from_everywhere():
    """They come in the order of their confidence, so that the first have a temperature of their own."""
    right, sharp, _ = _posterior(n=60_000)
    found = calibrate(sharp[np.argsort(sharp.max(axis=1))], right.max(axis=1).mean())
    assert found.temperature == pytest.approx(8.0, rel=0.05)


def test_the_posteriors_of_searches_are_averaged_with_the_tempered_one():
    right, sharp, _ = _posterior()
    searched = np.full_like(sharp, 0.2)
    searched[:100] = np.eye(5)[(sharp[:100].argmax(axis=1) + 1) % 5]  # another domain, for certain
    agreement = right.max(axis=1).mean()
    alone, found = calibrate(sharp, agreement), calibrate(sharp, agreement, searched=searched)
    assert found.temperature == alone.temperature
    assert found.posterior.dtype == found.confidence.dtype == np.float32
    np.testing.assert_allclose(found.posterior, (alone.posterior + searched) / 2, atol=1e-6)
    np.testing.assert_allclose(found.posterior.sum(axis=1), 1.0, rtol=1e-5)
    # confidences are of the domain that a spot has, also where another one is now more probable
    assert (found.posterior[:100].argmax(axis=1) != sharp[:100].argmax(axis=1)).mean() > 0.9
    np.testing.assert_allclose(found.confidence[:100], alone.confidence[:100] / 2, atol=1e-6)
    np.testing.assert_allclose(found.confidence[100:], (alone.confidence[100:] + 0.2) / 2, atol=1e-6)
    some = found.part(np.array([3, 150]))
    np.testing.assert_array_equal(some.confidence, found.confidence[[3, 150]])
    np.testing.assert_array_equal(some.posterior, found.posterior[[3, 150]])


def test_the_calibration_error_is_the_mean_distance_over_bins():
    confidence = np.array([0.95, 0.95, 0.95, 0.95, 0.55, 0.55, 1.0])
    correct = np.array([1, 1, 0, 0, 1, 0, 1]).astype(bool)
    bins = reliability(confidence, correct)
    assert bins["spots"].tolist() == [2, 5]
    np.testing.assert_allclose(bins["correct"], [0.5, 0.6])
    assert calibration_error(confidence, correct) == pytest.approx((2 * 0.05 + 5 * (0.96 - 0.6)) / 7)


def test_a_spot_is_correct_where_it_has_the_most_frequent_label_of_its_domain():
    domains, labels = np.array([0, 0, 0, 1, 1]), np.array([2, 2, 1, 1, 1])
    np.testing.assert_array_equal(is_of_majority(domains, labels), [True, True, False, True, True])


def test_spots_without_a_label_are_left_out_of_the_calibration():
    domains, codes = np.array([0, 0, 0, 1, 1, 1]), np.array([1, -1, 1, 0, 1, -1], dtype=np.int8)
    confidence, calibrated = np.array([0.9, 0.4, 0.7, 1.0, 0.8, 0.6]), np.array([0.5, 0.4, 0.5, 0.6, 0.5, 0.4])
    found = calibration_scores(domains, codes, confidence=confidence, calibrated=calibrated)
    known = codes >= 0
    labelled = {"confidence": confidence[known], "calibrated": calibrated[known]}
    np.testing.assert_equal(found, calibration_scores(domains[known], codes[known], **labelled))
    assert found["accuracy"] == 0.75
    assert found["reliability"]["spots"].sum() == 4
    assert calibration_scores(domains, np.full(6, -1), confidence=confidence) == {}


def test_what_is_written_can_be_recomputed(toy_section):
    section = toy_section.copy()
    result = spatialpdvi.fit(section, k=4, n_top_genes=100, n_init=2)
    temperature = section.uns["pdvi"]["params"]["temperature"]
    phi = section.obsm["pdvi_posterior"]
    calibrated = section.obsm["pdvi_posterior_calibrated"]
    np.testing.assert_allclose(calibrated, temper(phi, temperature), atol=1e-6)
    np.testing.assert_array_equal(section.obs["pdvi_confidence_calibrated"], calibrated.max(axis=1))
    accord = section.uns["pdvi"]["params"]["restart_accord"]
    assert accord < section.obs["pdvi_agreement"].mean()
    assert calibrated.max(axis=1).mean() == pytest.approx(accord, abs=1e-3)
    scores = result.scores["calibration"]
    correct = is_of_majority(result.domains, section.obs["annotation"].cat.codes.to_numpy().astype(int))
    assert scores["accuracy"] == pytest.approx(correct.mean())
    assert scores["ece_calibrated"] == pytest.approx(calibration_error(calibrated.max(axis=1), correct))
    for name, confidence in (("reliability", phi.max(axis=1)), ("reliability_calibrated", calibrated.max(axis=1))):
        bins = section.uns["pdvi"]["scores"]["calibration"][name]
        assert bins["spots"].sum() == section.n_obs
        assert np.average(bins["confidence"], weights=bins["spots"]) == pytest.approx(confidence.mean())
        assert np.average(bins["correct"], weights=bins["spots"]) == pytest.approx(correct.mean())


def test_uncertain_spots_are_at_borders(toy_section):
    result = spatialpdvi.fit(toy_section.copy(), k=4, n_top_genes=100)
    phi = result.calibration.posterior.astype(np.float64)
    entropy = -(phi * np.log(np.maximum(phi, 1e-30))).sum(axis=1)
    edges = result.graph.tocoo()
    border = np.zeros(entropy.size, dtype=bool)
    border[edges.row[result.domains[edges.row] != result.domains[edges.col]]] = True
    assert 0.05 < border.mean() < 0.5
    assert entropy[border].mean() > 2.0 * entropy[~border].mean()


def test_without_restarts_nothing_is_calibrated(toy_section):
    section = toy_section.copy()
    spatialpdvi.fit(section, k=4, n_top_genes=100, n_init=2)
    spatialpdvi.fit(section, k=4, n_top_genes=100, init="annotation")
    assert "pdvi_posterior_calibrated" not in section.obsm
    assert "pdvi_agreement" not in section.obs
    assert set(section.uns["pdvi"]["scores"]["calibration"]) == {"accuracy", "ece", "reliability"}


def test_calibrated_scores_are_of_the_confidence_in_the_domain_that_a_spot_has():
    """After searches another domain may be more probable than the one that a spot has."""
    adata = plain_section()
    adata.obs["annotation"] = ["a", "b"] * 6
    posterior = np.eye(2, dtype=np.float32)[[0, 1] * 6]
    calibration = Calibration(1.0, np.tile(np.float32([0.3, 0.7]), (12, 1)), np.float32([0.3, 0.7] * 6))
    section = read_section(AnnDataSource(adata))
    found = section_scores(section, posterior, baseline=np.arange(12) % 2, calibration=calibration)["calibration"]
    bins = found["reliability_calibrated"]
    np.testing.assert_allclose(bins["confidence"], [0.3, 0.7], rtol=1e-6)
    assert bins["spots"].tolist() == [6, 6]
