import logging
from itertools import product

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from zarr_samples import write_zarr

from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.section import counts as counts_module
from spatialpdvi.io.section.counts import read_counts, warn_of_other_features, warn_of_unmeasured
from spatialpdvi.runtime.rows import columns_of

ADVICE = "Name the layer of the counts with `layer`, or features with `rep`."


def refusal(source, layer=None) -> str:
    with pytest.raises(InputError) as caught:
        read_counts(source, layer)
    return str(caught.value)


def logged(data):
    """`data` with its X replaced by logarithms, as scanpy leaves it."""
    data.X = data.X.log1p()
    return data


@pytest.mark.parametrize(
    ("present", "chosen"),
    [
        (["X"], "X"),
        (["X", "counts"], "layers['counts']"),
        (["X", "counts", "count"], "layers['count']"),
    ],
)
def test_the_first_candidate_that_holds_counts_is_used(adata, source_of, present, chosen, caplog) -> None:
    for key in present[1:]:
        adata.layers[key] = adata.X.copy()
    expected = adata.X.toarray()
    with caplog.at_level(logging.INFO, "spatialpdvi"):
        found = read_counts(source_of(adata), None)
    assert found.source == chosen
    np.testing.assert_array_equal(found.matrix.toarray(), expected)
    assert caplog.messages == [f"Counts are read from {chosen}."]


def test_raw_is_used_when_x_is_normalised(adata, source_of, caplog) -> None:
    adata.raw = adata.copy()
    first = float(np.log1p(adata.X.data)[0])
    data = logged(adata)[:, :3].copy()
    with caplog.at_level(logging.INFO, "spatialpdvi"):
        found = read_counts(source_of(data), None)
    assert found.source == "raw.X"
    assert list(found.gene_names) == [f"gene{i}" for i in range(7)]
    assert caplog.messages == [
        f"X is not used: it holds {first:.6g} (not a whole number).",
        "Counts are read from raw.X.",
    ]


@pytest.mark.parametrize("layer", ["umi", "X", "raw.X"])
def test_a_named_matrix_is_used_alone(adata, source_of, layer) -> None:
    adata.raw = adata.copy()
    adata.layers["umi"] = adata.X.copy()
    adata.layers["count"] = sp.csr_matrix(adata.X * 2)
    found = read_counts(source_of(adata), layer)
    assert found.source == ("layers['umi']" if layer == "umi" else layer)
    assert found.matrix.sum() == adata.X.sum()


def test_a_missing_layer_lists_what_there_is(adata, source_of) -> None:
    adata.layers["umi"] = adata.X.copy()
    source = source_of(adata)
    assert refusal(source, "count") == (
        f"Expected layers['count'] to be in {source.name}, found 'X', 'umi'. Name one of these with `layer`."
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.nan, "nan (not finite)"),
        (np.inf, "inf (not finite)"),
        (-np.inf, "-inf (not finite)"),
        (-2, "-2 (negative)"),
        (0.25, "0.25 (not a whole number)"),
        (np.nextafter(np.float32(3), 4), "3.000000238418579 (not a whole number)"),
        (16777218, "16777218 (above 16,777,216)"),
    ],
)
def test_a_named_layer_that_holds_no_counts(make, source_of, value, said) -> None:
    data = make()
    data.X.data[-1] = value
    data.layers["umi"] = data.X.copy()
    assert refusal(source_of(data), "umi") == (
        f"Expected layers['umi'] to hold raw counts (whole numbers, none negative), found {said}. {ADVICE}"
    )


def test_every_candidate_is_named_with_its_reason(adata, source_of) -> None:
    adata.raw = adata.copy()
    adata.raw.X.data[0] = -1
    adata.layers["scaled"] = adata.X.copy()
    adata.X.data[0] = 0.5
    source = source_of(adata)
    assert refusal(source) == (
        "Expected raw counts (whole numbers, none negative) in layers['count'], layers['counts'], "
        f"X or raw.X of {source.name}, found 0.5 (not a whole number) in X; -1 (negative) in "
        f"raw.X. {ADVICE} Not tried: layers['scaled']."
    )


