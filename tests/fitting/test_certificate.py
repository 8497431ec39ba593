"""The certificate recomputed from the written file alone, by formulas written out here: no code of the package's."""

import anndata
import numpy as np
import pytest

from spatialpdvi import FitOptions, fit_file


def _stored(path, rep=None):
    """Everything the objective needs, from the file's keys as docs/outputs.md names them."""
    adata = anndata.read_h5ad(path)
    fit = adata.uns["pdvi"]
    m, rho = fit["domain_mean"], fit["log_variance"]
    x = adata.obsm["X_pdvi"] if "X_pdvi" in adata.obsm else adata.obsm[rep]
    x = np.asarray(x.todense() if hasattr(x, "todense") else x, dtype=np.float64)
    phi = np.asarray(adata.obsm["pdvi_posterior"], dtype=np.float64)
    r = adata.obsp["pdvi_connectivities"]
    return adata, fit, x, phi, m, rho, r


def _recompute(fit, x, phi, m, rho, r):
    s0, s1, xi = fit["noise_sd"] ** 2, fit["prior_sd"] ** 2, fit["prior_mean"]
    # log phi of a zero is multiplied by zero
    entropy = np.sum(phi * np.log(np.where(phi > 0, phi, 1.0)))
    data = 0.5 * ((m**2 + np.exp(rho)) / s0).sum(axis=1) - x @ (m / s0).T  # (n, K)
    prior = 0.5 * np.sum((m**2 + np.exp(rho) - 2 * xi * m) / s1 - rho)
    pull = r @ phi
    neg_elbo = entropy + np.sum(phi * data) + prior - 0.5 * np.sum(phi * pull)
    counts = phi.sum(axis=0)[:, None]
    precision = counts / s0 + 1 / s1
    grad_m = precision * m - (phi.T @ x) / s0 - xi / s1
    grad_rho = 0.5 * (np.exp(rho) * precision - 1.0)
    logits = pull - data
    logits -= logits.max(axis=1, keepdims=True)
    best = np.exp(logits)
    best /= best.sum(axis=1, keepdims=True)
    residual = 0.5 * np.abs(phi - best).sum(axis=1)
    return {
        "neg_elbo": neg_elbo,
        "gradient_norm": np.sqrt(np.sum(grad_m**2) + np.sum(grad_rho**2)),
        "gradient_norm_mean": np.linalg.norm(grad_m),
        "gradient_norm_log_variance": np.linalg.norm(grad_rho),
        "stationarity_mean": np.max(np.abs(grad_m) / precision / np.sqrt(s0)),
        "stationarity_log_variance": np.max(np.abs(np.exp(rho) * precision - 1.0)),
        "stationarity_posterior": residual.mean(),
        "stationarity_posterior_max": residual.max(),
    }


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


@pytest.mark.parametrize("case", CASES)
def test_the_file_proves_what_its_certificate_says(case, toy_file, tmp_path):
    out = tmp_path / "out.h5ad"
    result = fit_file(toy_file, FitOptions(k=4, save_graph=True, **GENES | CASES[case]), output=out)
    _, fit, x, phi, m, rho, r = _stored(out, rep="X_pca")
    assert (abs(r - r.T) > 0).nnz == 0
    assert r.diagonal().sum() == 0
    certificate = fit["certificate"]
    for name, value in _recompute(fit, x, phi, m, rho, r).items():
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
    fit_file(toy_file, FitOptions(k=4, save_graph=True, **GENES), output=out)
    _, fit, x, phi, m, rho, r = _stored(out)
    tolerance = fit["certificate"]["tolerance"]
    assert _recompute(fit, x, phi, m + 0.01 * fit["noise_sd"], rho, r)["stationarity_mean"] > 50 * tolerance
    assert _recompute(fit, x, phi, m, rho + 0.01, r)["stationarity_log_variance"] > 50 * tolerance
    blurred = 0.95 * phi + 0.05 / phi.shape[1]
    assert _recompute(fit, x, blurred, m, rho, r)["stationarity_posterior"] > 50 * tolerance
    assert _recompute(fit, x, phi, m, rho, 0.5 * r)["neg_elbo"] != pytest.approx(
        fit["certificate"]["neg_elbo"], rel=1e-3
    )


def test_keys_agree_with_each_other(toy_file, tmp_path):
    out = tmp_path / "out.h5ad"
    fit_file(toy_file, FitOptions(k=4, **GENES), output=out)
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
