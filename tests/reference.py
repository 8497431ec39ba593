"""The objective written out from DESIGN 3 in plain NumPy, sharing no code with the package: slow, dense, obvious."""

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
