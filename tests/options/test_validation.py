"""Options refuse what they cannot be, in Python as on the command line."""

import numpy as np
import pandas as pd
import pytest

from spatialpdvi import FitOptions, InputError
from spatialpdvi.errors import option
from spatialpdvi.options.idle import idle_options, option_as_set
from spatialpdvi.options.presets import PRESETS, preset_options, set_by
from spatialpdvi.options.validation import listed


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n_patches", 2.5, "Expected `n_patches` to be a whole number, found 2.5."),
        ("beta", "1", "Expected `beta` to be a number, found '1'."),
        ("beta", True, "Expected `beta` to be a number, found True."),
        ("seed", None, "Expected `seed` to be a whole number, found None."),
        ("seed", 2**32, "Expected `seed` to be at most 4294967295, found 4294967296."),
        ("seed", -1, "Expected `seed` to be at least 0, found -1."),
        ("key_added", 3, "Expected `key_added` to be text, found 3."),
        ("save_graph", "yes", "Expected `save_graph` to be True or False, found 'yes'."),
        ("tol", float("inf"), "Expected `tol` to be a finite number, found inf."),
        ("tol", float("nan"), "Expected `tol` to be at least 1e-06, found nan."),
        ("beta", float("inf"), "Expected `beta` to be a finite number, found inf."),
        ("anisotropy", 1.5, "Expected `anisotropy` to be at most 1, found 1.5."),
        ("flow_neighbors", 1, "Expected `flow_neighbors` to be at least 2, found 1."),
        ("n_init", 1_001, "Expected `n_init` to be at most 1000, found 1001."),
        ("search", 10_001, "Expected `search` to be at most 10000, found 10001."),
        ("max_epochs", 2**31, "Expected `max_epochs` to be at most 2147483647, found 2147483648."),
        ("clip", 0.0, "Expected `clip` to be a positive number, found 0.0."),
        ("clip", float("inf"), "Expected `clip` to be a positive number, found inf."),
        ("step_size", float("nan"), "Expected `step_size` to be a positive number, found nan."),
        *(
            ("states", given, f"Expected `states` to be a whole number from 2 to 1,000, auto or off, found {given!r}.")
            for given in (1, 1_001, 4.0, True, "some", "²", None)
        ),
        *(
            (
                "min_counts",
                given,
                f"Expected `min_counts` to be a whole number of at least 1, or auto, found {given!r}.",
            )
            for given in (0, -3, 2.5, True, 2**31)
        ),
        ("beta", 1e305, "Expected `beta` to be at most 1000000, found 1e+305."),
        ("memory", 4, "Expected `memory` to be a size such as 8GB or 500MB, found 4."),
        (
            "memory",
            "4",
            (
                "Expected `memory` to be a size such as 8GB or 500MB, found '4', which is 4 bytes. Give the unit as "
                "well, '4GB' for example."
            ),
        ),
        *(
            (
                name,
                np.zeros(1049, dtype=bool),
                (
                    f"Expected `{name}` to be text, found ndarray of 1,049. Store it as a column of obs, and give the "
                    "name of that column."
                ),
            )
            for name in ("mask", "init", "sample_key", "label_key")
        ),
        (
            "rep",
            np.zeros((1049, 3)),
            (
                "Expected `rep` to be text, found ndarray of 1,049 x 3. Store it in obsm, and give the key under which "
                "it is there."
            ),
        ),
        (
            "init",
            pd.Series([0] * 2000),
            (
                "Expected `init` to be text, found Series of 2,000. Store it as a column of obs, and give the name of "
                "that column."
            ),
        ),
        (
            "spatial_key",
            ["x", "y"],
            (
                "Expected `spatial_key` to be text, found ['x', 'y']. Store coordinates in obsm, and give their key; "
                "or name columns of obs in one text, such as 'x,y'."
            ),
        ),
        (
            "mask",
            [True] * 900,
            (
                "Expected `mask` to be text, found a list of 900. Store it as a column of obs, and give the name of "
                "that column."
            ),
        ),
        ("beta", np.ones(3), "Expected `beta` to be a number, found ndarray of 3."),
    ],
)
def test_a_value_of_the_wrong_kind_is_one_sentence(name, value, message):
    with pytest.raises(InputError) as error:
        FitOptions(**{"k": 3} | {name: value})
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"states": 6}, r"at least 1 with `states`, found 0\. States are learnt from principal components\."),
        ({"correct": "center"}, r"at least 1 with `correct='center'`, found 0\. Genes that are fitted themselves stay"),
        ({"transform": "pearson"}, r"at least 1 with `transform='pearson'`, found 0\. Pearson residuals are dense"),
    ],
)
def test_genes_that_are_fitted_themselves_exclude_what_needs_components(options, message):
    with pytest.raises(InputError, match=f"^Expected `n_pcs` to be {message}"):
        FitOptions(k=3, n_pcs=0, **options)
    assert FitOptions(k=3, n_pcs=1, **options).n_pcs == 1


