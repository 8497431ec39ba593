"""One sample of molecules for all tests here."""

import pytest
from binning_samples import draw


@pytest.fixture(scope="session")
def molecules():
    return draw()
