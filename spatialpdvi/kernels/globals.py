"""The closed forms of a patch's copy of the global blocks, coordinate by coordinate. No patch or spot is known here."""

import numpy as np

from spatialpdvi.kernels.dispatch import compiled

__all__ = ["augmented_composition", "augmented_log_variance", "augmented_mean"]


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

    With ``A = rho0 + eta (w/2 - gamma)``, where the linear part is 0, ``u = 1/2 a eta e^rho`` solves
    ``u + log u = A + log(a eta / 2)``: it is the Wright omega function of the right side, and ``rho = A - u``.
    """
    # IN counts (K,), *_precision (d,), dual gamma, rho0, inv_step (K, d); OUT out (K, d)
    n_domains, d = rho0.shape
    for k in range(n_domains):
        for f in range(d):
            half = 0.5 * (counts[k] * noise_precision[f] + share * prior_precision[f])
            step = inv_step[k, f]
            linear = rho0[k, f] + (0.5 * share - dual[k, f]) / step
            shift = np.log(half / step)
            u = _wright_omega(linear + shift)
            # two forms of the same number: where u is large, A - u would be a difference of large numbers
            out[k, f] = np.log(u) - shift if u > 1.0 else linear - u


@compiled
def _wright_omega(z):
    """The root u > 0 of ``u + log u = z`` (Corless and Jeffrey 2002)."""
    if z < -40.0:
        return np.exp(z)  # u^2 is below rounding
    u = z - np.log(z) if z > 1.0 else np.exp(z) / (1.0 + np.exp(z))
    for _ in range(8):  # each step takes the relative error to its fourth power (Fritsch, Shafer and Crowley 1973)
        residual = z - u - np.log(u)
        square = (1.0 + u) * (1.0 + u + 2.0 / 3.0 * residual)
        move = u * residual / (1.0 + u) * (square - 0.5 * residual) / (square - residual)
        u += move
        if abs(move) <= 1e-5 * u:
            break
    return u


@compiled
def augmented_composition(weights, dual, theta0, inv_step, out):
    """Minimise the augmented Lagrangian over the logits of compositions, domain by domain (C4).

    ``J(theta) = T log sum_c e^theta_c - sum_c A_c theta_c + <dual, theta> + 1/2 sum_c (theta_c - theta0_c)^2 / eta_c``
    with ``T = sum_c A_c`` is strictly convex. Its Hessian ``diag(T p + 1/eta) - T p p'`` is a diagonal less a product,
    so that a Newton step costs O(C) (Sherman and Morrison 1950). Steps are halved until J falls enough (Armijo), which
    makes the method converge from any start.
    """
    # IN weights A, dual, theta0, inv_step (K, C); OUT out (K, C)
    n_domains, n_states = theta0.shape
    for k in range(n_domains):
        total = weights[k].sum()
        constant = theta0[k].mean()  # changes J by the same for all theta; without it, J loses fewer digits
        start = theta0[k] - constant
        theta = start.copy()
        p = np.empty(n_states)
        value = _composition_value(weights[k], total, dual[k], start, inv_step[k], theta, p)
        for _ in range(100):
            gradient = total * p - weights[k] + dual[k] + (theta - start) * inv_step[k]
            inverse = 1.0 / (total * p + inv_step[k])
            along, across, curved = 0.0, 0.0, 0.0
            for c in range(n_states):
                along += p[c] * gradient[c] * inverse[c]
                # 1 - T sum p^2 / (T p + 1/eta), without the difference of two numbers close to 1
                across += p[c] * inv_step[k, c] * inverse[c]
            move = inverse * (gradient + p * (total * along / across))
            slope = 0.0
            for c in range(n_states):
                slope += gradient[c] * move[c]
                curved = max(curved, abs(move[c]))
            scale = 1.0
            while True:
                trial = theta - scale * move
                new = _composition_value(weights[k], total, dual[k], start, inv_step[k], trial, p)
                rounding = 1e-15 * abs(value)
                if new <= value - 0.25 * scale * slope + rounding or scale * curved < 1e-13 or np.isnan(new):
                    break
                scale *= 0.5
            theta = trial
            value = new
            if scale * curved < 1e-12:
                break
        out[k] = theta + constant


@compiled
def _composition_value(weights, total, dual, theta0, inv_step, theta, p):
    """J at theta; the softmax of theta is written to p."""
    top = theta.max()
    mass, value = 0.0, 0.0
    for c in range(theta.size):
        p[c] = np.exp(theta[c] - top)
        mass += p[c]
        away = theta[c] - theta0[c]
        value += (dual[c] - weights[c]) * theta[c] + 0.5 * away * away * inv_step[c]
    p /= mass
    return value + total * (top + np.log(mass))
