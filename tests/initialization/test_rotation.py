"""Features in which noise is alike in all directions."""

import numpy as np

from spatialpdvi.initialization.start import noise_rotation


def _pooled(x, labels):
    residual = x - np.stack([x[labels == k].mean(axis=0) for k in range(3)])[labels]
    return residual.T @ residual / len(x)


def test_the_pooled_covariance_becomes_the_unit_matrix():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=500)
    mix = rng.normal(size=(4, 4)) * [1.0, 5.0, 0.3, 1.0]
    x = 3.0 * rng.normal(size=(3, 4))[labels] + rng.normal(size=(500, 4)) @ mix
    rotation = noise_rotation(x, labels, 3)
    np.testing.assert_allclose(_pooled(x @ rotation, labels), np.eye(4), atol=0.1)  # but for the bit of a sphere
    largest = np.abs(rotation).argmax(axis=0)
    assert (rotation[largest, np.arange(4)] > 0).all()


def test_directions_without_noise_are_not_scaled_without_bound():
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1, 2], 50)
    x = np.column_stack([rng.normal(size=150), labels.astype(float)])
    rotated = x @ noise_rotation(x, labels, 3)
    assert np.isfinite(rotated).all()
    assert np.abs(rotated).max() < 200


def test_as_many_clusters_as_spots_leave_the_features_as_they_are():
    np.testing.assert_array_equal(noise_rotation(np.arange(6.0).reshape(3, 2), np.arange(3), 3), np.eye(2))
