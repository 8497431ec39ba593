"""The objective (E1) of docs/math.md in plain NumPy, sharing no code with the package: slow, dense, obvious."""

import warnings

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
    """The exact minimiser of F over phi_i, all else held."""
    logits = np.array(
        [
            np.sum(x[i] * m[k] / noise_sd**2) - 0.5 * np.sum((m[k] ** 2 + np.exp(rho[k])) / noise_sd**2)
            for k in range(m.shape[0])
        ]
    )
    logits = logits + r[i] @ phi
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


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
