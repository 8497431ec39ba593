"""The hot loops of the search for the lowest F: fits of all domains and of two, and compositions that vary in space."""

import math

import numpy as np

from spatialpdvi.kernels.dispatch import compiled, steps_of_loops
from spatialpdvi.kernels.mixture import (
    N_CHUNKS,
    add_chunks,
    copy,
    data_term_dense,
    movement,
    responsibilities,
    statistics_dense,
    sweep_relative,
    terms_of_colour,
    transpose,
)
from spatialpdvi.kernels.posteriors import LEAST, softmax_rows
from spatialpdvi.kernels.simd import WIDTH, fill, fma, largest, load, store, upper

__all__ = ["compose", "domains_inserted", "fit_domains", "fit_two_within", "varied_statistics"]


@compiled
def _renew(members, prior, composition):
    """Replace compositions (K, C) by the optimum (C5), given what their posteriors make of each share of a state."""
    for k in range(composition.shape[0]):
        weight = 0.0
        for c in range(prior.size):
            composition[k, c] = composition[k, c] * members[k, c] + prior[c]
            weight += composition[k, c]
        for c in range(prior.size):
            composition[k, c] /= weight


@steps_of_loops(lambda relative, prior, phi, mixed, composition: relative.size * -(-phi.shape[1] // WIDTH))
def compose(relative, prior, phi, mixed, composition):
    """Replace the compositions of domains by the optimum (C5) for their posteriors, with states by the old ones."""
    # IN relative (n, C) likelihoods of states, prior (C,), phi (n, K); IN mixed (n, K) relative likelihoods of domains
    # with the old compositions, overwritten; IN/OUT composition (K, C)
    n_domains, n_states = composition.shape
    responsibilities(phi, mixed)
    counts, sums = np.empty((N_CHUNKS, n_domains)), np.empty((N_CHUNKS, n_states, n_domains))
    statistics_dense(relative, mixed, counts, sums)
    by_state, members = np.empty((n_states, n_domains)), np.empty((n_domains, n_states))
    add_chunks(sums, by_state)
    transpose(by_state, members)
    _renew(members, prior, composition)


def _terms_of_colour(relative, indptr, indices, r, colour_start, *rest):
    return terms_of_colour(rest[-1], indptr, indices, r, None, colour_start, rest[-1])


@steps_of_loops(_terms_of_colour)
def fit_domains(relative, indptr, indices, r, colour_start, prior, rounds, settled, before, mixed, composition, phi):
    """Fit compositions (C5) and posteriors (E3) of domains in turn, with states held, in place.

    The fit ends after so many rounds, or where posteriors move by less than ``settled`` on average. Returns whether
    they did.
    """
    # IN as in `compose`, CSR graph (n, n), colour_start as in sweep; OUT before (n, K) any float; IN/OUT mixed (n, K)
    # relative likelihoods of domains with the compositions, composition (K, C), phi (n, K)
    n, n_domains = phi.shape
    no_offset, no_halo, weight = np.zeros(n_domains), np.zeros((0, n_domains)), np.empty((prior.size, n_domains))
    moved, moved_in_all = np.empty(N_CHUNKS), np.empty(1)
    for _ in range(rounds):
        compose(relative, prior, phi, mixed, composition)
        copy(phi, before)
        transpose(composition, weight)
        data_term_dense(relative, weight, no_offset, mixed)
        sweep_relative(mixed, indptr, indices, r, no_halo, colour_start, phi)
        movement(before, phi, moved)
        add_chunks(moved, moved_in_all)
        if moved_in_all[0] < settled * n:
            return True
    return False


@compiled
def _evidence(relative, spots, composition, logs):
    """Write the log-likelihoods of two domains (C2), relative to each spot's likeliest state."""
    for a in range(spots.size):
        own = relative[spots[a]]
        first, second = 0.0, 0.0
        for c in range(own.size):
            first += own[c] * composition[0, c]
            second += own[c] * composition[1, c]
        logs[a, 0], logs[a, 1] = math.log(max(first, LEAST)), math.log(max(second, LEAST))


@compiled
def _compose_two(relative, spots, prior, logs, second, composition):
    """Replace the compositions of two domains by the optimum (C5) for their posteriors, with states by the old ones."""
    members = np.zeros(composition.shape)
    for a in range(spots.size):
        own = relative[spots[a]]
        first, other = (1.0 - second[a]) / math.exp(logs[a, 0]), second[a] / math.exp(logs[a, 1])
        for c in range(own.size):
            members[0, c] += first * own[c]
            members[1, c] += other * own[c]
    _renew(members, prior, composition)


@compiled
def fit_two_within(relative, spots, place, indptr, indices, r, prior, rounds, settled, composition, second):
    """Fit two domains to the spots of one, their posteriors and their compositions in turn.

    Compositions are first fitted to the posteriors that are given. All spots are updated at once, half way from their
    old posteriors, since whole steps could cycle. The fit ends after so many rounds, or where posteriors move by less
    than ``settled`` on average. Returns the part of (C3) that these spots, their edges to each other and the
    compositions' prior have, and half the weights of these edges: what they are worth if all are in one domain.
    """
    # IN relative (n, C) likelihoods of states, spots (m,), place (n,) their rows in spots, -1 for all others, CSR graph
    # (n, n), prior (C,); IN/OUT composition (2, C), second (m,) the posterior of the second domain
    m = spots.size
    new, logs = np.empty(m), np.empty((m, 2))
    for turn in range(rounds):
        _evidence(relative, spots, composition, logs)
        moved = 0.0
        for a in range(m):
            against = logs[a, 0] - logs[a, 1]
            for e in range(indptr[spots[a]], indptr[spots[a] + 1]):
                b = place[indices[e]]
                if b >= 0:
                    against += r[e] * (1.0 - 2.0 * second[b])
            new[a] = 1.0 / (1.0 + math.exp(against))
            moved += abs(new[a] - second[a])
        if turn:
            for a in range(m):
                second[a] = 0.5 * (second[a] + new[a])
        _compose_two(relative, spots, prior, logs, second, composition)
        if turn and moved < settled * m:
            break
    _evidence(relative, spots, composition, logs)
    value, inside = 0.0, 0.0
    for a in range(m):
        first, other = 1.0 - second[a], second[a]
        value += first * (math.log(max(first, LEAST)) - logs[a, 0])
        value += other * (math.log(max(other, LEAST)) - logs[a, 1])
        for e in range(indptr[spots[a]], indptr[spots[a] + 1]):
            b = place[indices[e]]
            if b >= 0:
                inside += 0.5 * r[e]
                value -= 0.5 * r[e] * (first * (1.0 - second[b]) + other * second[b])
    for c in range(prior.size):
        value -= prior[c] * (math.log(max(composition[0, c], LEAST)) + math.log(max(composition[1, c], LEAST)))
    return value, inside


@compiled
def domains_inserted(relative, indptr, indices, r, labels, current, others, composition, changes, overlap):
    """Compute the change of F, by hard labels, where each domain of another fit becomes a new one of this fit.

    The prior of its composition is left out. Nothing else is changed, and what the other fit has besides is not looked
    at.
    """
    # IN relative (n, C) likelihoods of states, CSR graph (n, n), labels (n,) and the log-likelihoods of their domains
    # (n,), labels (n,) of the other fit and its compositions (K, C); OUT changes (K,), overlap (K, K) spots by both
    changes[:] = 0.0
    overlap[:] = 0
    for i in range(labels.size):
        new = others[i]
        likelihood = 0.0
        for c in range(relative.shape[1]):
            likelihood += relative[i, c] * composition[new, c]
        change = current[i] - math.log(max(likelihood, LEAST))
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            joined, stays = labels[j] == labels[i], others[j] == new
            if joined and not stays:
                change += r[e]
            elif stays and not joined:
                change -= 0.5 * r[e]
        changes[new] += change
        overlap[new, labels[i]] += 1


@compiled
def varied_statistics(relative, functions, labels, theta, slopes, found, expected, squares, gradient):
    """Compute the sums over spots by which compositions that vary within domains are fitted (C14).

    With ``p_ic = softmax_c(theta[k, c] + sum_b functions[i, b] slopes[k, b, c])`` for the domain k of spot i, and
    ``q_ic`` its posterior over states, every domain's sums of q, p, p squared and of the products of functions with q
    less p. Returns the log-likelihood of all spots, relative to their likeliest states.
    """
    # IN relative (n, C) likelihoods of states, functions (n, b), labels (n,), theta (K, C), slopes (K, b, C), all but
    # relative and labels float64; OUT found, expected, squares (K, C), gradient (K, b, C)
    n, n_states = relative.shape
    n_functions = functions.shape[1]
    found[:] = 0.0
    expected[:] = 0.0
    squares[:] = 0.0
    gradient[:] = 0.0
    p, excess = np.empty((1, n_states)), np.empty(n_states)
    row, tops = np.zeros(1, dtype=np.int64), np.empty(1)
    value = 0.0
    for i in range(n):
        k = labels[i]
        top = fill(-np.inf)
        for c in range(0, n_states, WIDTH):
            left = n_states - c
            logit = load(theta, k * n_states + c, left, -np.inf)
            for b in range(n_functions):
                slope = load(slopes, (k * n_functions + b) * n_states + c, left, 0.0)
                logit = fma(fill(functions[i, b]), slope, logit)
            store(p, c, left, logit)
            top = upper(top, logit)
        tops[0] = largest(top)
        softmax_rows(row, 0, 1, p, tops)
        likelihood = 0.0
        for c in range(n_states):
            excess[c] = p[0, c] * relative[i, c]
            likelihood += excess[c]
        likelihood = max(likelihood, LEAST)
        value += math.log(likelihood)
        for c in range(n_states):
            q = excess[c] / likelihood
            found[k, c] += q
            expected[k, c] += p[0, c]
            squares[k, c] += p[0, c] * p[0, c]
            excess[c] = q - p[0, c]
        for b in range(n_functions):
            at = fill(functions[i, b])
            for c in range(0, n_states, WIDTH):
                here, left = (k * n_functions + b) * n_states + c, n_states - c
                store(gradient, here, left, fma(at, load(excess, c, left, 0.0), load(gradient, here, left, 0.0)))
    return value