def test_no_matrix_at_all(make, source_of) -> None:
    source = source_of(make(X=None))
    assert refusal(source).endswith(f"X or raw.X of {source.name}, found none of these. {ADVICE}")


def test_an_empty_placeholder_is_no_count_matrix(adata, source_of) -> None:
    adata.X = sp.csr_matrix(adata.shape, dtype=np.float32)
    assert refusal(source_of(adata), "X") == (
        "Expected X to hold raw counts (whole numbers, none negative), found no value but zero. " + ADVICE
    )


def test_no_genes(make, source_of) -> None:
    assert refusal(source_of(make()[:, :0].copy())) == (f"Expected X to have at least one gene, found none. {ADVICE}")


def test_a_layer_called_counts_without_counts_is_passed_over_aloud(adata, source_of) -> None:
    adata.layers["counts"] = adata.X.copy()
    adata.layers["counts"].data[0] = 1.5
    with pytest.warns(InputWarning) as caught:
        found = read_counts(source_of(adata), None)
    assert found.source == "X"
    (message,) = [str(one.message) for one in caught if one.category is InputWarning]
    assert message == (
        "layers['counts'] does not hold raw counts (whole numbers, none negative), but 1.5 (not a whole number). The "
        "counts are read from X instead; choose others with `layer`."
    )


def test_an_offending_value_past_the_first_glance_and_block_is_seen(adata, monkeypatch) -> None:
    monkeypatch.setattr("spatialpdvi.io.formats.matrices.FIRST_VALUES", 4)
    monkeypatch.setattr(counts_module, "_BLOCK", 5)
    adata.X.data[-1] = 0.5
    assert "found 0.5 (not a whole number) in X" in refusal(AnnDataSource(adata))


def test_what_is_normalised_is_not_read_beyond_the_glance(adata, monkeypatch) -> None:
    source = AnnDataSource(logged(adata))
    monkeypatch.setattr(source, "matrix", lambda where: pytest.fail(f"{where} was read"))
    assert "not a whole number" in refusal(source)


# anndata has its own warning for it, when it writes the file
@pytest.mark.filterwarnings("ignore:Variable names are not unique:UserWarning")
def test_repeated_gene_names_are_warned_of(adata, source_of) -> None:
    adata.var_names = ["a", "b", "b", "c", "a", "d", "e"]
    source = source_of(adata)
    with pytest.warns(InputWarning) as caught:
        read_counts(source, None)
    (message,) = [str(one.message) for one in caught if one.category is InputWarning]
    assert message == (
        "2 gene names repeat an earlier one (first: 'b'). Genes of the same name are used as different genes."
    )


def test_spots_without_counts_are_warned_of(adata, source_of) -> None:
    dense = adata.X.toarray()
    dense[[3, 5]] = 0
    adata.X = sp.csr_matrix(dense)
    with pytest.warns(InputWarning) as caught:
        read_counts(source_of(adata), None)
    (message,) = [str(one.message) for one in caught if one.category is InputWarning]
    assert message == (
        "2 of 12 spots have no counts (first: 'spot3'). Only its neighbours decide the domain of such a spot; remove "
        "it if it is not tissue."
    )


def test_a_matrix_of_true_and_false_is_used_aloud(adata, source_of) -> None:
    adata.X = adata.X.astype(bool)
    with pytest.warns(InputWarning, match=r"^X is a matrix of true and false: it says which genes a spot has, "):
        found = read_counts(source_of(adata), None)
    assert set(np.unique(found.matrix.toarray())) <= {0, 1}


