"""The problem and the start of each seed, with features that are computed once."""

import warnings
from dataclasses import replace

from spatialpdvi.errors import InputWarning
from spatialpdvi.features.build import RawFeatures, raw_features
from spatialpdvi.features.smoothing import SmoothedFeatures, smooth_features
from spatialpdvi.fitting.inputs import check_section
from spatialpdvi.fitting.prepare import Prepared, prepare_start
from spatialpdvi.io.section.section import Section
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.options.stages import FeatureSettings, SmoothingSettings
from spatialpdvi.runtime.progress import Progress

__all__ = ["Bench"]


class Bench:
    """Prepares a section for one seed after the other.

    Seeds differ in the start, and in the edge weights that follow from it; where domains share states, in these and in
    the features that follow from them too. Only the latest seed is in memory, since each has its own copy of the
    features.

    Parameters
    ----------
    section
        The section, read and checked.
    options
        Options of the fit. Its seed is used for the components of all seeds.
    progress
        Shows the stages of the first seed.
    """

    def __init__(self, section: Section, options: FitOptions, progress: Progress) -> None:
        self._section, self._options, self._progress = section, options, progress
        self._features: tuple[RawFeatures, SmoothedFeatures] | None = None
        self._last: tuple[int, Prepared] | None = None

    def prepared(self, seed: int) -> Prepared:
        """Return the problem and the start of a seed.

        Raises
        ------
        InputError
            As `spatialpdvi.fitting.prepare.prepare_start` does.
        """
        if self._last is None or self._last[0] != seed:
            self._last = None  # frees its memory before the next one is made
            self._last = seed, self._prepare(seed)
        return self._last[1]

    def _prepare(self, seed: int) -> Prepared:
        if self._features is None:
            self._features = self._make_features()
            return self._start(*self._features, seed, self._progress)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)  # the first start has shown them
            return self._start(*self._features, seed, Progress())

    def _make_features(self) -> tuple[RawFeatures, SmoothedFeatures]:
        section, options = self._section, self._options
        check_section(section, options)
        raw = raw_features(section, FeatureSettings.of(options), self._progress)
        return raw, smooth_features(section, raw, SmoothingSettings.of(options), self._progress)

    def _start(self, raw: RawFeatures, features: SmoothedFeatures, seed: int, progress: Progress) -> Prepared:
        return prepare_start(self._section, raw, features, replace(self._options, seed=seed), progress)
