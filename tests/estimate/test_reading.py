"""Sizes from metadata: what the file holds, however it is stored, and nothing of it is read."""

import numpy as np
import pytest
import scipy.sparse as sp

from spatialpdvi import FitOptions, InputError, InputWarning
from spatialpdvi.estimate.estimate import estimate_file
from spatialpdvi.estimate.machine import REFERENCE
from spatialpdvi.estimate.plan import plan_fit
from spatialpdvi.fitting.inputs import read_inputs
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.runtime.memory import SPOT_BYTES


@pytest.fixture
def store(toy_section, tmp_path):
    """A file of the toy section with its counts in another form."""

    def write(form, **how):
        section = toy_section.copy()
        section.X = form(section.X)
        path = tmp_path / "section.h5ad"
        section.write_h5ad(path, **how)
        return path

    return write


def plan(path, *, markers=True, **options):
    return plan_fit(path, FitOptions(**{"k": 4, **options}), markers=markers)


@pytest.mark.parametrize("how", [{}, {"compression": "gzip"}])
def test_rows(store, toy_section, monkeypatch, how):
    path = store(sp.csr_matrix, **how)
    monkeypatch.setattr(H5adSource, "matrix", None)  # reading it would fail
    found = plan(path, n_top_genes=100)
    counts = sp.csr_matrix(toy_section.X)
    size = counts.data.nbytes + counts.indices.nbytes + counts.indptr.nbytes
    work = found.work
    assert (work.n, work.genes, work.values, work.kept_genes) == (600, 150, counts.nnz, 100)
    assert (work.counts_bytes, work.packed_bytes) == (size, size if how else 0)
    assert (work.labelled, work.markers, work.block_bytes, work.copies) == (True, True, 0, 1)
    assert (found.source, found.layout.storage, found.needed) == ("X", "csr", 2 * size + 600 * SPOT_BYTES)
    assert work.file_bytes == path.stat().st_size


def test_a_dense_matrix_by_its_share_of_zeros(store, toy_section):
    found = plan(store(lambda x: x.toarray()))
    true = sp.csr_matrix(toy_section.X).nnz
    assert found.layout.storage == "dense"
    assert found.work.values == pytest.approx(true, rel=0.05)
    assert found.work.copies == 2


def test_columns_cannot_be_read_in_blocks(store):
    path = store(sp.csc_matrix)
    found = plan(path)
    assert (found.layout.storage, found.work.block_bytes, found.work.copies) == ("csc", 0, 2)
    with pytest.warns(
        InputWarning,
        match=r"^The counts in X are stored by columns \(CSC\), so that .* needs `memory='.*'`\. To need less",
    ):
        assert plan(path, memory="1KB").work.block_bytes == 0


@pytest.mark.parametrize("memory", ["1KB", "100KB", "1MB", "1GB"])
@pytest.mark.parametrize("form", [sp.csr_matrix, lambda x: x.toarray()])
def test_whether_in_memory_is_as_the_fit_decides(store, form, memory):
    path = store(form)
    with H5adSource(path) as source:
        matrix = read_inputs(source, FitOptions(k=3, memory=memory)).counts
    assert bool(plan(path, memory=memory).work.block_bytes) == (not isinstance(matrix, sp.csr_matrix))


def test_features_that_are_ready(toy_file):
    found = plan(toy_file, rep="X_pca")
    assert (found.source, found.work.genes, found.work.width) == ("obsm['X_pca']", 0, 8)
    assert plan(toy_file, rep="X_pca", n_pcs=3).work.width == 3


def test_columns_are_components_where_their_key_says_so(toy_section, tmp_path):
    section = toy_section.copy()
    section.obsm["X_pca"] = section.obsm["X_other"] = np.zeros((600, 40))
    section.write_h5ad(tmp_path / "section.h5ad")
    widths = [plan(tmp_path / "section.h5ad", rep=rep).work.width for rep in ("X_pca", "X_other")]
    assert widths == [15, 40]  # a fit takes the first of many components, and all of other columns


def test_blocks_of_a_tall_section_hold_the_values_that_are_kept_where_memory_allows_it(store, monkeypatch):
    path = store(sp.csr_matrix)
    assert not plan(path, memory="1KB", n_top_genes=3).work.holds_kept
    for options in ({"n_top_genes": 4}, {"n_top_genes": 3, "n_pcs": 0}):  # not tall, or genes themselves
        assert plan(path, memory="1KB", **options).work.holds_kept
    monkeypatch.setattr("spatialpdvi.estimate.plan.fit_bytes", lambda n, values: n)
    assert plan(path, memory="1KB", n_top_genes=3).work.holds_kept


