"""Fits with less address space than one dense matrix of spots x genes, or of spots x spots, would take."""

import json
import os
import subprocess
import sys

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no limit of address space here")

K = 4
THREADS = {f"{name}_NUM_THREADS": "1" for name in ("NUMBA", "OMP", "OPENBLAS", "MKL")}  # each takes room for itself
# what is loaded is no part of the limit: it differs between machines
LOADED = """
import scanpy, sklearn.cluster, sklearn.mixture, skmisc.loess, sknetwork.clustering
import spatialpdvi.fitting.fit, spatialpdvi.io.results.writing
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmPeak")))
"""
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
from spatialpdvi.cli import main
main(sys.argv[2:])
"""


def _python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | THREADS,
        capture_output=True,
        text=True,
        check=False,
    )


def _write_section(path, n, genes):
    """Bands of tissue on a lattice, 16 molecules a spot, half of them of its band's fifty genes; not compressed."""
    rng = np.random.default_rng(0)
    xy = np.column_stack(np.divmod(np.arange(n), int(np.ceil(np.sqrt(n))))).astype(float)
    band = (K * xy[:, 0] // (xy[:, 0].max() + 1)).astype(int)
    own = 50 * band[:, None] + rng.integers(50, size=(n, 8))
    columns = np.hstack([own, rng.integers(genes, size=(n, 8))]).ravel()
    counts = sp.csr_matrix((np.ones(columns.size, np.float32), (np.repeat(np.arange(n), 16), columns)), (n, genes))
    obs = pd.DataFrame({"annotation": pd.Categorical(band.astype(str))}, index=np.arange(n).astype(str))
    ad.AnnData(counts, obs=obs, obsm={"spatial": xy}).write_h5ad(path)


@pytest.fixture(scope="module")
def loaded():
    """Bytes of address space that the libraries take, on one thread."""
    found = _python(LOADED)
    assert found.returncode == 0, found.stderr
    return 1024 * int(found.stdout)


@pytest.mark.parametrize(
    ("n", "genes", "room", "least_ari"),
    [
        pytest.param(25_000, 24_000, 1.0e9, 0.9, id="many genes", marks=[pytest.mark.cli, pytest.mark.longest]),
        pytest.param(200_000, 2_000, 1.4e9, 0.9, id="many spots", marks=[pytest.mark.slow, pytest.mark.longest]),
    ],
)
def test_a_fit_needs_no_dense_matrix(n, genes, room, least_ari, loaded, tmp_path):
    path, report = tmp_path / "section.h5ad", tmp_path / "report.json"
    _write_section(path, n, genes)
    dense = 4 * n * min(genes, n)
    assert room < 0.9 * dense
    limit = int(loaded + room)
    short = ("--n-init", 1, "--max-epochs", 3, "--tol", 1, "--tol-objective", 1)
    fit = ("fit", path, "--k", K, *short, "-o", tmp_path / "out.h5ad", "-q")
    done = _python(LIMITED, limit, *fit, "--report", report)
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    assert found["params"]["n_spots"] == n
    assert found["scores"]["ari"] > least_ari
    assert [len(names) for names in found["markers"].values()] == [10] * K
    assert found["peak_memory_bytes"] < room
    # residuals are dense: under the same limit they cannot be made
    refused = _python(LIMITED, limit, *fit, "--transform", "pearson", "--n-top-genes", genes)
    assert refused.returncode == 2
    assert "There is not enough memory: an array of shape" in refused.stderr
