import numpy as np
import pandas as pd
import pytest

from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.section.labels import read_initial, read_labels


@pytest.mark.parametrize(
    ("column", "expected", "categories"),
    [
        (["b", "a", None] * 4, ["b", "a", None], ["a", "b"]),
        (
            pd.Categorical(["v", "u", None] * 4, categories=["v", "u", "unused"]),
            ["v", "u", None],
            ["v", "u"],
        ),
        (pd.Categorical([2, 10, 1] * 4), ["2", "10", "1"], ["1", "2", "10"]),
        (np.array([10, 9, -1] * 4), ["10", "9", "-1"], ["-1", "9", "10"]),
        (np.array([True, False, True] * 4), ["True", "False", "True"], ["False", "True"]),
        (np.array([2.0, np.nan, 11.0] * 4), ["2", None, "11"], ["2", "11"]),
        (pd.array([2, None, 11] * 4, dtype="Int64"), ["2", None, "11"], ["2", "11"]),
        (pd.array([True, None, False] * 4), ["True", None, "False"], ["False", "True"]),
        (["Layer 2", "10", "9"] * 4, ["Layer 2", "10", "9"], ["9", "10", "Layer 2"]),
    ],
    ids=[
        "text",
        "category",
        "number_category",
        "int",
        "bool",
        "float",
        "nullable_int",
        "nullable_bool",
        "mixed",
    ],
)
def test_labels_become_text_categories(adata, source_of, column, expected, categories) -> None:
    adata.obs["region"] = column
    labels, key = read_labels(source_of(adata), "region")
    assert key == "region"
    assert labels.categories.tolist() == categories
    assert [None if pd.isna(one) else one for one in labels] == expected * 4


def test_distinct_values_of_one_text_are_one_label(adata) -> None:
    from spatialpdvi.io.formats.sources import AnnDataSource

    adata.obs["region"] = pd.Categorical([1, "1", "b"] * 4, categories=["b", 1, "1"])
    labels, _ = read_labels(AnnDataSource(adata), "region")
    assert labels.codes.tolist() == [1, 1, 0] * 4
    assert labels.categories.tolist() == ["b", "1"]


def test_annotation_is_the_default_and_may_be_absent(adata, source_of) -> None:
    assert read_labels(source_of(adata), None) == (None, None)
    adata.obs["annotation"] = list("ab" * 6)
    labels, key = read_labels(source_of(adata), None)
    assert (list(labels), key) == (list("ab" * 6), "annotation")


@pytest.mark.parametrize(("read", "option"), [(read_labels, "`label_key`"), (read_initial, "`init`")])
def test_a_missing_column_lists_the_others(adata, source_of, read, option) -> None:
    adata.obs["region"] = "a"
    source = source_of(adata)
    with pytest.raises(InputError) as caught:
        read(source, "regions")
    assert str(caught.value) == (
        f"Expected obs['regions'] in {source.name}, found columns: 'region'. Name one of these with {option}."
    )


def test_columns_of_a_fit_are_not_offered_as_labels(adata, source_of) -> None:
    adata.obs["mine_domain"] = adata.obs["region"] = "a"
    adata.uns["mine"] = {"params": {"k": 2}}
    with pytest.raises(InputError, match=r"found columns: 'region'\. Name one of these with `label_key`\.$"):
        read_labels(source_of(adata), "regions")
    del adata.obs["region"]
    with pytest.raises(InputError, match=r"found columns: none\. Add such a column first\.$"):
        read_labels(source_of(adata), "regions")


@pytest.mark.parametrize("value", [0.5, np.inf])
def test_measurements_are_no_labels(adata, source_of, value) -> None:
    adata.obs["depth"] = [1.0, value] * 6
    with pytest.raises(InputError) as caught:
        read_labels(source_of(adata), "depth")
    assert str(caught.value) == (
        "Expected obs['depth'] to hold labels (text, categories or whole numbers), found "
        f"{value:g}. Name a column of labels."
    )


def test_lists_are_no_labels(adata) -> None:
    from spatialpdvi.io.formats.sources import AnnDataSource

    adata.obs["annotation"] = pd.Series([["a", "b"]] * 12, index=adata.obs_names)
    with pytest.raises(InputError) as caught:
        read_labels(AnnDataSource(adata), "annotation")
    assert str(caught.value) == (
        "Expected obs['annotation'] to hold labels (text, categories or whole numbers), found values of type list. "
        "Name a column of labels."
    )