def test_the_range_of_epochs_ends_where_the_fit_must(toy_file, monkeypatch):
    monkeypatch.setattr("spatialpdvi.estimate.estimate.measure_speed", lambda: REFERENCE)
    for most, expected in ((5, (5, 5)), (30, (8, 30)), (500, (8, 60))):
        found = estimate_file(toy_file, FitOptions(k=4, max_epochs=most))
        assert found.epochs_range == expected
        assert (found.seconds_range[0] < found.seconds_range[1]) == (most > 8)


def test_a_fit_of_genes_does_more_and_holds_them(toy_file):
    components, genes = plan(toy_file, n_top_genes=75).work, plan(toy_file, n_pcs=0, n_top_genes=75).work
    assert genes.gene_wise
    assert not components.gene_wise
    assert genes.kept == components.kept > 0
    assert genes.width == components.width == 15  # the start is made of components nevertheless
    assert genes.terms()["fit"]["gene updates"] == genes.epochs * genes.k * genes.kept
    assert components.terms()["fit"]["gene updates"] == 0
    assert genes.memory_terms()["fit"]["fitted genes"] == 8 * genes.kept  # value and column, four bytes each


@pytest.mark.usefixtures("usual_defaults")
def test_options_are_in_it(toy_file):
    assert plan(toy_file, max_epochs=3).work.epochs == 3
    assert plan(toy_file, restarts="best").work.starts == 1 + 24
    assert plan(toy_file, restarts="best", n_init=1).work.starts == 1 + 6
    assert plan(toy_file, init="annotation").work.restarts == 0
    # a search has other starts too, so that few restarts are enough
    assert [plan(toy_file, states=states).work.n_init for states in ("off", 8)] == [192, 6]
    assert plan(toy_file, states=8, search=3).work.states == 8
    assert plan(toy_file, states=8, search=3).work.search == 3
    assert plan(toy_file, states="off").work.states == plan(toy_file, n_pcs=0).work.states == 0
    assert plan(toy_file).assumed[0] == "smoothing over 18 spots (the fit chooses 4 to 100)"
    assert all("smoothing" not in text for text in plan(toy_file, smooth=4).assumed)


def test_sparse_features_have_no_states(toy_section, tmp_path):
    dense = np.asarray(toy_section.X.toarray()[:, :20], dtype=np.float32)
    section = toy_section.copy()
    section.obsm["dense"], section.obsm["sparse"] = dense, sp.csr_matrix(dense)
    section.write_h5ad(tmp_path / "section.h5ad")
    expected = {("dense", None): 8, ("dense", 10): 8, ("sparse", None): 0, ("sparse", 10): 0}
    for (rep, n_pcs), states in expected.items():
        assert plan(tmp_path / "section.h5ad", states=8, rep=rep, n_pcs=n_pcs).work.states == states
    assert plan(tmp_path / "section.h5ad", states=8, transform="pearson").work.states == 8


def test_states_that_auto_would_look_for_are_an_assumption(toy_file, monkeypatch):
    assert all("states" not in text for text in plan(toy_file).assumed)
    monkeypatch.setattr("spatialpdvi.options.states._SPOTS_EACH", 20)
    found = plan(toy_file)
    assert found.work.states == 20
    assert "20 cell states that single spots tell apart (if not, the fit does not search)" in found.assumed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layer": "no"}, r"Expected layers\['no'\] to be in .*, found 'X'"),
        ({"rep": "X_no"}, r"Expected obsm\['X_no'\] in .*, found keys: 'X', 'X_pca', 'spatial'"),
        ({"label_key": "no"}, r"'no'"),
        ({"memory": "much"}, "to be a size such as 8GB"),
        ({"k": 601}, "Expected `k` to be at most the number of spots, 600, found 601"),
        ({"n_neighbors": 601}, "Expected `n_neighbors` to be at most the number of spots, 600, found 601"),
        ({"k": "590:601"}, "Expected `k` to be at most the number of spots, 600, found 590:601"),
    ],
)
def test_options_that_the_fit_refuses_are_refused(toy_file, options, said):
    with pytest.raises(InputError, match=said):
        plan(toy_file, **options)


def test_files_that_are_none(tmp_path, store):
    with pytest.raises(InputError, match="found no such file"):
        plan(tmp_path / "no.h5ad")
    with pytest.raises(InputError, match="raw counts"):
        plan(store(lambda x: np.log1p(x.toarray())))


def test_a_file_without_spots_is_refused_as_by_the_fit(toy_section, tmp_path):
    toy_section[:0].copy().write_h5ad(tmp_path / "empty.h5ad")
    with pytest.raises(InputError, match=r"to have at least one spot, found none\. Check how it was filtered\.$"):
        plan(tmp_path / "empty.h5ad")
