"""The certificate recomputed from the written file alone, by the formulas in reference.py."""

import anndata
import numpy as np
import pytest
from reference import recompute, stored

from spatialpdvi import FitOptions, InputError, InputWarning, Merge, fit, fit_file, label, tl, transfer

GENES = {"n_top_genes": 100}  # of 150
CASES = {
    "counts": {},
    "sparse genes": {"n_pcs": 0, "n_top_genes": 60},
    "given features": {"rep": "X_pca", "n_pcs": 4, "n_top_genes": 3000},
    "all given features": {"rep": "X_pca", "n_top_genes": 3000},
    "features as they are": {"rep": "X_pca", "n_top_genes": 3000, "smooth": 0, "whiten": False, "init": "annotation"},
    "the best restart": {"restarts": "best", "n_init": 2},
    "residuals": {"transform": "pearson"},
    "no cross-patch edges": {"cross_patch_edges": False, "n_patches": 7},
    "scalar steps": {"solver": "pdvi", "max_epochs": 40},
    "cavi": {"solver": "cavi"},
    "memoized": {"solver": "memoized"},
}


@pytest.mark.filterwarnings("ignore:Not converged")  # the epochs of one are limited
@pytest.mark.parametrize("case", CASES)
def test_the_file_proves_what_its_certificate_says(case, toy_file, tmp_path):
    out = tmp_path / "out.h5ad"
    few = {} if case in {"counts", "features as they are"} else {"n_init": 1}  # many restarts take long
    result = fit_file(toy_file, FitOptions(k=4, save_graph=True, **few | GENES | CASES[case]), output=out)
    _, fit, x, phi, m, rho, r = stored(out, rep="X_pca")
    assert (abs(r - r.T) > 0).nnz == 0
    assert r.diagonal().sum() == 0
    certificate = fit["certificate"]
    for name, value in recompute(fit, x, phi, m, rho, r).items():
        # differences of large sums: absolute errors of 1e-9 of F's size are rounding
        assert certificate[name] == pytest.approx(value, rel=1e-6, abs=1e-8), name
    if result.certificate.converged:
        assert certificate["stationarity_mean"] < 2 * certificate["tolerance"]
        assert certificate["stationarity_log_variance"] < 2 * certificate["tolerance"]
        assert certificate["stationarity_posterior"] < 2 * certificate["tolerance"]
    assert result.certificate.converged == (case != "scalar steps")


def test_the_check_can_fail(toy_file, tmp_path):
    """A slightly wrong mean, variance or posterior is seen: the certificate is not just small for everything."""
    out = tmp_path / "out.h5ad"
    fit_file(toy_file, FitOptions(k=4, save_graph=True, n_init=1, **GENES), output=out)
    _, fit, x, phi, m, rho, r = stored(out)
    tolerance = fit["certificate"]["tolerance"]
    assert recompute(fit, x, phi, m + 0.01 * fit["noise_sd"], rho, r)["stationarity_mean"] > 50 * tolerance
    assert recompute(fit, x, phi, m, rho + 0.01, r)["stationarity_log_variance"] > 50 * tolerance
    blurred = 0.95 * phi + 0.05 / phi.shape[1]
    assert recompute(fit, x, blurred, m, rho, r)["stationarity_posterior"] > 50 * tolerance
    assert recompute(fit, x, phi, m, rho, 0.5 * r)["neg_elbo"] != pytest.approx(
        fit["certificate"]["neg_elbo"], rel=1e-3
    )


def test_keys_agree_with_each_other(toy_file, tmp_path):
    out = tmp_path / "out.h5ad"
    fit_file(toy_file, FitOptions(k=4, n_init=1, **GENES), output=out)
    adata = anndata.read_h5ad(out)
    phi, domain = adata.obsm["pdvi_posterior"], adata.obs["pdvi_domain"]
    assert phi.dtype == np.float32
    assert list(domain.cat.categories) == ["0", "1", "2", "3"]
    assert not domain.isna().any()
    np.testing.assert_array_equal(domain.cat.codes, phi.argmax(axis=1))
    assert (np.diff(domain.value_counts().reindex(domain.cat.categories)) <= 0).all()
    np.testing.assert_array_equal(adata.obs["pdvi_confidence"], phi.max(axis=1))
    p = phi.astype(np.float64)
    entropy = -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=1)
    np.testing.assert_allclose(adata.obs["pdvi_entropy"], entropy, atol=1e-6)
    fit = adata.uns["pdvi"]
    lengths = {len(column) for column in fit["trace"].values()}
    assert lengths == {fit["certificate"]["epochs"] + 1}
    assert {"epoch", "seconds", "neg_elbo", "gradient_norm", "ari"} <= set(fit["trace"])
    assert fit["trace"]["ari"][-1] == pytest.approx(fit["scores"]["ari"])
    assert fit["trace"]["ari"][0] == pytest.approx(fit["scores"]["baseline"]["ari"])
    assert fit["trace"]["neg_elbo"][-1] == pytest.approx(fit["certificate"]["neg_elbo"], rel=1e-6)
    assert "pdvi_connectivities" not in adata.obsp
    assert "pdvi_flow" not in adata.obsm
    assert fit["params"]["seed"] == 0
    assert fit["params"]["versions"]["spatialpdvi"]


def test_what_has_settled_changes_by_no_more_than_was_asked(toy_section):
    """Posteriors are rounded when they are written, which changes F by more than such a tolerance."""
    result = fit(toy_section.copy(), k=4, n_init=1, tol_objective=1e-12, **GENES)
    certificate = result.certificate
    assert certificate.converged
    assert certificate.relative_change <= certificate.tolerance_objective == 1e-12
    with pytest.warns(InputWarning, match="^Not converged"):
        cut = fit(toy_section.copy(), k=4, n_init=1, max_epochs=2, **GENES)
    assert cut.trace["neg_elbo"][-1] < cut.trace["neg_elbo"][-2]  # a fall, whose size is positive all the same
    assert cut.certificate.relative_change > 0
    for one in (result, cut):
        before, last = one.trace["neg_elbo"][-2:]
        change = abs(last - before) / (0.5 * one.features.size)
        assert one.certificate.relative_change == pytest.approx(change, rel=1e-6, abs=0)


def test_a_fit_in_memory_says_that_it_has_not_converged(toy_section):
    section = toy_section.copy()
    with pytest.warns(InputWarning, match=r"^Not converged: .* 1 epoch; .* The result is written all the same\.$"):
        fit(section, k=4, n_init=1, max_epochs=1, **GENES)
    assert "pdvi_domain" in section.obs


def test_results_do_not_go_into_a_selection_of_a_backed_file(toy_file):
    backed = anndata.read_h5ad(toy_file, backed="r")
    with pytest.raises(InputError, match=r"that is backed by a file\. Copy it into memory first, with `adata\.to_mem"):
        fit(backed[:300], k=4)
    with pytest.raises(InputError, match="Copy it into memory first"):
        label(backed[:300], Merge(["0", "1"]))
    with pytest.raises(InputError, match="Copy it into memory first"):
        transfer(anndata.read_h5ad(toy_file), backed[:300])
    with pytest.raises(InputError, match="Expected an AnnData in memory with `copy=True`, found one that is backed"):
        tl.domains(backed, 4, copy=True)
    backed.file.close()