def test_empty_text_counts_as_missing_aloud(adata, source_of) -> None:
    adata.obs["region"] = ["a", "", " ", "b"] * 3
    with pytest.warns(InputWarning) as caught:
        labels, _ = read_labels(source_of(adata), "region")
    (message,) = [str(one.message) for one in caught if one.category is InputWarning]
    assert message == ("6 labels of obs['region'] are empty texts and count as missing.")
    assert labels.codes.tolist() == [0, -1, -1, 1] * 3


@pytest.mark.parametrize("text", ["None", "NA", "-2147483648"])  # the last two are of R
def test_texts_that_missing_values_become_are_labels_aloud(adata, source_of, text) -> None:
    adata.obs["region"] = ["a", text, "b", "c"] * 3
    with pytest.warns(InputWarning) as caught:
        labels, _ = read_labels(source_of(adata), "region")
    (message,) = [str(one.message) for one in caught if one.category is InputWarning]
    assert message == (
        f"3 labels of obs['region'] are the text {text!r}, which counts as a label like any other. Make it a missing "
        "value where it stands for one."
    )
    assert list(labels.categories) == [text, "a", "b", "c"]


def test_a_column_of_the_usual_name_that_nobody_asked_for_may_hold_no_labels(adata, source_of) -> None:
    adata.obs["annotation"] = np.arange(12) / 3.0
    with pytest.warns(InputWarning, match=r"^obs\['annotation'\] holds no labels but numbers with decimals, "):
        assert read_labels(source_of(adata), None) == (None, None)
    with pytest.raises(InputError, match="to hold labels"):
        read_labels(source_of(adata), "annotation")


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([0.5, "a"], "numbers with decimals"),
        (pd.Categorical([0.5, 1.5]), "numbers with decimals"),
        ([np.inf, 1.0], "inf"),
        ([["a"], ["b"]], "values of type list"),
    ],
    ids=["object", "category", "infinite", "list"],
)
def test_nor_may_one_of_another_type(adata, values, found) -> None:
    adata.obs["annotation"] = pd.Series(list(values) * 6, index=adata.obs_names).astype(
        getattr(values, "dtype", object)
    )
    with pytest.warns(InputWarning) as caught:
        assert read_labels(AnnDataSource(adata), None) == (None, None)
    (message,) = [str(one.message) for one in caught]
    assert message == (
        f"obs['annotation'] holds no labels but {found}, so nothing is scored against it. Name a column of labels with "
        "`label_key`."
    )


@pytest.mark.parametrize(
    ("column", "said"),
    [(["a"] * 12, "only the label 'a'"), (np.full(12, np.nan), "no label at all")],
)
def test_labels_that_tell_nothing_apart_are_usable(adata, source_of, column, said) -> None:
    adata.obs["region"] = column
    with pytest.warns(InputWarning) as caught:
        labels, _ = read_labels(source_of(adata), "region")
    (message,) = [str(one.message) for one in caught if one.category is InputWarning]
    assert message == (
        f"obs['region'] has {said}, so that scores against it mean nothing. Name another column with `label_key`."
    )
    assert set(labels.codes) == {0 if said.startswith("only") else -1}


def test_labels_to_start_from_are_codes(adata, source_of) -> None:
    adata.obs["leiden"] = pd.Categorical(["10", "2", "7"] * 4, categories=["2", "7", "10", "11"])
    codes = read_initial(source_of(adata), "leiden")
    assert codes.dtype == np.int64
    assert codes.tolist() == [2, 0, 1] * 4


def test_every_spot_needs_a_label_to_start_from(adata, source_of) -> None:
    adata.obs["leiden"] = ["a", "b", None, "a"] * 3
    with pytest.raises(InputError) as caught:
        read_initial(source_of(adata), "leiden")
    assert str(caught.value) == (
        "Expected obs['leiden'] to have a label for every spot to start from, found 3 of 12 "
        "missing (first: 'spot2'). Fill them, or name another column."
    )


def test_whole_numbers_with_gaps_are_labels(adata):
    adata.obs["annotation"] = [1.0, 2.0, np.nan] * 4
    labels, key = read_labels(AnnDataSource(adata), None)
    assert key == "annotation"
    assert labels.categories.tolist() == ["1", "2"]
