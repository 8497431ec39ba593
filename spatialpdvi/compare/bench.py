"""The section made ready for one seed at a time, its features computed once."""

import warnings
from dataclasses import replace

from spatialpdvi.errors import InputWarning
from spatialpdvi.features.build import FeatureSet, make_features
from spatialpdvi.fitting.prepare import Prepared, prepare
from spatialpdvi.io.section.section import Section
from spatialpdvi.options.fit import FitOptions
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
        self._features: FeatureSet | None = None
        self._last: tuple[int, Prepared] | None = None

    def prepared(self, seed: int) -> Prepared:
        """Problem and start of a seed; raises as `spatialpdvi.fitting.prepare.prepare` does."""
        if self._last is None or self._last[0] != seed:
            self._last = None  # free its memory before the next one is made
            self._last = seed, self._prepare(seed)
        return self._last[1]

    def _prepare(self, seed: int) -> Prepared:
        options = replace(self._options, seed=seed)
        if self._features is None:
            self._features = make_features(self._section, self._options, self._progress)
            return prepare(self._section, options, self._progress, features=self._features)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)  # the first start has said it
            return prepare(self._section, options, Progress(), features=self._features)
