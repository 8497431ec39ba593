"""Tests of pictures leave no figure of pyplot to the next."""

import sys

import pytest


@pytest.fixture(autouse=True)
def _no_figure_is_left():
    yield
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")