def test_numbers_of_numpy_are_numbers():
    options = FitOptions(k=np.int64(4), beta=np.float32(0.5), n_pcs=np.int32(0), seed=np.uint8(7))
    assert (options.k, options.beta, options.n_pcs, options.seed) == (4, 0.5, 0, 7)
    assert not [name for name, value in vars(options).items() if isinstance(value, np.generic)]  # JSON has none


def test_truth_values_of_numpy_are_truth_values():
    options = FitOptions(k=3, whiten=np.False_)
    assert options.whiten is False


@pytest.mark.parametrize("more", [{"correct": "center"}, {"states": 5}])
def test_given_columns_are_no_genes_that_could_be_fitted_themselves(more):
    options = FitOptions(k=3, rep="X_pca", n_pcs=0, **more)
    assert idle_options(options) == [("n_pcs", "rep")]
    assert option_as_set(options, "n_pcs") == option("n_pcs", 0)


def test_numbers_that_may_be_words_are_read_from_text():
    assert [FitOptions(k=2, states=given).states for given in (2, "1000", " Auto ", "OFF")] == [2, 1000, "auto", "off"]
    assert [FitOptions(k=2, min_counts=given).min_counts for given in (1, " 12 ", "Auto", None)] == [
        1,
        12,
        "auto",
        None,
    ]


def test_what_is_optional_may_be_none():
    assert FitOptions(k=2, layer=None, step_mean=None, n_patches=None).layer is None


@pytest.mark.parametrize(
    ("options", "idle"),
    [
        ({"rep": "X_pca", "clip": 3.0}, [("clip", "rep")]),
        ({"graph": "g", "n_neighbors": 4}, [("n_neighbors", "graph")]),
        ({"init": "leiden", "n_init": 2, "graph": "g"}, [("n_init", "init")]),
        ({"rep": "X_pca", "n_pcs": 5}, []),
        ({"clip": 3.0}, []),
        ({"n_pcs": 0, "whiten": False}, [("whiten", "n_pcs")]),
        ({"n_pcs": 0, "smooth": 5}, []),
        ({"n_pcs": 0, "smooth": 5, "init": "leiden"}, [("smooth", "init")]),
        ({"solver": "pdvi", "step_factor": 2.0, "step_size": 0.1}, [("step_factor", "step_size")]),
        ({"step_factor": 2.0, "step_mean": 0.1}, []),
        ({"transform": "pearson", "totals": "selected"}, [("totals", "transform")]),
        ({"transform": "log1p", "totals": "selected"}, []),
        ({"target_sum": 1e6}, [("target_sum", "transform")]),
        ({"target_sum": 1e6, "transform": "log1p"}, []),
        ({"target_sum": 1e6, "rep": "X_pca"}, [("target_sum", "rep")]),
        (
            {"target_sum": 1e6, "clip": 3.0, "transform": "pearson"},
            [("target_sum", "transform"), ("clip", "transform")],
        ),
        ({"init": "leiden", "smooth": 5, "states": 6}, [("smooth", "states")]),
        ({"init": "leiden", "smooth": 5, "states": "off"}, []),
        ({"init": "kmeans", "smooth": 5, "states": 6}, []),
        (
            {"states": "off", "detrend": False, "anisotropy": 0.5, "search": 2, "whiten": False},
            [("detrend", "states"), ("anisotropy", "states"), ("search", "states")],
        ),
        ({"states": 6, "detrend": False, "anisotropy": 0.5, "search": 2, "whiten": False}, [("whiten", "states")]),
        ({"init": "auto", "n_init": 2, "rep": "off", "clip": 3.0}, [("clip", "rep"), ("n_init", "init")]),
        ({"flow_neighbors": 30}, []),  # with states that are chosen, it is told once they are
        ({"flow_neighbors": 30, "states": "off"}, []),
        ({"flow_neighbors": 30, "tau": 2.0, "states": 6}, [("flow_neighbors", "states"), ("tau", "states")]),
        ({"flow_neighbors": 30, "states": 6, "save_graph": True}, []),
        ({"step_factor": 2.0, "step_mean": 0.1, "step_log_variance": 0.1}, []),
        # states are held, so that nothing steps in their means and variances
        (
            {"step_factor": 2.0, "step_mean": 0.1, "step_log_variance": 0.1, "states": 6},
            [("step_mean", "states"), ("step_log_variance", "states")],
        ),
        (
            {"step_factor": 2.0, "step_mean": 0.1, "step_log_variance": 0.1, "states": "off"},
            [("step_factor", "step_mean")],
        ),
    ],
)
def test_options_without_effect_are_known(options, idle):
    assert idle_options(FitOptions(k=3, **options)) == idle


