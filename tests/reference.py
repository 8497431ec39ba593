"""The formulas of docs/math.md in plain NumPy, sharing no code with the package; and marker genes by scanpy."""

import warnings

import anndata
import numpy as np


def neg_elbo(phi, m, rho, x, r, noise_sd, prior_sd, prior_mean):
    """F of (E1); phi (n, K), m and rho (K, d), x (n, d), r a dense symmetric (n, n)."""
    n, n_domains = phi.shape
    total = 0.0
    for i in range(n):
        for k in range(n_domains):
            if phi[i, k] == 0.0:
                continue
            fit = np.sum((m[k] ** 2 + np.exp(rho[k]) - 2 * x[i] * m[k]) / noise_sd**2)
            total += phi[i, k] * (np.log(phi[i, k]) + 0.5 * fit)
    total += 0.5 * np.sum((m**2 + np.exp(rho) - 2 * prior_mean * m) / prior_sd**2 - rho)
    return total - 0.5 * np.einsum("ij,ik,jk->", r, phi, phi)


def best_phi(phi, i, m, rho, x, r, noise_sd):
    """The exact minimiser of F over phi_i with all else fixed (E3)."""
    logits = np.array(
        [
            np.sum(x[i] * m[k] / noise_sd**2) - 0.5 * np.sum((m[k] ** 2 + np.exp(rho[k])) / noise_sd**2)
            for k in range(m.shape[0])
        ]
    )
    logits = logits + r[i] @ phi
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def composition_emission(x, m, rho, theta, noise_sd):
    """b (n, K) of (C2)."""
    pi = np.exp(theta) / np.exp(theta).sum(axis=1, keepdims=True)
    logs = x @ (m / noise_sd**2).T - 0.5 * ((m**2 + np.exp(rho)) / noise_sd**2).sum(axis=1)
    top = logs.max(axis=1, keepdims=True)
    return np.log(np.exp(logs - top) @ pi.T) + top


def composition_neg_elbo(phi, m, rho, theta, x, r, noise_sd, prior_sd, prior_mean, prior_weight):
    """F of (C3); m and rho (C, d), theta (K, C), r a dense symmetric (n, n)."""
    entropy = np.sum(phi * np.log(np.where(phi > 0, phi, 1.0)))
    data = np.sum(phi * composition_emission(x, m, rho, theta, noise_sd))
    states = 0.5 * np.sum((m**2 + np.exp(rho) - 2 * prior_mean * m) / prior_sd**2 - rho)
    log_pi = theta - np.log(np.exp(theta).sum(axis=1, keepdims=True))
    return entropy - data - 0.5 * np.sum(phi * (r @ phi)) + states - np.sum(prior_weight * log_pi)


def central_difference(function, point, step=1e-5):
    """Gradient of ``function`` at an array, coordinate by coordinate."""
    gradient = np.empty_like(point)
    for index in np.ndindex(point.shape):
        moved = point.copy()
        moved[index] += step
        up = function(moved)
        moved[index] -= 2 * step
        gradient[index] = (up - function(moved)) / (2 * step)
    return gradient


def scanpy_markers(counts, genes, domains, n):
    """Marker genes as `rank_markers` gives them, by scanpy's `rank_genes_groups` on a normalised copy."""
    import anndata as ad
    import pandas as pd
    import scanpy as sc

    expressed = np.flatnonzero(np.asarray(counts.sum(axis=0)).ravel())
    section = ad.AnnData(
        counts[:, expressed].astype(np.float32),
        obs=pd.DataFrame({"domain": domains}, index=np.arange(counts.shape[0]).astype(str)),
        var=pd.DataFrame(index=genes[expressed]),
    )
    section.X = section.X.astype(np.float64).multiply(1e4 / np.asarray(counts.sum(axis=1)).ravel()[:, None]).tocsr()
    section.X = section.X.log1p().astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pd.errors.PerformanceWarning)
        sc.tl.rank_genes_groups(section, "domain", method="t-test_overestim_var", pts=True)
    found = section.uns["rank_genes_groups"]
    titles = ("domain", "gene", "score", "log_fold_change", "p_adjusted", "share_in", "share_out")
    parts = []
    for domain in domains.categories:
        genes = found["names"][domain][:n]
        columns = (found[key][domain][:n].astype(float) for key in ("scores", "logfoldchanges", "pvals_adj"))
        shares = (found[key][domain].loc[genes].to_numpy() for key in ("pts", "pts_rest"))
        part = pd.DataFrame(dict(zip(titles, (domain, genes, *columns, *shares), strict=True)))
        parts.append(part[part["score"] > 0])
    return pd.concat(parts, ignore_index=True)


