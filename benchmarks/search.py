"""F against the ARI over all fits of a search, and the fit that begins at the annotation beside the lowest F.

Domains are compositions of states here, which are held. If F and the ARI fall and rise together, a search for a lower F
finds better domains. Where the fit from the annotation has the lower F, the search stopped short; where it has not, and
its ARI is higher, the model prefers other domains to those that were annotated. Of the fits that are about as good, a
search chooses the one with the lowest F where compositions vary within domains.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import anndata
import click
import numpy as np
from scipy.spatial import cKDTree
from scipy.stats import spearmanr
from sections import Section, chosen, labelled, sections

from spatialpdvi import FitOptions, InputWarning
from spatialpdvi.features.build import raw_features
from spatialpdvi.features.smoothing import smooth_features
from spatialpdvi.fitting.inputs import read_inputs
from spatialpdvi.fitting.prepare import prepare_start
from spatialpdvi.initialization.compositions import RESTARTS, landscape_of
from spatialpdvi.initialization.landscape import Fit, Landscape, Places, lacking
from spatialpdvi.initialization.search import composition_labels, lowest
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.metrics.clustering import adjusted_rand_index
from spatialpdvi.options.stages import FeatureSettings, SmoothingSettings
from spatialpdvi.options.states import search_rounds
from spatialpdvi.runtime.progress import Progress
from spatialpdvi.runtime.threads import single_threaded

HEADER = (
    "section",
    "fits of a search",
    "rank correlation of F and ARI",
    "F from the annotation, above the lowest F (nats)",
    "as a part of what domains explain",
    "its ARI",
    "ARI of the lowest F",
    "domains it lacks",
    "ARI of the chosen fit",
)
FORMATS = (".0f", ".2f", ".0f", ".1%", ".2f", ".2f", ".1f", ".2f")


class Searched(NamedTuple):
    """Fits of one search, F relative to that of a single domain, and the fit from the annotation."""

    neg_elbo: np.ndarray  # (m,)
    ari: np.ndarray  # (m,)
    n_lacking: np.ndarray  # (m,) domains without enough spots to count as found
    annotation: float  # F
    annotation_ari: float
    chosen_ari: float

    @property
    def row(self) -> tuple[float, ...]:
        """What the table shows of this search."""
        best = self.neg_elbo.argmin()
        is_constant = np.ptp(self.ari) == 0.0  # as where every fit finds the domains
        above = self.annotation - self.neg_elbo[best]
        return (
            self.ari.size,
            np.nan if is_constant else spearmanr(self.neg_elbo, self.ari).statistic,
            above,
            -above / self.neg_elbo[best],
            self.annotation_ari,
            self.ari[best],
            self.n_lacking[best],
            self.chosen_ari,
        )


class Recorder:
    """A landscape that remembers the fits that were made on it."""

    def __init__(self, landscape: Landscape) -> None:
        self._landscape = landscape
        self.fits: list[Fit] = []

    def with_price_from(self, fits: Sequence[Fit]) -> Self:
        """Give the landscape the price of a domain that follows from some fits."""
        self._landscape = self._landscape.with_price_from(fits)
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._landscape, name)

    def fit(self, *args: Any, **kwargs: Any) -> Fit:
        """Fit from labels, as a landscape does."""
        self.fits.append(self._landscape.fit(*args, **kwargs))
        return self.fits[-1]

    def go_on(self, *args: Any, **kwargs: Any) -> Fit:
        """Continue a fit, as a landscape does."""
        self.fits.append(self._landscape.go_on(*args, **kwargs))
        return self.fits[-1]


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--only", multiple=True, help="Name of a section; repeatable. Default: all.")
@click.option("--seeds", default=2, show_default=True, help="Sets of states.")
@click.option("--searches", default=2, show_default=True, help="Searches with each set of states.")
@click.option("--figure", type=click.Path(path_type=Path), help="Draw F against the ARI in this file.")
def main(files: tuple[Path, ...], only: tuple[str, ...], seeds: int, searches: int, figure: Path | None) -> None:
    """Print one row for each section whose domains are compositions: means over all searches.

    FILES are labelled sections of your own, with labels in obs["annotation"].
    """
    warnings.simplefilter("ignore", InputWarning)
    print(f"Sets of states of seeds 0 to {seeds - 1}, {searches} searches each.\n")
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    found: list[tuple[str, list[Searched]]] = []
    for section in chosen(labelled(files) or sections(), only):
        name = section.path.stem
        of_section = [one for seed in range(seeds) for one in searched(section, seed, searches)]
        if not of_section:  # domains have one mean each
            continue
        found.append((name, of_section))
        means = np.mean([one.row for one in of_section], axis=0)
        cells = [format(value, form) for value, form in zip(means, FORMATS, strict=True)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    if not found:
        raise SystemExit("Expected a section whose domains `--states auto` makes compositions of states, found none.")
    if figure is not None:
        draw(found, figure)


def searched(section: Section, seed: int, searches: int) -> list[Searched]:
    """Search a section with one set of states; nothing where `auto` finds that domains should not be compositions."""
    options = FitOptions(k=section.k, seed=seed, search=0, **section.options)
    read, quiet = read_inputs(AnnDataSource(anndata.read_h5ad(section.path)), options), Progress()
    raw = raw_features(read, FeatureSettings.of(options), quiet)
    smooth = smooth_features(read, raw, SmoothingSettings.of(options), quiet)
    start = prepare_start(read, raw, smooth, options, quiet).initialization
    if start.states is None or start.edges is None or read.labels is None:
        return []
    codes = np.asarray(read.labels.codes)
    landscape = landscape_of(start.states, Places(read.coordinates), start.edges, section.k)
    given = [start.start.labels, *(labels.astype(np.int64) for labels in start.restarts[:RESTARTS])]
    return [_one(landscape, codes, given, number) for number in range(searches)]


def draw(found: list[tuple[str, list[Searched]]], path: Path) -> None:
    """Draw the fits of the first search of each section, and the fit from the annotation."""
    from matplotlib.figure import Figure

    from spatialpdvi.plotting.save import save_figure

    columns = min(5, len(found))
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(2.9 * columns, 2.6 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flat
    for ax, (name, (first, *_)) in zip(axes, found, strict=False):
        least = first.neg_elbo.min()
        ax.plot(first.neg_elbo - least, first.ari, "o", markersize=3.5, color="#0b6e99", label="fits of a search")
        above = first.annotation - least
        ax.plot(above, first.annotation_ari, "*", markersize=11, color="#d9711a", label="from the annotation")
        ax.set_title(name, fontsize=8)
        ax.tick_params(labelsize=7)
    for ax in axes[len(found) :]:
        ax.axis("off")
    axes[0].legend(fontsize=7)
    figure.supxlabel("nats above the lowest F", fontsize=9)
    figure.supylabel("ARI", fontsize=9)
    save_figure(figure, path, dpi=110)


def _one(landscape: Landscape, codes: np.ndarray, given: list[np.ndarray], seed: int) -> Searched:
    recorder, is_known = Recorder(landscape), codes >= 0
    with single_threaded():
        starts = composition_labels(landscape, seed=seed) + given
        rounds = search_rounds(None, codes.size)
        chosen = lowest(recorder, starts, rounds=rounds, seed=seed)  # type: ignore[arg-type]
        single = landscape.of_single_domain()
        places = landscape.places.coordinates
        nearest = cKDTree(places[is_known]).query(places)[1]
        full = codes[is_known][nearest]  # spots without a label have that of the nearest with one
        of_annotation = landscape.with_domains(max(landscape.k, int(codes.max()) + 1))
        annotation = of_annotation.fit(full[landscape.order])

    def ari(labels: np.ndarray) -> float:
        return adjusted_rand_index(labels[is_known], codes[is_known])

    return Searched(
        np.array([fit.neg_elbo for fit in recorder.fits]) - single,
        np.array([ari(landscape.as_given(fit.labels)) for fit in recorder.fits]),
        np.array([lacking(fit.labels, landscape.k) for fit in recorder.fits]),
        annotation.neg_elbo - single,
        ari(landscape.as_given(annotation.labels)),
        ari(chosen.labels),
    )


if __name__ == "__main__":
    main()
