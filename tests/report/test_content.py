"""The values in the tables of a report."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from spatialpdvi.io.results.expression import Expression
from spatialpdvi.io.results.fitted import Fitted
from spatialpdvi.metrics.stored import measured_calibration
from spatialpdvi.report.content import (
    Gene,
    Material,
    certificate_table,
    confidence_table,
    domain_rows,
    scan_table,
    score_table,
)
from spatialpdvi.report.reading import _mapped


def test_the_table_of_domains_counts_labelled_spots_and_calibrated_confidence():
    fitted = Fitted(
        coordinates=None,
        domains=pd.Categorical(["0", "0", "0", "0", "1"]),
        annotation=pd.Categorical(["a", "a", "b", None, None]),
        confidence=np.full(5, 0.9),
        calibrated=np.array([0.5, 0.5, 0.7, 0.7, 0.4]),
        colours=None,
        summary={},
        samples=None,
    )
    material = Material(path=None, name="a", fitted=fitted, spot_names=())
    first, second = domain_rows(material)
    assert (first.label, first.label_share) == ("a", pytest.approx(2 / 3))
    assert (first.confidence, second.confidence) == (pytest.approx(0.6), pytest.approx(0.4))
    assert not second.label
    assert np.isnan(second.label_share)


def test_tables_of_the_report():
    fitted = SimpleNamespace(confidence=np.array([0.5, 0.89, 0.9, 1.0]), calibrated=None)
    (row,) = confidence_table(SimpleNamespace(fitted=fitted))
    assert row == ["posterior", "0.823", "0.895", "50%"]
    heads, rows = scan_table({"k": [2, 3], "evidence": [0.25, 0.75], "smallest": [1200, 3]})
    assert heads == ["K", "evidence", "smallest"]
    assert rows == [["2", "0.250", "1,200"], ["3", "0.750", "3"]]


def test_both_confidences_are_measured_against_the_annotation():
    n = 60
    fitted = SimpleNamespace(
        domains=pd.Categorical(["0"] * n), annotation=pd.Categorical(["a"] * 45 + ["b"] * 15),
        confidence=np.full(n, 0.95), calibrated=np.full(n, 0.75),
    )  # fmt: skip
    found = measured_calibration(fitted)
    assert found["ece"] == pytest.approx(0.2)
    assert found["ece_calibrated"] == pytest.approx(0.0)


def test_genes_of_one_name_are_not_mapped():
    counts = sp.csr_matrix(np.array([[1, 9, 3], [5, 0, 2]], dtype=np.float32))
    found = Expression(counts, np.array(["g", "g", "h"], dtype=object), pd.Categorical(["0", "1"]))
    genes = {"0": [Gene("g", 1.0, 1.0, 0.0), Gene("h", 1.0, 1.0, 0.0)], "1": [Gene("g", 1.0, 1.0, 0.0)]}
    (only,) = _mapped(found, genes)
    assert (only.name, only.domain) == ("h", "0")
    expected = np.rint(10 * np.log1p(1e4 * counts.toarray()[:, 2] / counts.toarray().sum(axis=1)))
    np.testing.assert_array_equal(only.tenths, expected)


def test_an_edited_file_of_a_joint_fit_is_compared_with_its_own_start():
    of_files = {"sample": ["left", "right"], "ari": [0.3, 0.1], "n_spots": [4, 9]}
    scores = {"ari": 0.5, "n_spots": 4, "baseline": {"ari": 0.2, "samples": of_files}, "trivial": {"ari": 0.05}}
    fitted = Fitted(
        coordinates=None,
        domains=pd.Categorical(list("0011")),
        confidence=np.ones(4),
        calibrated=None,
        annotation=None,
        colours=None,
        summary={"scores": scores, "params": {}},
        samples=None,
    )
    heads, rows = score_table(Material(path=Path("left.h5ad"), name="left", fitted=fitted, spot_names=()))
    assert heads == ["", "ARI"]
    assert rows == [
        ["domains", "0.500"],
        ["start of the fit", "0.300"],
        ["k-means on the smoothed features (all sections)", "0.050"],
    ]


def test_each_number_of_a_certificate_stands_beside_its_own_tolerance():
    names = ("relative_change", "gradient_norm", "stationarity_mean", "stationarity_log_variance")
    names += ("stationarity_posterior", "stationarity_posterior_max")
    certificate = SimpleNamespace(
        **dict.fromkeys(names, 1e-9), stationarity_composition=None, tolerance=1e-3, tolerance_objective=1e-7
    )
    assert {name: limit for name, _, _, limit in certificate_table(certificate)} == {
        "relative_change": "1e-07",
        "stationarity_mean": "1e-03",
        "stationarity_log_variance": "1e-03",
        "stationarity_posterior": "1e-03",
        "stationarity_posterior_max": "–",
        "gradient_norm": "–",
    }
