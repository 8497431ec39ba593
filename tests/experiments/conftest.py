"""The scripts of the experiments, which are no package."""

from pathlib import Path

import pytest
from conftest import load_from

EXPERIMENTS = Path(__file__).parents[2] / "benchmarks" / "experiments"


@pytest.fixture
def load(monkeypatch):
    yield from load_from(EXPERIMENTS, monkeypatch)
