"""The experiment on autoencoders: gradients are those of the objectives, and likelihoods those of quadrature."""

import numpy as np
import pytest
from reference import central_difference

from spatialpdvi.uncertainty.implicit import ImplicitOptions

pytestmark = pytest.mark.slow


@pytest.fixture
def gradients(load):
    return load("autoencoder_gradients")


def _small(gradients, method, *, n=4, dimensions=2, spread=0.3, seed=0):
    """Networks with their parameters, and images with a pair each."""
    rng = np.random.default_rng(seed)
    model = gradients.Autoencoder.make(method, pixels=6, dimensions=dimensions, noise_dimensions=3, hidden=(5, 4))
    theta = gradients.Theta(
        *(network.start(rng) + spread * rng.normal(size=network.size) for network in (model.encoder, model.decoder))
    )
    images = (rng.random((n, 6)) < 0.5).astype(float)
    return model, theta, images, (rng.normal(size=(n, dimensions)), rng.normal(size=(n, 3))), rng


def _split(gradients, model, flat):
    return gradients.Theta(flat[: model.encoder.size], flat[model.encoder.size :])


@pytest.mark.parametrize("has_own", [True, False])
def test_gradients_of_ratios_are_those_of_their_values(gradients, has_own):
    model, theta, images, pairs, rng = _small(gradients, "SIVI")
    noises, on = rng.normal(size=(5, 3)), rng.random(4)

    def value(flat):
        return (
            on @ gradients.Ratios(model, _split(gradients, model, flat), images, pairs, noises, has_own=has_own).log_g
        )

    found = gradients.Ratios(model, theta, images, pairs, noises, has_own=has_own).pull_back(on)
    np.testing.assert_allclose(
        np.concatenate(found), central_difference(value, np.concatenate(theta)), rtol=1e-5, atol=1e-7
    )


def test_a_ratio_is_the_mean_of_gaussian_densities_over_the_joint_density(gradients):
    model, theta, images, (u, e), rng = _small(gradients, "SIVI")
    noises = rng.normal(size=(5, 3))
    ratios = gradients.Ratios(model, theta, images, (u, e), noises)
    s = np.exp(theta.encoder[-2:])
    for i, image in enumerate(images):
        means = [model.encoder.forward(theta.encoder, np.concatenate([one, image])[None])[0][0] for one in noises]
        z = model.encoder.forward(theta.encoder, np.concatenate([e[i], image])[None])[0][0] + s * u[i]
        density = np.mean([np.exp(-0.5 * (((z - m) / s) ** 2).sum()) / (2 * np.pi * s.prod()) for m in means])
        p = 1 / (1 + np.exp(-model.decoder.forward(theta.decoder, z[None])[0][0]))
        joint = np.where(image > 0, p, 1 - p).prod() * np.exp(-0.5 * (z**2).sum()) / (2 * np.pi)
        assert ratios.log_g[i] == pytest.approx(np.log(density / joint), abs=1e-10)


def test_few_noises_have_no_lower_bound_where_s_is_small_unless_a_pairs_own_is_among_them(gradients):
    """Why nested means and CI-VI fail with large steps: far noises make the entropy seem large."""
    model, theta, images, pairs, rng = _small(gradients, "SIVI")
    noises = rng.normal(size=(5, 3))
    nested, sivi = [], []
    for log_s in (-1.0, -4.0, -7.0):
        narrow = theta._replace(encoder=np.concatenate([theta.encoder[:-2], np.full(2, log_s)]))
        for found, has_own in ((nested, False), (sivi, True)):
            found.append(gradients.Ratios(model, narrow, images, pairs, noises, has_own=has_own).log_g.mean())
    assert nested[2] < 300 * nested[1] < 0  # as 1 / s^2
    assert sivi[0] < sivi[1] < sivi[2]  # as -log s


def test_the_gradient_of_an_ordinary_autoencoder_is_that_of_its_bound(gradients):
    model, theta, images, (u, _), _ = _small(gradients, "Gaussian")
    numeric = central_difference(
        lambda flat: gradients.gaussian(model, _split(gradients, model, flat), images, u)[0], np.concatenate(theta)
    )
    found = gradients.gaussian(model, theta, images, u)[1]
    np.testing.assert_allclose(np.concatenate(found), numeric, rtol=1e-5, atol=1e-7)


def test_the_gradient_of_uivi_is_on_average_that_of_sivi_with_many_noises(gradients):
    """Both are gradients of -ELBO, the one up to its chains and the other up to 1/K."""
    model, theta, images, _, rng = _small(gradients, "UIVI", n=1, spread=0.1)
    n = 1000
    images = np.repeat(images, n, axis=0)
    pairs = rng.normal(size=(n, 2)), rng.normal(size=(n, 3))
    ratios = gradients.Ratios(model, theta, images, pairs, rng.normal(size=(n, 3)), has_own=True)
    expected = np.concatenate(ratios.pull_back(np.full(n, 1 / n)))
    found = np.mean(
        [np.concatenate(gradients.unbiased(model, theta, images, pairs, step=0.3, rng=rng)[0]) for _ in range(5)],
        axis=0,
    )
    assert np.linalg.norm(found - expected) < 0.15 * np.linalg.norm(expected)