def test_names_are_in_the_order_in_which_they_were_given():
    """A set has none, and that of its elements changes from session to session."""
    assert listed("Aqp4") == ("Aqp4",)
    assert listed(["b", "a"]) == listed({"b": 1, "a": 2}) == listed({"b": 1, "a": 2}.keys()) == ("b", "a")
    assert listed({"b", "c", "a"}) == listed(frozenset("cab")) == ("a", "b", "c")


def test_a_preset_is_its_options_and_given_ones_win():
    # whiten and smooth are of averaged components, which nothing here has
    set_here = {name: value for name, value in PRESETS["paper"].items() if name not in ("whiten", "smooth")}
    assert preset_options("paper", k=7) == FitOptions(k=7, **set_here)
    chosen = preset_options("paper", k=7, transform="none", init="leiden", n_patches=None)
    assert (chosen.transform, chosen.init, chosen.n_patches, chosen.duals) == ("none", "leiden", None, "zero")
    assert set_by("paper", chosen).keys() == set_here.keys() - {"transform", "init", "n_patches"}


@pytest.mark.parametrize(
    ("given", "set_here"),
    [
        ({"n_pcs": 15}, set(PRESETS["paper"]) - {"n_pcs"}),
        (
            {"rep": "X_pca"},
            {"smooth", "whiten", "states", "init", "n_patches", "cross_patch_edges", "duals", "step_size"},
        ),
        ({"solver": "cavi"}, set(PRESETS["paper"]) - {"smooth", "whiten", "duals", "step_size"}),
        ({"solver": "pdvi"}, set(PRESETS["paper"]) - {"smooth", "whiten"}),
        ({"transform": "pearson", "n_pcs": 15}, set(PRESETS["paper"]) - {"n_pcs", "transform", "totals"}),
    ],
)
def test_a_preset_sets_nothing_that_has_no_effect(given, set_here):
    chosen = preset_options("paper", k=7, **given)
    assert set_by("paper", chosen).keys() == set_here
    assert idle_options(chosen) == []
    assert chosen == FitOptions(k=7, **given, **set_by("paper", chosen))


@pytest.mark.parametrize("k", ["auto", "3:6"])
def test_a_preset_leaves_every_number_of_a_range_a_start_of_its_own(k):
    assert preset_options("paper", k=k).init is None
    assert preset_options("paper", k="7").init == "kmeans"


def test_an_unknown_preset_is_refused():
    with pytest.raises(InputError, match="Expected `preset` to be one of paper, found 'pape'"):
        preset_options("pape", k=7)
