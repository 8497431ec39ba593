"""Which numbers of domains users may ask for, and in which form."""

import numpy as np
import pytest

from spatialpdvi import FitOptions, InputError
from spatialpdvi.options.k_range import candidates, read_k


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (4, 4),
        (np.int64(7), 7),
        ("20", 20),
        (" 4 ", 4),
        ("auto", "auto"),
        ("Auto", "auto"),
        ("4:15", "4:15"),
        ("02:3", "2:3"),
    ],
)
def test_what_is_understood(given, read):
    assert read_k(given) == read
    assert type(read_k(given)) is type(read)


@pytest.mark.parametrize(
    "given",
    ["four", "", "4:", ":15", "15:4", "4:4", "1:5", "4:15:2", "4-15", "-3", "4.5", "4:1e3", None, 4.0, True, [4]],
)
def test_what_is_not_names_what_would_be(given):
    with pytest.raises(InputError) as error:
        read_k(given)
    expected = "Expected `k` to be a whole number of at least 2, a range a:b with 2 <= a < b such as 4:15, or auto, "
    assert str(error.value) == f"{expected}found {given!r}."


@pytest.mark.parametrize("given", [1, 0, -2, "1", np.int32(1)])
def test_one_domain_is_too_few(given):
    with pytest.raises(InputError, match=r"Expected `k` to be (at least 2|a whole number of at least 2)"):
        read_k(given)


def test_a_range_has_both_its_ends():
    assert list(candidates("4:7", 100)) == [4, 5, 6, 7]
    assert list(candidates("4:7", 7)) == [4, 5, 6, 7]
    with pytest.raises(InputError, match="at most the number of spots, 6, found 4:7"):
        candidates("4:7", 6)


@pytest.mark.parametrize(("n", "last"), [(60, 3), (399, 19), (400, 20), (10**6, 20)])
def test_auto_goes_to_20_or_20_spots_a_domain(n, last):
    assert candidates("auto", n) == range(2, last + 1)


def test_auto_needs_two_numbers_to_choose_from():
    with pytest.raises(InputError, match=r"Expected at least 60 spots with `k='auto'`, found 59\."):
        candidates("auto", 59)


def test_one_number_is_asked_for_where_one_is_needed():
    assert FitOptions(k="5").n_domains == 5
    with pytest.raises(InputError, match=r"Expected `k` to be a single number here, found 4:15\."):
        _ = FitOptions(k="4:15").n_domains


def test_labels_to_start_from_say_how_many_there_are():
    with pytest.raises(InputError, match=r"Expected `k` to be one number with `init`, found 2:4\."):
        FitOptions(k="2:4", init="region")
