"""Autoencoders with an implicit encoder: gradients of CI-VI and its rivals, and the likelihood of images.

The decoder is a network whose outputs are log odds of binary pixels, the prior N(0, I). The implicit encoder of an
image x is the family of the paper,

    q(z | x) = E_e N(z; m(e, x), diag(s)^2),    e ~ N(0, I),    m a network,    s free and the same for all images.

The methods differ in the gradient of the entropy alone, as in `implicit_rivals`. CI-VI has a pool of pairs (u, e) for
each image, and a y for each of them. Algorithm 1 renews all of y in every iteration; here a pair's y is renewed when it
is drawn, and what is left of its old value after a iterations is (1 - beta)^a, as if it had been renewed in each.

An ordinary Gaussian encoder, whose network gives means and standard deviations for each image, is beside them.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from implicit_rivals import chain_of_pulls

from spatialpdvi.uncertainty.implicit import Adam, ImplicitOptions, schedule
from spatialpdvi.uncertainty.semi_implicit import Family, Network

__all__ = ["METHODS", "Autoencoder", "Encoder", "Estimate", "Fit", "Ratios", "estimate", "steps"]

METHODS = ("CI-VI", "SIVI", "UIVI", "Gaussian", "nested")
LOG_2PI = math.log(2.0 * math.pi)


class Encoder(Family):
    """A `Family` whose network has an image beside the noise; all pairs of images and noises are made at once."""

    def __init__(self, pixels: int, dimensions: int, *, hidden: tuple[int, ...], noise_dimensions: int) -> None:
        inputs = noise_dimensions + pixels
        super().__init__(dimensions, hidden=hidden, noise_dimensions=inputs, noise_scale=1.0, is_full=False)
        self.n_noise = noise_dimensions
        self._rest = Network((*hidden, dimensions))
        self._split = self.network_size - self._rest.size

    def means(self, theta: np.ndarray, images: np.ndarray, noises: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return m (n, K, d) for images (n, pixels) and noises (K, e) or (n, K, e), and what `pull_back` needs."""
        weights, biases = self.layers(theta)[0]
        hidden = noises @ weights[: self.n_noise] + (images @ weights[self.n_noise :] + biases)[:, None]
        np.maximum(hidden, 0.0, out=hidden)
        n, k, units = hidden.shape
        means, received = self._rest.forward(theta[self._split : self.network_size], hidden.reshape(n * k, units))
        return means.reshape(n, k, -1), (images, noises, received)

    def pull_back(self, theta: np.ndarray, held: Any, gradient: np.ndarray) -> np.ndarray:
        """Return derivatives by the network's part of theta, given those by m (n, K, d)."""
        images, noises, received = held
        n, k, d = gradient.shape
        rest, to_hidden = self._rest.backward(
            theta[self._split : self.network_size], received, gradient.reshape(n * k, d)
        )
        to_hidden *= received[0] > 0
        by_image = to_hidden.reshape(n, k, -1).sum(axis=1)
        by_noise = np.broadcast_to(noises, (n, k, self.n_noise)).reshape(n * k, -1).T @ to_hidden
        return np.concatenate([by_noise.ravel(), (images.T @ by_image).ravel(), by_image.sum(axis=0), rest])

    def to_noises(self, theta: np.ndarray, held: Any, gradient: np.ndarray) -> np.ndarray:
        """Return derivatives by one noise (n, e) of each image, given those by m (n, d)."""
        layers = self.layers(theta)
        for (weights, _), below in zip(layers[:0:-1], held[2][::-1], strict=True):
            gradient = (gradient @ weights.T) * (below > 0)
        return gradient @ layers[0][0][: self.n_noise].T


class Autoencoder(NamedTuple):
    """The networks; ``encoder`` is an `Encoder`, or a `Network` with outputs (m, log s) if it is Gaussian."""

    encoder: Any
    decoder: Network
    dimensions: int

    @classmethod
    def make(
        cls, method: str, *, pixels: int, dimensions: int, noise_dimensions: int, hidden: tuple[int, ...]
    ) -> "Autoencoder":
        """Make the networks of a method."""
        encoder = (
            Network((pixels, *hidden, 2 * dimensions))
            if method == "Gaussian"
            else Encoder(pixels, dimensions, hidden=hidden, noise_dimensions=noise_dimensions)
        )
        return cls(encoder, Network((dimensions, *hidden, pixels)), dimensions)

    @property
    def is_gaussian(self) -> bool:
        """Whether the encoder is the ordinary one."""
        return not isinstance(self.encoder, Encoder)


class Theta(NamedTuple):
    """Parameters of both networks; s is the last part of the encoder's."""

    encoder: np.ndarray
    decoder: np.ndarray


