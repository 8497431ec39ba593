"""The section made ready for one seed at a time, its features computed once."""

import warnings
from dataclasses import replace

from spatialpdvi.errors import InputWarning
from spatialpdvi.features.build import raw_features
from spatialpdvi.features.smoothing import SmoothedFeatures, smooth_features
from spatialpdvi.fitting.inputs import check_section
from spatialpdvi.fitting.prepare import Prepared, initialize, prepare
from spatialpdvi.io.section.section import Section
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.options.stages import FeatureSettings, GraphSettings, SmoothingSettings, StartSettings
from spatialpdvi.runtime.progress import Progress

__all__ = ["Bench"]


class Bench:
    """Starts of a section, made when they are first asked for.

    Of one seed to the next only the start differs, and with it the graph's weights; only the last one is kept, since
    each holds the features in its own order.

    Parameters
    ----------
    section
        Read and checked.
    options
        Of the fit; its seed is that of the features, the same for all.
    progress
        Shows the stages of the first start; later ones are made without a word.
    """

    def __init__(self, section: Section, options: FitOptions, progress: Progress) -> None:
        self._section, self._options, self._progress = section, options, progress
        self._features: SmoothedFeatures | None = None
        self._last: tuple[int, Prepared] | None = None

    def prepared(self, seed: int) -> Prepared:
        """Problem and start of a seed; raises as `spatialpdvi.fitting.fit.fit_section` does."""
        if self._last is None or self._last[0] != seed:
            self._last = None  # free its memory before the next one is made
            self._last = seed, self._prepare(seed)
        return self._last[1]

    def _prepare(self, seed: int) -> Prepared:
        if self._features is None:
            self._features = self._make_features()
            return self._start(self._features, seed, self._progress)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)  # the first start has shown them
            return self._start(self._features, seed, Progress())

    def _make_features(self) -> SmoothedFeatures:
        section, options = self._section, self._options
        check_section(section, options)
        raw = raw_features(section, FeatureSettings.of(options), self._progress)
        return smooth_features(section, raw, SmoothingSettings.of(options), self._progress)

    def _start(self, features: SmoothedFeatures, seed: int, progress: Progress) -> Prepared:
        settings = replace(StartSettings.of(self._options), seed=seed)
        start = initialize(features, self._section.init_labels, settings, progress)
        return prepare(self._section, features, start, GraphSettings.of(self._options), progress)
