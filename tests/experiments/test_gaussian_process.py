"""The experiment on Gaussian process classification: its step is the minimiser of (17), and its gradients are right."""

import shutil
import subprocess

import numpy as np
import pytest
from click.testing import CliRunner
from reference import central_difference
from scipy.optimize import minimize

from spatialpdvi.solvers import SolverSettings
from spatialpdvi.solvers.natural_gradient import PGSVI

pytestmark = pytest.mark.slow

N = 6


@pytest.fixture
def proximal(load):
    return load("proximal")


def _case(seed=0, n=N):
    """A kernel matrix, labels, and a generator."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    kernel = 9.0 * np.exp(-0.5 * np.sum((x[:, None] - x[None]) ** 2, axis=2)) + 1e-3 * np.eye(n)
    return kernel, np.where(rng.random(n) < 0.5, -1.0, 1.0), rng


def _problem(kind, *case, n_patches=1, n_draws=0, seed=0, **more):
    return kind(*case[:2], n_patches=n_patches, n_draws=n_draws, seed=seed, **more)


def _dense(kernel, lam):
    """m and V of q, by inverses."""
    return kernel @ lam.a, np.linalg.inv(np.linalg.inv(kernel) + np.diag(lam.w))


def _kl(m, v, m0, v0):
    """KL(N(m, V) || N(m0, V0)) as (10) of the paper has it for Gaussians."""
    away = m - m0
    inner = np.trace(np.linalg.solve(v0, v)) + away @ np.linalg.solve(v0, away) - m.size
    return 0.5 * (inner + np.linalg.slogdet(v0)[1] - np.linalg.slogdet(v)[1])


def _softplus_by_brute_force(m, v):
    """E log(1 + exp(z)) and its two derivatives in m, by 200,000 points."""
    z, step = np.linspace(m - 12.0 * np.sqrt(v), m + 12.0 * np.sqrt(v), 200_001, retstep=True)
    density = np.exp(-0.5 * (z - m) ** 2 / v) / np.sqrt(2.0 * np.pi * v) * step
    sigmoid = np.exp(-np.logaddexp(0.0, -z))
    return density @ np.logaddexp(0.0, z), density @ sigmoid, density @ (sigmoid * (1.0 - sigmoid))


@pytest.mark.parametrize("v", [1e-6, 0.3, 3.9, 4.1, 60.0, 1.6e5])
@pytest.mark.parametrize("m", [-30.0, -0.7, 0.0, 4.0])
def test_quadrature_has_ten_digits_for_narrow_and_for_wide_gaussians(proximal, m, v):
    found = proximal.logistic_expectations(np.array([m]), np.array([v]))
    for one, truth in zip(found, _softplus_by_brute_force(m, v), strict=True):
        assert one[0] == pytest.approx(truth, rel=1e-8, abs=1e-10)


def test_alpha_and_gamma_are_the_derivatives_of_the_expected_likelihood(proximal):
    kernel, labels, rng = _case()
    lam = proximal.Dual(rng.normal(size=N), rng.random(N))
    problem = _problem(proximal.ProximalProblem, kernel, labels)
    alpha, gamma = problem.statistics(problem.start()[0], 0, lam)
    m, v = _dense(kernel, lam)

    def f(mean, variance):
        return proximal.logistic_expectations(-labels * mean, variance).softplus.sum()

    np.testing.assert_allclose(alpha, central_difference(lambda x: f(x, np.diag(v)), m), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(gamma, 2.0 * central_difference(lambda x: f(m, x), np.diag(v)), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("n_patches", [1, 3, 6])
def test_sampled_gradients_are_unbiased_over_samples_and_mini_batches(proximal, n_patches):
    """The mean of many estimates, scaled by B, is that of quadrature, within four of its standard errors."""
    kernel, labels, rng = _case(1)
    lam = proximal.Dual(rng.normal(size=N), rng.random(N))
    exact = _problem(proximal.ProximalProblem, kernel, labels)
    truth = np.concatenate(exact.statistics(exact.start()[0], 0, lam))
    sampled = _problem(proximal.ProximalProblem, kernel, labels, n_patches=n_patches, n_draws=20, seed=3)
    phi, _ = sampled.start()
    found = []
    for visit in range(1200):
        patch = visit % n_patches  # each patch at every visit of a pass
        sampled.update_locals(phi, patch, None, lam)
        found.append(n_patches * np.concatenate(sampled.statistics(phi, patch, lam)))
    found = np.array(found)
    error = found.std(axis=0) / np.sqrt(len(found))
    assert np.all(np.abs(found.mean(axis=0) - truth) < 4.0 * error)
    assert np.all(error < 0.1 * np.abs(truth).max())


def test_the_mini_batches_of_a_pass_divide_the_rows_and_change(proximal):
    kernel, labels, _ = _case(2, n=11)
    problem = _problem(proximal.ProximalProblem, kernel, labels, n_patches=3, n_draws=4)
    passes = []
    for visit in (1, 2):
        phi = np.full(3, visit)
        rows = [problem.rows(phi, patch) for patch in range(3)]
        assert sorted(np.concatenate(rows)) == list(range(11))
        passes.append(np.concatenate(rows))
    assert not np.array_equal(*passes)


def test_the_bound_is_that_of_dense_formulas_and_of_samples(proximal):
    kernel, labels, rng = _case(4)
    lam = proximal.Dual(rng.normal(size=N), rng.random(N))
    problem = _problem(proximal.ProximalProblem, kernel, labels)
    found = problem.evaluate(problem.start()[0], lam).neg_elbo
    m, v = _dense(kernel, lam)
    z = m + rng.normal(size=(400_000, N)) @ np.linalg.cholesky(v).T
    terms = np.logaddexp(0.0, -labels * z).sum(axis=1)
    divergence = _kl(m, v, np.zeros(N), kernel)
    assert problem.divergence(lam) == pytest.approx(divergence, rel=1e-10)
    assert found == pytest.approx(terms.mean() + divergence, abs=4.0 * terms.std() / np.sqrt(terms.size / N))
    # the whole negative evidence lower bound by samples of q, without a formula for any part of it
    prior, own = np.linalg.inv(kernel), np.linalg.inv(v)
    log_ratio = 0.5 * np.einsum("si,ij,sj->s", z, prior, z) - 0.5 * np.einsum("si,ij,sj->s", z - m, own, z - m)
    log_ratio += 0.5 * (np.linalg.slogdet(kernel)[1] - np.linalg.slogdet(v)[1])
    whole = terms + log_ratio
    assert found == pytest.approx(whole.mean(), abs=4.0 * whole.std() / np.sqrt(whole.size))


@pytest.mark.parametrize("beta", [0.01, 0.7, 20.0])
def test_a_step_is_the_exact_minimiser_of_17(proximal, beta):
    """The linearised likelihood, the prior and the proximal term, minimised by scipy over m and a root of V."""
    kernel, labels, rng = _case(5)
    lam = proximal.Dual(rng.normal(size=N), rng.random(N))
    problem = _problem(proximal.ProximalProblem, kernel, labels)
    gradient = problem.statistics(problem.start()[0], 0, lam)
    solver = PGSVI(SolverSettings(step_size=beta, inner_rounds=1))
    new = solver.merge(problem, solver.init_shared(problem, lam, []), [gradient]).lam
    m_k, v_k = _dense(kernel, lam)
    below = np.tril_indices(N)

    def subproblem(x):
        m, root = x[:N], np.zeros((N, N))
        root[below] = x[N:]
        v = root @ root.T
        linear = gradient.alpha @ m + 0.5 * gradient.gamma @ np.diag(v)
        return linear + _kl(m, v, np.zeros(N), kernel) + _kl(m, v, m_k, v_k) / beta

    start = np.concatenate([m_k, np.linalg.cholesky(v_k)[below]])
    least = minimize(subproblem, start, method="BFGS", options={"gtol": 1e-7, "maxiter": 5000})
    m, v = _dense(kernel, new)
    ours = np.concatenate([m, np.linalg.cholesky(v)[below]])
    assert subproblem(ours) <= least.fun + 1e-9
    np.testing.assert_allclose(central_difference(subproblem, ours), 0.0, atol=2e-5 * (1.0 + 1.0 / beta))
    np.testing.assert_allclose(least.x, ours, atol=2e-3)
    # the closed form with inverses, as it is derived
    r, prior, precision = 1.0 / (1.0 + beta), np.linalg.inv(kernel), np.linalg.inv(v_k)
    np.testing.assert_allclose(
        np.linalg.inv(v), r * precision + (1.0 - r) * (prior + np.diag(gradient.gamma)), rtol=1e-6, atol=1e-8
    )
    expected = np.linalg.solve((1 - r) * prior + r * precision, r * precision @ m_k - (1 - r) * gradient.alpha)
    np.testing.assert_allclose(m, expected, rtol=1e-8, atol=1e-9)


def test_the_step_of_the_authors_program_is_the_natural_gradient(proximal):
    kernel, labels, rng = _case(6)
    lam = proximal.Dual(rng.normal(size=N), rng.random(N))
    problem = _problem(proximal.NaturalProblem, kernel, labels)
    alpha, gamma = problem.statistics(problem.start()[0], 0, lam)
    step = 0.3
    new = problem.blend(lam, problem.global_optimum(proximal.LikelihoodGradient(alpha, gamma)), step)
    (m_k, v_k), (m, v) = _dense(kernel, lam), _dense(kernel, new)
    natural = (1 - step) * np.linalg.solve(v_k, m_k) + step * (gamma * m_k - alpha)
    np.testing.assert_allclose(np.linalg.solve(v, m), natural, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ["ProximalProblem", "NaturalProblem"])
def test_the_fixed_point_is_a_stationary_point_of_the_bound(proximal, kind):
    """With all rows and exact expectations; seen from m and a Cholesky factor of V, whose formulas are others."""
    kernel, labels, _ = _case(7)
    problem = _problem(getattr(proximal, kind), kernel, labels)
    phi, lam = problem.start()
    for _ in range(400):
        lam = problem.blend(lam, problem.global_optimum(problem.statistics(phi, 0, lam)), 0.2)
    alpha, gamma = problem.statistics(phi, 0, lam)
    np.testing.assert_allclose([lam.a, lam.w], [-alpha, gamma], atol=1e-9)
    m, v = _dense(kernel, lam)
    below = np.tril_indices(N)

    def bound(x):
        root = np.zeros((N, N))
        root[below] = x[N:]
        v = root @ root.T
        likelihood = proximal.logistic_expectations(-labels * x[:N], np.diag(v)).softplus.sum()
        return likelihood + _kl(x[:N], v, np.zeros(N), kernel)

    at = np.concatenate([m, np.linalg.cholesky(v)[below]])
    np.testing.assert_allclose(central_difference(bound, at), 0.0, atol=1e-5)
    assert bound(at) == pytest.approx(problem.evaluate(phi, lam).neg_elbo, rel=1e-9)


@pytest.mark.parametrize("whitened", [False, True])
def test_the_rivals_have_the_same_bound_its_gradient_and_the_same_predictions(proximal, whitened):
    kernel, labels, rng = _case(8)
    rivals = _problem(proximal.RootProblem, kernel, labels, n_patches=2, whitened=whitened)
    exact = _problem(proximal.ProximalProblem, kernel, labels)
    phi, start = rivals.start()
    assert rivals.evaluate(phi, start).neg_elbo == pytest.approx(exact.evaluate(*exact.start()).neg_elbo, rel=1e-9)

    dual = proximal.Dual(rng.normal(size=N), rng.random(N))
    m, v = _dense(kernel, dual)
    back = np.linalg.inv(np.linalg.cholesky(kernel)) if whitened else np.eye(N)
    root = np.linalg.cholesky(back @ v @ back.T)
    root[np.diag_indices(N)] = np.log(np.diag(root))
    lam = proximal.Root(back @ m, root)
    assert rivals.evaluate(phi, lam).neg_elbo == pytest.approx(exact.evaluate(phi, dual).neg_elbo, rel=1e-8)

    cross, own = rng.normal(size=(3, N)), np.full(3, 99.0)
    for ours, theirs in zip(exact.predict(dual, cross, own), rivals.predict(lam, cross, own), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    weights = np.linalg.solve(kernel, cross.T).T
    np.testing.assert_allclose(exact.predict(dual, cross, own)[0], weights @ m, rtol=1e-6)
    variance = own - np.sum(weights * cross, axis=1) + np.sum((weights @ v) * weights, axis=1)
    np.testing.assert_allclose(exact.predict(dual, cross, own)[1], variance, rtol=1e-6)

    parts = [rivals.gradient(rivals.statistics(phi, b, lam), b, lam) for b in range(2)]
    np.testing.assert_allclose(
        parts[0].mean + parts[1].mean,
        central_difference(lambda x: rivals.evaluate(phi, lam._replace(mean=x)).neg_elbo, lam.mean),
        rtol=1e-5,
        atol=1e-6,
    )
    numeric = central_difference(lambda x: rivals.evaluate(phi, lam._replace(root=x)).neg_elbo, lam.root)
    np.testing.assert_allclose(parts[0].root + parts[1].root, np.tril(numeric), rtol=1e-5, atol=1e-6)


def test_adadelta_and_falling_steps_are_those_of_their_definitions(load, proximal):
    experiment = load("gaussian_process")
    kernel, labels, _ = _case(9)
    problem = _problem(proximal.RootProblem, kernel, labels, whitened=True)
    phi, start = problem.start()
    g = problem.gradient(problem.statistics(phi, 0, start), 0, start)
    squares, moves, adaptive = np.zeros(N), np.zeros(N), []
    for _ in range(2):
        squares = 0.9 * squares + 0.1 * g.mean**2
        adaptive.append(np.sqrt((moves + 1e-4) / (squares + 1e-4)) * g.mean)
        moves = 0.9 * moves + 0.1 * adaptive[-1] ** 2
    for solver, expected in (
        (experiment.FallingSGD(0.5, 0.7), [0.5 * g.mean, 0.5 * 2.0**-0.7 * g.mean]),
        (experiment.Adadelta(0.1, 1e-4), adaptive),
    ):
        shared = solver.init_shared(problem, start, [])
        walked = []
        for _ in range(2):  # one patch, so that the message is the whole gradient
            before = shared.lam.mean
            shared = solver.merge(problem, shared, [g])
            walked.append(before - shared.lam.mean)
        np.testing.assert_allclose(walked, expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["pg-svi", "sgd", "adadelta-whitened"])
def test_the_same_seed_gives_the_same_bits(load, name):
    experiment = load("gaussian_process")
    setting = experiment.SETTINGS["digits"]._replace(n_train=20, n_draws=30)
    kernel, labels, rng = _case(10, n=20)
    data = experiment.Data(kernel, labels, rng.normal(size=(4, 20)), np.full(4, 99.0), labels[:4])
    method = experiment.METHODS[name]

    def curve(seed):
        return experiment.run(method, method.grid(setting)[1], setting, data, passes=3, seed=seed, least=1.0)

    first, again, other = curve(0), curve(0), curve(1)
    assert np.all(np.isfinite(first.excess))
    assert np.array_equal(first.excess, again.excess)
    assert np.array_equal(first.log_loss, again.log_loss)
    assert not np.array_equal(first.excess, other.excess)


def test_data_that_are_not_here_are_skipped_in_words(load, tmp_path, monkeypatch):
    experiment = load("gaussian_process")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    line = ["--passes", "1", "--pilot-passes", "1", "--seeds", "1", "--output", str(tmp_path)]
    result = CliRunner().invoke(experiment.main, ["--only", "sonar", *line])
    assert result.exit_code == 1
    words = "Sonar is skipped: it needs R and its package mlbench (Debian: apt-get install r-cran-mlbench)."
    assert words in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_data_of_r_are_read_where_they_are(load):
    if shutil.which("Rscript") is None:
        pytest.skip("Rscript is not here: install R")
    known = load("common").r_data("datasets", "cars")
    assert known.shape == (50, 2)
    missing = load("common").r_data("nowhere", "Nothing")
    assert missing == "Nothing is skipped: it needs R and its package nowhere (Debian: apt-get install r-cran-nowhere)."
    if subprocess.run(["Rscript", "-e", "library(mlbench)"], capture_output=True, check=False).returncode:
        pytest.skip("the package mlbench is not here: apt-get install r-cran-mlbench")
    for name, rows in (("sonar", (165, 43)), ("ionosphere", (280, 71))):
        data = load("gaussian_process").read(name)
        assert (data.labels.size, data.test_labels.size) == rows
        assert set(data.labels) == {-1.0, 1.0}
        assert np.all(np.linalg.eigvalsh(data.kernel) > 0)