class _Likelihood:
    """log p(x | z) (n,) of images at points (n, d), and its derivatives."""

    def __init__(self, decoder: Network, theta: np.ndarray, images: np.ndarray, points: np.ndarray) -> None:
        logits, self._received = decoder.forward(theta, points)
        self.log = (images * logits - np.logaddexp(0.0, logits)).sum(axis=1)
        self._decoder, self._theta = decoder, theta
        self._residual = images - 0.5 * (1.0 + np.tanh(0.5 * logits))

    def pull_back(self, on: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradient of the sum of ``on * log`` by the decoder's theta and by the points."""
        return self._decoder.backward(self._theta, self._received, on[:, None] * self._residual)


class Ratios:
    """The logarithms of g = E_e' q(z | e', x) / p(x, z) for images with a pair (u, e) each, and their gradients.

    Parameters
    ----------
    model, theta
        With an implicit encoder.
    images
        (n, pixels).
    pairs
        u (n, d) and e (n, noise dimensions).
    noises
        e' (K, noise dimensions), the same for all images.
    has_own
        Whether e itself is one of the noises, as in SIVI.
    """

    def __init__(
        self,
        model: Autoencoder,
        theta: Theta,
        images: np.ndarray,
        pairs: tuple[np.ndarray, np.ndarray],
        noises: np.ndarray,
        *,
        has_own: bool = False,
    ) -> None:
        self._model, self._theta, self._u = model, theta, pairs[0]
        encoder = model.encoder
        log_s = theta.encoder[encoder.network_size :]
        self._s = np.exp(log_s)
        own, self._own_held = encoder.means(theta.encoder, images, pairs[1][:, None])
        self.points = own[:, 0] + self._s * self._u
        means, self._held = encoder.means(theta.encoder, images, noises)
        self._away = (self.points[:, None] - means) / self._s
        logs = -0.5 * (self._away**2).sum(axis=2)
        if has_own:
            logs = np.column_stack([logs, -0.5 * (self._u**2).sum(axis=1)])
        top = logs.max(axis=1)
        share = np.exp(logs - top[:, None])
        total = share.sum(axis=1)
        self._share = (share / total[:, None])[:, : len(noises)]
        constant = log_s.sum() + 0.5 * model.dimensions * LOG_2PI + math.log(logs.shape[1])
        self._likelihood = _Likelihood(model.decoder, theta.decoder, images, self.points)
        log_prior = -0.5 * (self.points**2).sum(axis=1) - 0.5 * model.dimensions * LOG_2PI
        self.log_g = top + np.log(total) - constant - self._likelihood.log - log_prior

    def pull_back(self, on: np.ndarray) -> Theta:
        """Return the gradient of the sum of ``on * log_g``."""
        encoder, theta = self._model.encoder, self._theta.encoder
        pull = (on[:, None] * self._share)[:, :, None] * self._away  # (n, K, d)
        to_means = pull / self._s
        decoder, to_points = self._likelihood.pull_back(-on)
        to_points += on[:, None] * self.points - to_means.sum(axis=1)
        # at its own noise the density depends on s by the determinant alone, which all components have
        to_log_s = (pull * self._away).sum(axis=(0, 1)) - on.sum() + (to_points * self._s * self._u).sum(axis=0)
        network = encoder.pull_back(theta, self._held, to_means)
        network += encoder.pull_back(theta, self._own_held, to_points[:, None])
        return Theta(np.concatenate([network, to_log_s]), decoder)


def unbiased(
    model: Autoencoder,
    theta: Theta,
    images: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray],
    *,
    step: float,
    rng: np.random.Generator,
) -> tuple[Theta, float]:
    """Gradient of UIVI, by chains for the noise of each image that start at its own, and the chains' next step."""
    encoder, (u, noise) = model.encoder, pairs
    s = np.exp(theta.encoder[encoder.network_size :])
    own, own_held = encoder.means(theta.encoder, images, noise[:, None])
    points = own[:, 0] + s * u

    def reverse(e: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log q(e | z, x) up to a constant, its gradient, and (z - m(e, x)) / s^2."""
        means, held = encoder.means(theta.encoder, images, e[:, None])
        away = (points - means[:, 0]) / s
        pull = away / s
        gradient = encoder.to_noises(theta.encoder, held, pull) - e
        return -0.5 * ((away**2).sum(axis=1) + (e**2).sum(axis=1)), gradient, pull

    pull, step = chain_of_pulls(reverse, noise, step, rng)
    n = len(images)
    decoder, to_points = _Likelihood(model.decoder, theta.decoder, images, points).pull_back(
        np.full(n, -1.0 / n, dtype=points.dtype)
    )
    to_points += (points - pull) / n
    network = encoder.pull_back(theta.encoder, own_held, to_points[:, None])
    found = Theta(np.concatenate([network, (to_points * s * u).sum(axis=0)]), decoder)
    return found, step


def gaussian(model: Autoencoder, theta: Theta, images: np.ndarray, u: np.ndarray) -> tuple[float, Theta]:
    """-ELBO of an ordinary autoencoder, mean over the images with one draw u (n, d) each, and its gradient."""
    n, d = u.shape
    outputs, received = model.encoder.forward(theta.encoder, images)
    m, s = outputs[:, :d], np.exp(outputs[:, d:])
    likelihood = _Likelihood(model.decoder, theta.decoder, images, m + s * u)
    divergence = 0.5 * (m**2 + s**2 - 1.0).sum(axis=1) - outputs[:, d:].sum(axis=1)
    decoder, to_points = likelihood.pull_back(np.full(n, -1.0 / n, dtype=u.dtype))
    to_outputs = np.hstack([to_points + m / n, to_points * s * u + (s**2 - 1.0) / n])
    encoder, _ = model.encoder.backward(theta.encoder, received, to_outputs)
    return float((divergence - likelihood.log).mean()), Theta(encoder, decoder)


class Fit(NamedTuple):
    """An autoencoder after an iteration."""

    model: Autoencoder
    theta: Theta
    seconds: float  # of this iteration, by the clock of the processor

    def draw(self, images: np.ndarray, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw points (images, n, d) of the encoder, with their log density and the share of variance that e makes.

        The density (images, n) is that of the mixture of the n Gaussians from which the points are, one from each.
        """
        d = self.model.dimensions
        u = _normal((len(images), n, d), rng)
        if self.model.is_gaussian:
            outputs, _ = self.model.encoder.forward(self.theta.encoder, images)
            means, log_s = outputs[:, None, :d], outputs[:, None, d:]
            log_q = -0.5 * (u**2).sum(axis=2) - log_s.sum(axis=2) - 0.5 * d * LOG_2PI
            return means + np.exp(log_s) * u, log_q, np.zeros(len(images))
        log_s = self.theta.encoder[self.model.encoder.network_size :]
        s, noises = np.exp(log_s), _normal((len(images), n, self.model.encoder.n_noise), rng)
        means, _ = self.model.encoder.means(self.theta.encoder, images, noises)
        points, variance = means + s * u, means.var(axis=1)
        log_q = _log_mixture(points / s, means / s) - log_s.sum() - 0.5 * d * LOG_2PI
        return points, log_q, (variance / (variance + s**2)).mean(axis=1)


def steps(
    method: str,
    images: np.ndarray,
    *,
    options: ImplicitOptions,
    step_decoder: float,
    dimensions: int,
    seed: int,
) -> Iterator[Fit]:
    """Yield the autoencoder after every iteration, in single precision.

    Parameters
    ----------
    method
        One of `METHODS`.
    images
        (n, pixels), 0 or 1.
    options
        ``pairs`` is the number of images of a batch, which have a pair each; ``noises`` and ``tracked`` are K2 and K3,
        ``chunk`` the number of pairs that each image has in the pool.
    step_decoder
        C_alpha of the decoder.
    dimensions
        Of z.
    seed
        Of the start, the batches and all draws; the batches are the same for all methods.
    """
    rng, order = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    model = Autoencoder.make(
        method,
        pixels=images.shape[1],
        dimensions=dimensions,
        noise_dimensions=options.noise_dimensions,
        hidden=options.hidden,
    )
    images = images.astype(np.float32)
    theta = Theta(*(network.start(rng).astype(np.float32) for network in (model.decoder, model.encoder)[::-1]))
    adams = Adam(model.encoder), Adam(model.decoder)
    of_decoder = replace(options, step=step_decoder)
    pool = _Pool(len(images), options, dimensions, rng) if method == "CI-VI" else None
    hmc_step, ahead = 0.5, theta
    batches = _batches(len(images), options.pairs, order)
    for t in range(1, options.iterations + 1):
        began = time.process_time()
        now, rows = schedule(options, t), next(batches)
        batch, n = images[rows], len(rows)
        if pool is not None:
            pairs = pool.draw(rows, rng)
            renewed = Ratios(model, ahead, batch, pairs, _noises(now.tracked, options, rng))
            log_y = pool.follow(renewed.log_g, t, now.smoothing)
            ratios = Ratios(model, theta, batch, pairs, _noises(now.noises, options, rng))
            gradient = ratios.pull_back(np.exp(np.minimum(ratios.log_g - log_y, math.log(options.limit))) / n)
        else:
            pairs = _normal((n, dimensions), rng), _noises(n, options, rng)
            if method == "Gaussian":
                _, gradient = gaussian(model, theta, batch, pairs[0])
            elif method == "UIVI":
                gradient, hmc_step = unbiased(model, theta, batch, pairs, step=hmc_step, rng=rng)
            else:
                ratios = Ratios(model, theta, batch, pairs, _noises(now.noises, options, rng), has_own=method == "SIVI")
                gradient = ratios.pull_back(np.full(n, 1.0 / n, dtype=np.float32))
        move = tuple(
            adam.step(g, schedule(of, t)).astype(np.float32)
            for adam, g, of in zip(adams, gradient, (options, of_decoder), strict=True)
        )
        ahead = Theta(*(x + v / np.float32(now.smoothing) for x, v in zip(theta, move, strict=True)))
        theta = Theta(*(x + v for x, v in zip(theta, move, strict=True)))
        yield Fit(model, theta, time.process_time() - began)


class _Pool:
    """Pairs (u, e) of every image, and y."""

    def __init__(self, n: int, options: ImplicitOptions, dimensions: int, rng: np.random.Generator) -> None:
        self._u = _normal((n, options.chunk, dimensions), rng)
        self._e = _normal((n, options.chunk, options.noise_dimensions), rng)
        self._log_y = np.full((n, options.chunk), -np.inf)
        self._renewed = np.zeros((n, options.chunk), dtype=np.int64)

    def draw(self, rows: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return a pair of each image in ``rows``."""
        self._drawn = rows, rng.integers(self._u.shape[1], size=len(rows))
        return self._u[self._drawn], self._e[self._drawn]

    def follow(self, log_g: np.ndarray, t: int, smoothing: float) -> np.ndarray:
        """Renew the y of the pairs that were drawn, and return their logarithms (n,)."""
        age = t - self._renewed[self._drawn]
        log_old = age * math.log1p(-smoothing)
        log_y = np.logaddexp(log_old + self._log_y[self._drawn], np.log(-np.expm1(log_old)) + log_g)
        log_y = np.where(np.isneginf(self._log_y[self._drawn]), log_g, log_y)
        self._log_y[self._drawn], self._renewed[self._drawn] = log_y, t
        return log_y.astype(np.float32)


def _batches(n: int, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Rows of the batches, each row once in an epoch; what does not fill a batch is left out of that epoch."""
    size = min(size, n)
    while True:
        order = rng.permutation(n)
        yield from (order[first : first + size] for first in range(0, n - size + 1, size))


def _normal(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def _noises(n: int, options: ImplicitOptions, rng: np.random.Generator) -> np.ndarray:
    return _normal((n, options.noise_dimensions), rng)


class Estimate(NamedTuple):
    """Of each image (n,), in nats."""

    log_likelihood: np.ndarray  # log p(x), too low by about half the variance
    variance: np.ndarray  # of that estimate, by the delta method
    neg_elbo: np.ndarray  # an upper bound of it where the encoder is implicit
    effective: np.ndarray  # effective share of the draws
    spread: np.ndarray  # share of the encoder's variance that the noise e makes


def estimate(fit: Fit, images: np.ndarray, n_draws: int, seed: int, block: int = 20) -> Estimate:
    """Estimate the likelihood by importance sampling from the encoder.

    An implicit encoder has no density. Given M noises the mixture of the M Gaussians has one, and with a draw from each
    of them the mean of p(x, z) / mixture(z) is unbiased for p(x) whatever the noises are. The mean of -log of the same
    ratio is the bound of SIVI with M - 1 noises beside a draw's own.
    """
    rng, d, parts = np.random.default_rng(seed), fit.model.dimensions, []
    for x in (images[first : first + block].astype(np.float32) for first in range(0, len(images), block)):
        points, log_q, spread = fit.draw(x, n_draws, rng)
        likelihood = _Likelihood(
            fit.model.decoder, fit.theta.decoder, np.repeat(x, n_draws, axis=0), points.reshape(-1, d)
        )
        log_p = likelihood.log.reshape(log_q.shape) - 0.5 * (points**2).sum(axis=2) - 0.5 * d * LOG_2PI
        log_w = (log_p - log_q).astype(np.float64)
        top = log_w.max(axis=1)
        w = np.exp(log_w - top[:, None])
        mean = w.mean(axis=1)
        relative = w.var(axis=1) / mean**2
        parts.append((top + np.log(mean), relative / n_draws, -log_w.mean(axis=1), 1.0 / (1.0 + relative), spread))
    return Estimate(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _log_mixture(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Log of the mean of exp(-|a - b|^2 / 2) over b, for points a and means b (n, M, d) of each image."""
    logs = a @ b.transpose(0, 2, 1) - 0.5 * (b**2).sum(axis=2)[:, None]
    top = logs.max(axis=2)
    total = np.exp(logs - top[:, :, None]).mean(axis=2)
    return top + np.log(total) - 0.5 * (a**2).sum(axis=2)
