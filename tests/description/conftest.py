"""Sections to describe: two in one AnnData, fitted together and lying over each other."""

import numpy as np
import pandas as pd
import pytest

import spatialpdvi


@pytest.fixture(scope="session")
def _pair():
    both = spatialpdvi.simulate(n_spots=900, n_genes=80, k=3, seed=1, easy=True)
    x = both.obsm["spatial"][:, 0]
    right = x > np.quantile(x, 0.55)
    both.obs["slice"] = pd.Categorical(np.where(right, "right", "left"))
    both.obsm["spatial"][right, 0] -= np.ptp(x) / 2  # they lie over each other
    rng = np.random.default_rng(0)
    both.obs["cell_type"] = pd.Categorical(rng.choice(["a", "b", "c"], both.n_obs, p=[0.6, 0.3, 0.1]))
    both.obs.loc[both.obs_names[:7], "cell_type"] = np.nan
    spatialpdvi.fit(both, k=3, n_top_genes=60, n_init=1, sample_key="slice", save_graph=True)
    return both


@pytest.fixture
def pair(_pair):
    """Sections "left" and "right", with types in obs["cell_type"], a fit and its graph."""
    return _pair.copy()
