import shutil
from pathlib import Path

import numpy as np
import pytest

from spatialpdvi import Checkpoint, FitOptions, fit_file


class StoppedError(Exception):
    """In place of a kill."""


class Fragile(Checkpoint):
    """Stops the fit when so many checkpoints were asked for, after the last was written."""

    def __init__(self, folder, *, stops_after, **settings):
        super().__init__(folder, **settings)
        self.left = stops_after

    def after_epoch(self, epoch, value):
        super().after_epoch(epoch, value)
        self.left -= 1
        if self.left == 0:
            raise StoppedError


def same_elements(a, b):
    """Whether two results are the same to the bit, but for wall seconds."""
    from spatialpdvi.io.results.keys import Keys

    def compare(left, right, where):
        if isinstance(left, dict):
            assert left.keys() == right.keys(), where
            for key in left.keys() - {"seconds"}:
                compare(left[key], right[key], f"{where}/{key}")
        elif hasattr(left, "tocsr"):
            assert (left != right).nnz == 0, where
        else:
            left, right = np.asarray(left), np.asarray(right)
            assert left.tobytes() == right.tobytes() or np.array_equal(left, right), where

    ours, theirs = (result.elements(Keys("pdvi"), save_graph=True) for result in (a, b))
    compare({"/".join(key): value for key, value in ours.items()}, {"/".join(k): v for k, v in theirs.items()}, "")
    assert (a.trace["epoch"] == np.arange(a.trace["epoch"].size)).all()
    assert (np.diff(a.trace["seconds"]) >= 0).all()


@pytest.fixture(scope="session")
def section(toy_section, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("kept") / "section.h5ad"
    toy_section.write_h5ad(path)
    return path


@pytest.fixture(scope="session")
def options():
    """A fit of some twenty epochs, quick to prepare; more options are added to it."""

    def make(**more):
        base = {"k": 4, "rep": "X_pca", "n_init": 1, "tol": 1e-6, "step_factor": 4.0}
        return FitOptions(**(base | more))

    return make


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "kept"


@pytest.fixture(scope="session")
def stopped_once(section, options, tmp_path_factory):
    folder, chosen = tmp_path_factory.mktemp("stopped") / "kept", options()
    kept = Fragile(folder, stops_after=4, every=2)
    with pytest.raises(StoppedError):
        fit_file(section, chosen, output=folder.parent / "never.h5ad", checkpoint=kept)
    return folder, chosen


@pytest.fixture
def stopped(stopped_once, folder):
    """A fit that ended after its fourth epoch, with a checkpoint of that in ``folder``; returns its options."""
    kept, chosen = stopped_once
    shutil.copytree(kept, folder)
    return chosen
