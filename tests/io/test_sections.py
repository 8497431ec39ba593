import warnings

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import plain_section

from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.section.background import Exclusion, enough_counts
from spatialpdvi.io.section.joining import join_sections
from spatialpdvi.io.section.section import read_section


def test_a_section_with_everything(adata, source_of) -> None:
    adata.obs["annotation"] = list("aabb" * 3)
    adata.obs["leiden"] = list("xyz" * 4)
    adata.obsp["ring"] = sp.csr_matrix(np.roll(np.eye(12), 1, 0) + np.roll(np.eye(12), -1, 0))
    section = read_section(source_of(adata), init="leiden", graph="ring")
    np.testing.assert_array_equal(section.counts.toarray(), adata.X.toarray())
    assert (section.counts_source, section.label_key) == ("X", "annotation")
    assert list(section.gene_names) == list(adata.var_names)
    assert list(section.spot_names) == list(adata.obs_names)
    assert section.coordinates.shape == (12, 2)
    assert list(section.labels) == list("aabb" * 3)
    assert section.init_labels.tolist() == [0, 1, 2] * 4
    assert section.graph.nnz == 24
    assert (section.features, section.rep) == (None, None)


def test_counts_are_not_looked_at_with_ready_features(make, source_of) -> None:
    data = make(X=np.full((12, 7), -0.5))
    section = read_section(source_of(data), rep="spatial")
    assert (section.counts, section.counts_source, len(section.gene_names)) == (None, "", 0)
    assert section.rep == "spatial"
    np.testing.assert_array_equal(section.features, data.obsm["spatial"])


def test_no_spots(make, source_of) -> None:
    source = source_of(make()[:0].copy())
    with pytest.raises(InputError) as caught:
        read_section(source)
    assert str(caught.value) == (
        f"Expected {source.name} to have at least one spot, found none. Check how it was filtered."
    )


def test_one_spot_is_a_section(make, source_of) -> None:
    section = read_section(source_of(make()[:1].copy()))
    assert section.coordinates.shape == (1, 2)


# anndata has its own warning for it, when it writes the file
@pytest.mark.filterwarnings("ignore:Observation names are not unique:UserWarning")
def test_repeated_spot_names_are_warned_of(adata, source_of) -> None:
    adata.obs_names = ["a", "b", "b", *"cdefghi", "a", "j"]
    source = source_of(adata)
    with pytest.warns(InputWarning) as caught:
        read_section(source)
    (message,) = [str(one.message) for one in caught if one.category is InputWarning]
    assert message == (
        "2 spot names repeat an earlier one (first: 'b'). Results are matched by row, so that none is lost."
    )


def test_reading_changes_nothing_in_memory(path) -> None:
    data = ad.read_h5ad(path)
    before = data.copy()
    for options in ({}, {"rep": "X_pca", "init": "annotation", "graph": "mine"}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)  # the graph has no edges
            read_section(AnnDataSource(data), **options)
    for one, other in ((data.X, before.X), (data.obsp["mine"], before.obsp["mine"])):
        assert (one != other).nnz == 0
        assert one.nnz == other.nnz
    np.testing.assert_array_equal(data.obsm["X_pca"], before.obsm["X_pca"])
    assert data.obs.equals(before.obs)


def test_sections_of_one_spot_are_warned_of(adata, source_of) -> None:
    adata.obs["slice"] = ["a"] * 11 + ["b"]
    with pytest.warns(InputWarning) as caught:
        read_section(source_of(adata), sample_key="slice")
    assert "1 of 2 sections in obs['slice'] has a single spot, which has no neighbours. Check `sample_key`." in [
        str(one.message) for one in caught
    ]


def test_a_section_for_each_spot_is_refused_in_a_fit(adata, source_of) -> None:
    """It was a warning, and minutes of work on spots without neighbours."""
    adata.obs["cell_id"] = [f"cell{i}" for i in range(12)]
    source = source_of(adata)
    for options in ({}, {"rep": "spatial"}):
        with pytest.raises(InputError) as caught:
            read_section(source, sample_key="cell_id", **options)
        assert str(caught.value) == (
            "Expected sections of several spots, found 12 sections in obs['cell_id'] for 12 spots, so that none has a "
            "neighbour in its own. Name a column of sections with `sample_key`, not one of the IDs of spots."
        )
    with pytest.warns(InputWarning, match=r"^12 of 12 sections in obs\['cell_id'\] have a single spot"):
        read_section(source, sample_key="cell_id", expression=False)
    adata.obs["one"] = "same"
    with pytest.warns(InputWarning, match=r"^1 of 1 sections in obs\['one'\] has a single spot"):
        read_section(source_of(adata[:1].copy()), sample_key="one")