def assert_is_scanpys(table, expected):
    """Two tables of markers: the same genes in the same order, numbers to the digits of scanpy's float32."""
    np.testing.assert_array_equal(table["domain"], expected["domain"])
    np.testing.assert_array_equal(table["gene"], expected["gene"])
    for column in list(expected)[2:]:
        np.testing.assert_allclose(table[column], expected[column], rtol=2e-6, atol=1e-6, err_msg=column)


def stored(path, rep=None):
    """Everything the objective needs, from the file's keys as docs/outputs.md names them."""
    adata = anndata.read_h5ad(path)
    fit = adata.uns["pdvi"]
    m, rho = fit.get("state_mean", fit["domain_mean"]), fit["log_variance"]
    x = adata.obsm["X_pdvi"] if "X_pdvi" in adata.obsm else adata.obsm[rep]
    x = np.asarray(x.todense() if hasattr(x, "todense") else x, dtype=np.float64)
    phi = np.asarray(adata.obsm["pdvi_posterior"], dtype=np.float64)
    r = adata.obsp["pdvi_connectivities"]
    return adata, fit, x, phi, m, rho, r


def recompute(fit, x, phi, m, rho, r):
    """The numbers of a certificate, by their names, from what `stored` returns (E1 to E8, C1 to C6 of docs/math.md)."""
    s0, s1, xi = fit["noise_sd"] ** 2, fit["prior_sd"] ** 2, fit["prior_mean"]
    # log phi of a zero is multiplied by zero
    entropy = np.sum(phi * np.log(np.where(phi > 0, phi, 1.0)))
    data = x @ (m / s0).T - 0.5 * ((m**2 + np.exp(rho)) / s0).sum(axis=1)  # (n, K), or (n, C) with states
    prior = 0.5 * np.sum((m**2 + np.exp(rho) - 2 * xi * m) / s1 - rho)
    composed = {}
    if "composition" in fit:
        pi, top = fit["composition"], data.max(axis=1, keepdims=True)
        likelihood = np.exp(data - top)
        mixed = likelihood @ pi.T
        members = pi * ((phi / mixed).T @ likelihood) + fit["prior_weight"]
        slope = members.sum(axis=1, keepdims=True) * pi - members
        composed["stationarity_composition"] = np.max(0.5 * np.abs(slope).sum(axis=1) / members.sum(axis=1))
        data, prior = np.log(mixed) + top, prior - np.sum(fit["prior_weight"] * np.log(pi))
    pull = r @ phi
    neg_elbo = entropy - np.sum(phi * data) + prior - 0.5 * np.sum(phi * pull)
    if composed:  # states are held: their means and variances have no gradient
        grad_m = grad_rho = np.zeros_like(m)
        norm = np.linalg.norm(slope)
        precision = np.ones_like(m)
    else:
        precision = phi.sum(axis=0)[:, None] / s0 + 1 / s1
        grad_m = precision * m - (phi.T @ x) / s0 - xi / s1
        grad_rho = 0.5 * (np.exp(rho) * precision - 1.0)
        norm = np.sqrt(np.sum(grad_m**2) + np.sum(grad_rho**2))
    logits = pull + data
    logits -= logits.max(axis=1, keepdims=True)
    best = np.exp(logits)
    best /= best.sum(axis=1, keepdims=True)
    residual = 0.5 * np.abs(phi - best).sum(axis=1)
    return {
        "neg_elbo": neg_elbo,
        "gradient_norm": norm,
        "gradient_norm_mean": np.linalg.norm(grad_m),
        "gradient_norm_log_variance": np.linalg.norm(grad_rho),
        "stationarity_mean": np.max(np.abs(grad_m) / precision / np.sqrt(s0)),
        "stationarity_log_variance": np.max(np.abs(2.0 * grad_rho)),
        "stationarity_posterior": residual.mean(),
        "stationarity_posterior_max": residual.max(),
        **composed,
    }