@pytest.mark.parametrize("kind", [str, "category"])
def test_features_that_are_no_genes_are_told_once(make, kind, tmp_path) -> None:
    data = make()
    types = ["Gene Expression"] * 4 + ["Antibody Capture"] * 2 + ["Negative Control Probe"]
    data.var["feature_types"] = pd.Series(types, index=data.var_names, dtype=kind)
    data.raw = data.copy()
    data.write_h5ad(tmp_path / "a.h5ad")
    write_zarr(tmp_path / "a.zarr", data, 3)
    with H5adSource(tmp_path / "a.h5ad") as file, H5adSource(tmp_path / "a.zarr") as store:
        places = (("X", "var", "adata"), ("raw.X", "raw.var", "adata.raw.to_adata()"))
        for source, (where, table, whole) in product((AnnDataSource(data), file, store), places):
            with pytest.warns(InputWarning) as caught:
                warn_of_other_features(source, where)
            (message,) = [str(one.message) for one in caught if one.category is InputWarning]
            chosen = f'{whole}[:, adata.{table}["feature_types"] == "Gene Expression"].copy()'
            assert message == (
                f"3 of 7 features in {where} are no genes by {table}['feature_types']: 2 'Antibody Capture', 1 "
                "'Negative Control Probe'. They are fitted like genes, and a bright protein can decide the domains. "
                f"Leave them out with `{chosen}`."
            )
            warn_of_other_features(AnnDataSource(eval(chosen, {"adata": data})), "X")  # silent: warnings are errors


def test_features_of_one_type_are_no_reason_for_a_warning(adata) -> None:
    for types in ("Gene Expression", "Antibody Capture", ["my", "own"] * 3 + ["words"]):
        adata.var["feature_types"] = types
        warn_of_other_features(AnnDataSource(adata), "X")
    adata.var["feature_types"] = ["Gene Expression"] * 6 + [None]
    with pytest.warns(InputWarning, match=r"^1 of 7 features in X is no gene by var\['feature_types'\]: 1 'no type'"):
        warn_of_other_features(AnnDataSource(adata), "X")


def _counts_of_two(missing: int) -> tuple[sp.csr_matrix, pd.Categorical]:
    """Counts of two sections of 50 spots, of which the second lacks the first genes."""
    counts = np.random.default_rng(0).poisson(2.0, size=(100, 40))
    counts[50:, :missing] = 0
    counts[:, 39] = 0  # a gene that no section has
    return sp.csr_matrix(counts), pd.Categorical(np.repeat(["one", "two"], 50))


def test_sections_that_lack_many_genes_of_others_are_named(recwarn) -> None:
    warn_of_unmeasured(*_counts_of_two(3))
    assert not recwarn.list
    with pytest.warns(InputWarning, match=r"^Section 'two' has no count of 5 of 39 genes that are common in "):
        warn_of_unmeasured(*_counts_of_two(5))
    with pytest.warns(InputWarning, match=r"^Section 'two' has no counts\. Check the matrix, or leave "):
        warn_of_unmeasured(*_counts_of_two(40))
    counts, samples = _counts_of_two(5)
    warn_of_unmeasured(counts[::12], samples[::12])  # too few counts to tell
    few = counts[:, [0, 1, 2, 3]]
    few[50, 0] = 5  # four genes are common, of which the section has one: it may lack a domain
    warn_of_unmeasured(few, samples)


@pytest.mark.parametrize("storage", ["dense", "csr"])
@pytest.mark.parametrize("kind", [">f4", ">i4"])
@pytest.mark.parametrize("memory", [None, 0])
def test_numbers_of_any_byte_order_are_read(adata, source_of, storage, kind, memory) -> None:
    counts = adata.X.toarray()
    adata.X = counts.astype(kind) if storage == "dense" else adata.X.asformat(storage)
    if storage != "dense":
        adata.X.data = adata.X.data.astype(kind)
    found, totals = columns_of(read_counts(source_of(adata), None, memory=memory).matrix, np.array([3, 0]))
    np.testing.assert_array_equal(found, counts[:, [3, 0]])
    np.testing.assert_array_equal(totals, counts.sum(axis=1))