def test_spots_that_are_left_out_may_have_no_counts_or_features(adata, source_of) -> None:
    values = adata.X.toarray().astype(np.float32)
    values[::3] = np.nan
    adata.X = values
    adata.obs["fine"] = np.arange(12) % 3 > 0
    section = read_section(source_of(adata), exclusion=Exclusion("fine", None, None))
    np.testing.assert_array_equal(section.counts.toarray(), values[np.arange(12) % 3 > 0])
    with pytest.raises(InputError, match="found nan \\(not finite\\) in X"):
        read_section(source_of(adata))


def test_coordinates_in_a_frame_lose_the_spots_that_are_left_out():
    adata = plain_section()
    places = adata.obsm["spatial"]
    adata.obsm["spatial"] = pd.DataFrame(places, columns=["x", "y"], index=adata.obs_names)
    adata.obs["fine"] = np.arange(12) % 3 > 0
    section = read_section(AnnDataSource(adata), exclusion=Exclusion("fine"))
    np.testing.assert_array_equal(section.coordinates, places[np.arange(12) % 3 > 0])


def test_graphs_are_joined_in_the_order_of_the_sections():
    sections = []
    for seed, n in enumerate((8, 12)):
        adata = plain_section(n=n, seed=seed)
        adata.obsp["mine"] = sp.csr_matrix(np.triu(np.ones((n, n)), 1) * (seed + 1))
        adata.obsp["mine"] = sp.csr_matrix(adata.obsp["mine"] + adata.obsp["mine"].T)
        sections.append(read_section(AnnDataSource(adata), graph="mine"))
    joined = join_sections(sections, ["a", "b"]).graph.toarray()
    np.testing.assert_array_equal(joined[:8, :8], sections[0].graph.toarray())
    np.testing.assert_array_equal(joined[8:, 8:], sections[1].graph.toarray())
    assert not joined[:8, 8:].any()


def test_a_spot_with_exactly_the_limit_is_kept():
    counts = sp.csr_matrix(np.array([[3, 0, 0], [1, 1, 0], [1, 1, 1], [0, 0, 0]], dtype=np.float32))
    options = counts, np.random.default_rng(0).random((4, 2)), [np.arange(4)]
    assert enough_counts(*options, Exclusion(min_genes=2)).tolist() == [False, True, True, False]
    assert enough_counts(*options, Exclusion(min_counts=3)).tolist() == [True, False, True, False]
    assert enough_counts(*options, Exclusion(min_counts=2, min_genes=2)).tolist() == [False, True, True, False]


def test_a_section_that_lacks_genes_is_told_when_it_is_read():
    adata = plain_section(n=60)
    adata.obs["slice"] = np.repeat(["a", "b"], 30)
    counts = adata.X.toarray()
    counts[:30, :4] = 0
    adata.X = sp.csr_matrix(counts)
    with pytest.warns(InputWarning, match=r"^Section 'a' has no count of 2 of 5 genes that are common in others"):
        read_section(AnnDataSource(adata), sample_key="slice")


def test_a_file_that_lacks_genes_is_told_when_files_are_joined():
    adata = plain_section(n=60)
    counts = adata.X.toarray()
    counts[:30, :4] = 0
    adata.X = sp.csr_matrix(counts)
    sections = [read_section(AnnDataSource(part)) for part in (adata[:30].copy(), adata[30:].copy())]
    with pytest.warns(InputWarning, match=r"^Section 'a' has no count of 2 of 5 genes that are common in others"):
        join_sections(sections, ["a", "b"])


def test_joined_sections_have_been_told_of_background_where_all_have():
    sections = [read_section(AnnDataSource(plain_section(seed=seed))) for seed in (0, 1)]
    told = [section._replace(told_of_background=True) for section in sections]
    assert not join_sections([told[0], sections[1]], ["a", "b"]).told_of_background
    assert join_sections(told, ["a", "b"]).told_of_background


def test_some_spots_of_a_section_are_of_the_sections_that_they_lie_in():
    adata = plain_section()
    adata.obs["slice"] = np.repeat(["a", "b", "c"], 4)
    part = read_section(AnnDataSource(adata), sample_key="slice").of(np.arange(6))
    assert part.names_of_samples() == ["a", "b"]
    assert [spots.tolist() for spots in part.spots_of_samples()] == [[0, 1, 2, 3], [4, 5]]


def test_joined_sections_have_the_labels_of_those_that_have_some():
    first, second = plain_section(seed=0), plain_section(seed=1)
    second.obs["annotation"] = list("ab" * 6)
    joined = join_sections([read_section(AnnDataSource(part)) for part in (first, second)], ["a", "b"])
    assert joined.label_key == "annotation"
    assert joined.labels[:12].isna().all()
    assert list(joined.labels[12:]) == list("ab" * 6)
