from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest

from spatialpdvi.errors import InputError, list_keys
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.results.keys import Keys, check_free


def test_default_names_are_the_documented_ones() -> None:
    assert Keys().all_pairs() == (
        ("obs", "pdvi_domain"),
        ("obs", "pdvi_domain_fitted"),
        ("obs", "pdvi_confidence"),
        ("obs", "pdvi_entropy"),
        ("obs", "pdvi_agreement"),
        ("obs", "pdvi_confidence_calibrated"),
        ("obsm", "pdvi_posterior"),
        ("obsm", "pdvi_posterior_calibrated"),
        ("obsm", "pdvi_state"),
        ("obsm", "X_pdvi"),
        ("obsm", "pdvi_flow"),
        ("obsp", "pdvi_connectivities"),
        ("uns", "pdvi"),
        ("uns", "pdvi_domain_colors"),
        ("uns", "pdvi_markers"),
        ("uns", "pdvi_state_markers"),
        ("uns", "pdvi_describe"),
        ("uns", "pdvi_intervals"),
    )


def test_every_name_carries_the_prefix_and_is_listed() -> None:
    keys = Keys("run-2.k")
    named = {getattr(keys, name) for name, kind in vars(Keys).items() if isinstance(kind, property)}
    assert named == {key for _, key in keys.all_pairs()}
    assert all("run-2.k" in name for name in named)


@pytest.mark.parametrize("prefix", ["a=b", "a/b", "a b", "..", ".", "pdvi\n", "ü"])
def test_a_prefix_unfit_for_a_key_is_refused(prefix: str) -> None:
    with pytest.raises(InputError) as caught:
        Keys(prefix)
    assert str(caught.value) == (
        "Expected `key_added` to be made of letters, digits, '_', '-' and '.', "
        f"found {prefix!r}. Choose a name such as 'pdvi' or 'pdvi_k20'."
    )


@pytest.mark.parametrize("prefix", [None, 5])
def test_a_prefix_that_is_no_text_is_refused(prefix: Any) -> None:
    with pytest.raises(InputError, match=rf"^Expected `key_added` to be made of letters, .* found {prefix}\."):
        Keys(prefix)


def test_an_empty_prefix_is_refused() -> None:
    with pytest.raises(InputError, match=r"found an empty name\. Choose a name"):
        Keys("")


def test_a_prefix_that_would_replace_the_users_data_is_refused(adata: ad.AnnData) -> None:
    adata.obsm["X_pca"] = adata.obsm["spatial"]
    adata.uns["pca"] = {"params": {"zero_center": True}, "variance": [1.0]}
    with pytest.raises(InputError) as caught:
        check_free(AnnDataSource(adata), Keys("pca"))
    assert str(caught.value) == (
        "Expected the names of `key_added='pca'` to be free, found obsm['X_pca'], uns['pca'] in the AnnData. Choose "
        "another `key_added`, so that nothing of yours is overwritten."
    )


def test_results_of_an_earlier_fit_may_be_replaced(adata: ad.AnnData) -> None:
    adata.uns["k20"] = {"params": {}, "certificate": {}}
    adata.obsm["X_k20"] = adata.obsm["spatial"]
    adata.uns["k20_domain_colors"] = ["#000000"]
    adata.obs["pdvi_domain"] = "0"  # kept by a concatenation that dropped uns
    check_free(AnnDataSource(adata), Keys("k20"))
    check_free(AnnDataSource(adata), Keys())


def test_columns_of_the_default_names_with_values_of_the_users_are_not_replaced(adata):
    adata.obs["pdvi_domain"] = ["cortex", "skin"] * 6
    with pytest.raises(InputError, match=r"found obs\['pdvi_domain'\] in"):
        check_free(AnnDataSource(adata), Keys())
    adata.obs["pdvi_domain"] = ["0", "1"] * 6
    check_free(AnnDataSource(adata), Keys())
    adata.obs["pdvi_confidence"] = np.linspace(-1.0, 1.0, 12)
    with pytest.raises(InputError, match=r"obs\['pdvi_confidence'\]"):
        check_free(AnnDataSource(adata), Keys())


def _fitted(adata, *prefixes):
    for prefix in prefixes:
        adata.uns[prefix] = {"params": {}, "certificate": {}}
    return AnnDataSource(adata)


@pytest.mark.parametrize(
    "name", ["markers", "state_markers", "describe", "intervals", "domain_colors", "domain_L4_colors"]
)
@pytest.mark.parametrize(("first", "second"), [("pdvi", "pdvi_{}"), ("pdvi_{}", "pdvi")])
def test_a_fit_does_not_take_the_names_of_another(adata, name, first, second):
    adata.obs["pdvi_domain_L4"] = pd.Categorical(["0", "1"] * 6)
    adata.obs["pdvi_domain"] = adata.obs["pdvi_domain_L4"]
    first, second = first.format(name), second.format(name)
    with pytest.raises(InputError) as caught:
        check_free(_fitted(adata, first), Keys(second))
    assert str(caught.value).startswith(
        f"Expected the names of `key_added={second!r}` to be free, found uns['pdvi_{name}'], a name of the fit "
        f"{first!r} in the AnnData. Choose another `key_added`"
    )
    with pytest.raises(InputError, match=f"a name of the fit '{first}'"):  # also where both are there
        check_free(_fitted(adata, second), Keys(second))
    check_free(_fitted(adata, "pdvi_other"), Keys("pdvi_other"))


def test_names_that_are_no_texts_are_left_alone(adata):
    adata.obs[0] = 1.0
    adata.uns[1] = {"params": {}, 2: 3}
    adata.uns["mine"] = {"params": {}, 2: 3}
    adata.var[("a", 1)] = 1.0
    source = AnnDataSource(adata)
    check_free(source, Keys())
    assert (source.obs_keys(), source.uns_keys(), source.var_keys()) == ([], ["mine"], [])
    assert source.uns_fields("mine") == ["params"]
    assert list_keys(["b", 0, None]) == "0, None, 'b'"
