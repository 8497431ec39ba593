"""Options refuse what they cannot be, in Python as on the command line."""

import numpy as np
import pytest

from spatialpdvi import FitOptions, InputError
from spatialpdvi.options.fit import idle_options


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
        ("tol", float("inf"), "Expected `tol` to be at least 1e-06, found inf."),
    ],
)
def test_a_value_of_the_wrong_kind_is_one_sentence(name, value, message):
    with pytest.raises(InputError) as error:
        FitOptions(**{"k": 3} | {name: value})
    assert str(error.value) == message


def test_numbers_of_numpy_are_numbers():
    options = FitOptions(k=np.int64(4), beta=np.float32(0.5), n_pcs=np.int32(0))
    assert (options.k, options.beta, options.n_pcs) == (4, 0.5, 0)


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
        ({"step_factor": 2.0, "step_mean": 0.1, "step_log_variance": 0.1}, []),
        (
            {"step_factor": 2.0, "step_mean": 0.1, "step_log_variance": 0.1, "states": "off"},
            [("step_factor", "step_mean")],
        ),
    ],
)
def test_options_without_effect_are_known(options, idle):
    assert idle_options(FitOptions(k=3, **options)) == idle