@pytest.mark.parametrize("method", ["CI-VI", "Gaussian"])
def test_likelihoods_by_importance_sampling_are_those_of_quadrature(gradients, method):
    model, theta, images, _, _ = _small(gradients, method, spread=0.2)
    places = np.linspace(-8, 8, 401)
    z = np.column_stack([part.ravel() for part in np.meshgrid(places, places)])
    log_odds = model.decoder.forward(theta.decoder, z)[0]
    log_joint = images @ log_odds.T - np.logaddexp(0, log_odds).sum(axis=1) - 0.5 * (z**2).sum(axis=1)
    truth = np.log(np.exp(log_joint).sum(axis=1) / (2 * np.pi) * (places[1] - places[0]) ** 2)
    single = gradients.Theta(*(part.astype(np.float32) for part in theta))
    found = gradients.estimate(gradients.Fit(model, single, 0.0), images, 2000, seed=0)
    np.testing.assert_allclose(found.log_likelihood, truth, atol=5 * np.sqrt(found.variance.max()) + 1e-4)
    assert np.sqrt(found.variance.max()) < 0.1
    assert (-found.neg_elbo < truth + 0.05).all()
    # one draw from each component varies less than independent draws, of which the variance is stated
    again = [gradients.estimate(gradients.Fit(model, single, 0.0), images, 500, seed) for seed in range(40)]
    measured = np.var([one.log_likelihood for one in again], axis=0).mean()
    assert 0.3 < measured / np.mean([one.variance for one in again]) < 1.5


def test_y_forgets_its_old_value_as_if_it_were_renewed_in_every_iteration(gradients):
    options = ImplicitOptions(noise_dimensions=3, chunk=1, smoothing=0.3)
    pool = gradients._Pool(2, options, 2, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    u, e = pool.draw(np.array([1, 0]), rng)
    assert u.shape == (2, 2)
    assert e.shape == (2, 3)
    first = np.log([2.0, 5.0])
    np.testing.assert_allclose(pool.follow(first, 1, 0.3), first, rtol=1e-6)  # y begins with the first g
    again, _ = pool.draw(np.array([0]), rng)
    np.testing.assert_array_equal(again[0], u[1])  # the pairs are those of the image
    y = 5.0
    for _ in range(3):
        y = 0.7 * y + 0.3 * 11.0
    np.testing.assert_allclose(np.exp(pool.follow(np.log([11.0]), 4, 0.3)), [y], rtol=1e-6)


def test_every_row_is_in_one_batch_of_an_epoch(gradients):
    batches = gradients._batches(12, 4, np.random.default_rng(0))
    for _ in range(2):
        assert sorted(np.concatenate([next(batches) for _ in range(3)])) == list(range(12))


@pytest.mark.parametrize("method", ["CI-VI", "SIVI", "UIVI", "nested", "Gaussian"])
def test_a_method_learns_its_bound_falls_and_a_seed_has_the_same_bits(gradients, method):
    rng = np.random.default_rng(0)
    kinds = rng.random((3, 12)) < 0.5
    images = (kinds[rng.integers(3, size=120)] ^ (rng.random((120, 12)) < 0.05)).astype(np.float32)
    options = ImplicitOptions(
        hidden=(20,), noise_dimensions=3, iterations=150, pairs=30, noises=10, tracked=10, chunk=5, step=3e-3,
        step_covariance=3e-3, smoothing=0.999, momentum=0.2, limit=np.inf,
    )  # fmt: skip
    runs = [
        list(gradients.steps(method, images, options=options, step_decoder=1e-2, dimensions=2, seed=seed))
        for seed in (0, 0, 1)
    ]
    first, last = (gradients.estimate(runs[0][at], images, 100, 0) for at in (0, -1))
    assert last.neg_elbo.mean() < 0.8 * first.neg_elbo.mean()
    for one, other in zip(runs[0][-1].theta, runs[1][-1].theta, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(runs[0][-1].theta.decoder, runs[2][-1].theta.decoder)
    assert last.spread.max() == 0 if method == "Gaussian" else last.spread.min() > 0


def test_the_images_are_binary_and_no_image_is_in_two_parts(load):
    images = load("autoencoder").digits()
    assert [part.shape for part in images] == [(1200, 64), (197, 64), (400, 64)]
    assert set(np.unique(np.concatenate(images))) == {0.0, 1.0}
    from sklearn.datasets import load_digits

    whole = (load_digits().data >= 8).sum(axis=0)
    np.testing.assert_array_equal(np.concatenate(images).sum(axis=0), whole)
