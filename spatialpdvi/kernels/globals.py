"""The closed forms of a patch's copy of the global blocks, coordinate by coordinate. No patch or spot is known here."""

import numpy as np

from spatialpdvi.kernels.dispatch import compiled

__all__ = ["augmented_log_variance", "augmented_mean"]


@compiled
def augmented_mean(counts, sums, prior_precision, prior_mean, noise_precision, share, dual, m0, inv_step, out):
    """Minimise the augmented Lagrangian over m (E5).

    ``m = (S/s0 + w xi/s1 - mu + m0/eta) / (N/s0 + w/s1 + 1/eta)``
    """
    # IN counts (K,), sums (K, d), *_precision and prior_mean (d,), dual mu, m0, inv_step (K, d); OUT out (K, d)
    n_domains, d = sums.shape
    for k in range(n_domains):
        for f in range(d):
            prior = share * prior_precision[f]
            step = inv_step[k, f]
            top = sums[k, f] * noise_precision[f] + prior * prior_mean[f] - dual[k, f] + m0[k, f] * step
            out[k, f] = top / (counts[k] * noise_precision[f] + prior + step)


@compiled
def augmented_log_variance(counts, prior_precision, noise_precision, share, dual, rho0, inv_step, out):
    """Minimise the augmented Lagrangian over rho (E6): find the root of an increasing convex function.

    ``g(rho) = 1/2 a e^rho - w/2 + gamma + (rho - rho0)/eta = 0`` with ``a = N/s0 + w/s1``

    Newton's method that starts where ``g >= 0`` descends to the root without overshooting. Two such points are known:
    the root of the linear part alone and, where the constant is negative, the larger of ``rho0`` and the root without
    the term of the step. The smaller of the two is the start.
    """
    # IN counts (K,), *_precision (d,), dual gamma, rho0, inv_step (K, d); OUT out (K, d)
    n_domains, d = rho0.shape
    for k in range(n_domains):
        for f in range(d):
            half = 0.5 * (counts[k] * noise_precision[f] + share * prior_precision[f])
            pull = 0.5 * share - dual[k, f]
            step = inv_step[k, f]
            centre = rho0[k, f]
            rho = centre + pull / step
            if pull > 0.0:
                rho = min(rho, max(centre, np.log(pull / half)))
            else:
                rho = min(rho, centre)
            for _ in range(200):
                growth = half * np.exp(rho)
                move = (growth - pull + (rho - centre) * step) / (growth + step)
                rho -= move
                if abs(move) <= 1e-14 * max(1.0, abs(rho)):
                    break
            out[k, f] = rho
