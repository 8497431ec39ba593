"""What a fit costs: the sizes that its time and memory follow from, and what a unit of each size takes.

The coefficients were measured by ``python benchmarks/estimate.py --fit``. No file is read here, and nothing is timed.
"""

from dataclasses import dataclass
from typing import NamedTuple

from spatialpdvi.estimate.machine import Speed
from spatialpdvi.options.stages import are_tall, default_n_patches
from spatialpdvi.options.states import (
    ONE_BY_ONE,
    SAMPLED,
    SAMPLED_FROM,
    are_communities,
    n_mixtures,
    n_state_sets,
)

__all__ = [
    "EPOCHS",
    "MEMORY",
    "PARALLEL",
    "SECONDS",
    "SMOOTH",
    "Prediction",
    "Work",
    "predict_bytes",
    "predict_seconds",
    "rate_of",
]

# seconds of one thread for one unit of each term of `Work.terms`. By hand: "values again", from a fit of ten million
# spots; "start", "states" and "search", from real and hard sections, since small ones without states have many restarts
# and searches of easy ones end early; and the memory of states, search, graph and fit, from large sections
SECONDS = {
    "start-up": {"once": 1.47},
    "read": {"spots": 5.0e-08, "packed": 2.39e-09, "bytes": 3.79e-09},
    "genes": {"once": 0.199, "values": 1.39e-08, "kept": 0.0, "genes": 1.01e-05, "packed": 2.39e-09},
    "PCA": {"once": 0.038, "kept": 1.2e-07, "spots": 9.04e-07, "values again": 2.0e-09, "pairs": 3.88e-10},
    "smooth": {"once": 0.0226, "scale queries": 0.0, "neighbours": 3.12e-07},
    "states": {"learnt sets": 0.05, "learnt": 5.5e-08, "spots": 3.0e-06, "near": 1.0e-08, "communities": 4.0e-05},
    "start": {"once": 0.204, "restarts": 2.4e-03, "trained": 1.6e-08, "compared": 3.6e-07, "votes": 4.6e-09},
    "search": {"searched sets": 0.12, "searched": 1.2e-08, "whole": 2.5e-06},
    "graph": {"once": 0.0251, "neighbours": 1.8e-07},
    "fit": {
        "once": 0.0659,
        "updates": 2.0e-09,
        "state updates": 1.91e-09,
        "gene updates": 2.84e-09,
        "copies": 4.13e-08,
    },
    "scores": {"once": 0.0202, "spots": 9.81e-06, "trained": 3.04e-08},
    "markers": {"once": 0.403, "values": 4.4e-09, "sums": 1.07e-07},
    "write": {"once": 0.0622, "posteriors": 1.49e-08, "file": 1.39e-09},
}
# share of each stage's time that is divided among the threads
PARALLEL = {
    "start-up": 0.23,
    "read": 1.0,
    "genes": 0.76,
    "PCA": 0.3,
    "smooth": 1.0,
    "states": 0.67,
    "start": 1.0,
    "search": 1.0,
    "graph": 1.0,
    "fit": 1.0,
    "scores": 0.93,
    "markers": 0.69,
    "write": 0.03,
}
# bytes for one unit of each term of `Work.memory_terms`
MEMORY = {
    "start-up": {"once": 250000000.0},
    "read": {"once": 278000000.0, "spots": 229.0, "counts": 1.0},
    "genes": {"once": 315000000.0, "spots": 514.0, "counts": 1.0, "kept": 0.359, "genes": 6960.0},
    "PCA": {"once": 335000000.0, "spots": 321.0, "counts": 1.0, "kept": 0.843},
    "smooth": {"once": 339000000.0, "spots": 968.0, "counts": 1.0, "fitted genes": 1.42},
    "states": {"once": 343000000.0, "spots": 700.0, "counts": 1.0},
    "start": {"once": 340000000.0, "spots": 945.0, "counts": 1.0, "fitted genes": 2.73},
    "search": {"once": 371000000.0, "spots": 2400.0, "counts": 1.0, "searched": 14.0},
    "graph": {"once": 370000000.0, "spots": 950.0, "counts": 1.0, "fitted genes": 1.44},
    "fit": {"once": 363000000.0, "spots": 780.0, "posteriors": 1.0, "counts": 1.0, "fitted genes": 2.52},
    "scores": {"once": 365000000.0, "spots": 1040.0, "posteriors": 1.0, "counts": 1.0, "fitted genes": 2.55},
    "write": {"once": 381000000.0, "spots": 1110.0, "posteriors": 1.0, "counts": 1.0, "fitted genes": 2.46},
    "markers": {
        "once": 394000000.0,
        "spots": 988.0,
        "posteriors": 1.0,
        "counts": 1.0,
        "sums": 12.7,
        "fitted genes": 2.4,
    },
}

EPOCHS = (8, 18, 60)  # few, typical and many epochs of p2dvi: 8 to 26 on most sections, 60 where domains overlap
SMOOTH = 18  # spots that features are averaged over, in the median of many sections; the range is 4 to 100
_RICHER = 2.1  # highly variable genes have this many times the values of an average gene
_TRAINED_ON = 20_000  # spots that restarts are trained on, and from which the smoothing scale is chosen
_SCALE_NEIGHBOURS = 116  # neighbours of each of them, including spare ones
_COMPARED = 10_000  # spots at most on which a consensus tries its starts
_MIXTURES = 3  # mixture restarts for each k-means restart
_SCALES = 3  # smoothing scales of the restarts
_BEFORE = 4  # rounds of a search that its starts take as long as
_ROUNDS = 3  # of a visit
_SOLVER_BYTES = 20.0  # of a posterior: two copies in float64 and one in float32
_POSTERIOR_BYTES = 12.0  # the posterior and the calibrated one in float32, and one that is being made
_SEARCHED_AT_ONCE = 3  # sets of states of a section that is not large
_SPARE = 16  # neighbours that are searched for beyond those needed


@dataclass(frozen=True, kw_only=True)
class Work:
    """Sizes of a section, of its file and of its fit."""

    n: int  # spots
    genes: int = 0  # 0 where ready features are fitted
    values: int = 0  # counts that are not 0
    kept_genes: int = 0  # highly variable genes
    counts_bytes: int = 0  # size of the counts in memory
    packed_bytes: int = 0  # compressed data that are read with the counts
    copies: int = 1  # copies of the counts in memory while they are read
    file_bytes: int = 0  # size of the whole file, which is copied
    block_bytes: int = 0  # size of the blocks of the counts in memory; 0 where they are read as a whole
    holds_kept: bool = True  # whether the values of the highly variable genes are in memory, or read in every pass
    width: float = 15.0  # components that the start is computed from
    gene_wise: bool = False  # genes themselves are fitted, as a sparse matrix
    k: int = 2
    epochs: int = EPOCHS[1]
    n_init: int = 6
    starts: int = 1  # starts that are fitted; several where the best restart is sought
    smooth: int | None = None  # None where the number is chosen by the fit
    n_neighbors: int = 10
    flow_neighbors: int = 100  # 0 where flow directions are not needed
    given_start: bool = False  # the start is made from labels in the file
    labelled: bool = False
    markers: bool = False
    states: int = 0  # cell states that domains share; 0 for none
    search: int = 10  # rounds, of a sample where a section is large

    @property
    def kept(self) -> int:
        """Number of counts of the highly variable genes that are not 0."""
        share = self.kept_genes / self.genes if self.genes else 0.0
        return int(self.values * min(1.0, _RICHER * share))

    @property
    def restarts(self) -> int:
        """Number of restarts."""
        scales = 1 if self.smooth == 0 else _SCALES  # without averages all scales are one
        return 0 if self.given_start else scales * (self.n_init + -(-self.n_init // _MIXTURES))

    @property
    def sets(self) -> int:
        """Number of sets of states that are learnt, and searched unless the start is given."""
        return 1 if self.given_start else n_state_sets(self.n)

    @property
    def searches(self) -> bool:
        """Whether the domains with the lowest F are searched for."""
        return self.states > 0 and not self.given_start

    @property
    def searched_at_once(self) -> int:
        """Number of sets of states that are searched side by side; of a single one, a sample and brief fits are."""
        return 1 if self.n < ONE_BY_ONE else max(2, self.sets)

    @property
    def is_sampled(self) -> bool:
        """Whether a sample of the spots is searched, and not all of them."""
        return self.n >= SAMPLED_FROM

    def terms(self) -> dict[str, dict[str, float]]:
        """Return for each stage the sizes that its time grows with, by name."""
        some = min(self.n, _TRAINED_ON)
        smooth = SMOOTH if self.smooth is None else self.smooth
        once = {"once": 1.0}
        reading = {"packed": float(self.packed_bytes), "bytes": float(self.counts_bytes)}
        stages: dict[str, dict[str, float]] = {"start-up": once}
        at_once = 0.0 if self.block_bytes else 1.0
        stages["read"] = {"spots": self.n, **{name: at_once * size for name, size in reading.items()}}
        if self.genes:
            # blocks are decompressed here, and copied, so that later stages need not
            unpacked = {"packed": self.packed_bytes if self.block_bytes else 0.0}
            stages["genes"] = once | {"values": self.values, "kept": self.kept, "genes": self.genes} | unpacked
            # the products of all pairs of a spot's genes, or some hundred products of the values with vectors
            tall = are_tall((self.n, self.kept_genes)) and not self.gene_wise
            work = {"pairs": self.kept**2 / self.n} if tall else {"kept": self.kept}
            passes = 0.0 if self.holds_kept else 2.0 * self.values
            stages["PCA"] = once | work | {"spots": self.n, "values again": passes}
        queries = some * _SCALE_NEIGHBOURS if self.smooth is None else 0
        stages["smooth"] = once | {"scale queries": queries, "neighbours": self.n * (2 * smooth + _SPARE)}
        mixed = self.k * self.width
        if self.states:
            sets = n_mixtures(self.states, self.n, self.sets)
            learnt = sets * some * self.states * self.width
            stages["states"] = {"learnt sets": sets, "learnt": learnt, "spots": self.n}
            if are_communities(self.states, self.n):  # which pairs of spots are near, and Louvain's method
                stages["states"] |= {"near": some**2, "communities": self.sets * some}
        stages["start"] = once | {
            "restarts": self.restarts,
            "trained": self.restarts * some * mixed,
            "compared": self.restarts * min(self.n, _COMPARED) * self.k,
            "votes": self.restarts * self.n * self.k,
        }
        if self.searches:
            spots = SAMPLED if self.is_sampled else self.n
            # a fit has more rounds the longer a section is, since borders move by about one spot in each
            searched = self.sets * spots**1.5 * self.k * (_BEFORE + self.search)
            whole = self.n * self.k * self.is_sampled
            stages["search"] = {"searched sets": self.sets, "searched": searched, "whole": whole}
        # edges of compositions come with the search
        found = [self.flow_neighbors] + [self.n_neighbors] * (not self.states)
        stages["graph"] = once | {"neighbours": self.n * sum(near + _SPARE for near in found if near)}
        # edges and the exponential cost as much as about twenty features
        rounds = self.starts * self.epochs * self.k
        dense, sparse = (0.0, self.kept) if self.gene_wise else (self.width, 0)
        # of the globals, of which every visit makes one for each gene; those of a few components cost nothing
        copies = rounds * default_n_patches(self.n) * _ROUNDS * self.kept_genes * self.gene_wise
        stages["fit"] = once | {
            "updates": rounds * self.n * (dense + 20.0),
            "state updates": rounds * self.n * self.states,
            "gene updates": rounds * sparse,
            "copies": copies,
        }
        stages["scores"] = once | {"spots": self.n, "trained": self.labelled * some * mixed}
        if self.markers and self.genes:
            stages["markers"] = once | {"values": self.values, "sums": self.k * self.genes}
        stages["write"] = once | {"posteriors": self.n * self.k, "file": self.file_bytes}
        return stages

    def memory_terms(self) -> dict[str, dict[str, float]]:
        """Return for each stage the sizes that its peak memory grows with, by name, in bytes or numbers of values."""
        counts = float(self.block_bytes or self.counts_bytes)
        kept = 8.0 * self.kept * self.holds_kept
        common = {"once": 1.0, "spots": self.n}
        posteriors = {"posteriors": _POSTERIOR_BYTES * self.n * self.k}
        genes = {"fitted genes": 8.0 * self.kept} if self.gene_wise else {}
        stages = {
            "start-up": {"once": 1.0},
            "read": common | {"counts": 0.0 if self.block_bytes else self.copies * counts},
        }
        if self.genes:
            stages["genes"] = common | {"counts": counts, "kept": kept, "genes": self.genes}
            stages["PCA"] = common | {"counts": 0.0 if self.block_bytes else counts, "kept": kept}
        after = 0.0 if self.block_bytes else counts
        stages["smooth"] = common | genes | {"counts": after}
        if self.states:
            stages["states"] = common | {"counts": after}
        stages["start"] = common | genes | {"counts": after}
        if self.searches:
            values = _SEARCHED_AT_ONCE * self.n * (self.k + self.states) * (not self.is_sampled)
            stages["search"] = common | {"counts": after, "searched": 8.0 * values}
        stages["graph"] = common | genes | {"counts": after}
        stages["fit"] = common | {"posteriors": _SOLVER_BYTES * self.n * self.k} | genes | {"counts": after}
        for name in ("scores", "write"):
            stages[name] = common | posteriors | genes | {"counts": after}
        if self.markers and self.genes:
            stages["markers"] = common | posteriors | genes | {"counts": counts, "sums": self.k * self.genes}
        return stages


_RATES = {"packed": "inflate", "bytes": "copy", "file": "copy", "once": "python"}  # other terms are arithmetic


class Prediction(NamedTuple):
    """Seconds and peak bytes of each stage of a fit, in the order of the stages."""

    seconds: dict[str, float]
    peak_bytes: dict[str, float]

    @property
    def total_seconds(self) -> float:
        """Seconds of the whole command."""
        return sum(self.seconds.values())

    @property
    def peak_memory_bytes(self) -> float:
        """Largest peak of all stages, in bytes."""
        return max(self.peak_bytes.values())


def rate_of(term: str) -> str:
    """Return the field of `Speed` that the time of a term of `Work.terms` depends on."""
    return _RATES.get(term, "multiply")


def predict_seconds(work: Work, speed: Speed, *, threads: int) -> dict[str, float]:
    """Return the wall-clock seconds of each stage on an otherwise idle machine.

    Parameters
    ----------
    work
        Sizes of the fit.
    speed
        Speed of the machine relative to the one that the coefficients were measured on (`Speed.relative_to`).
    threads
        Number of threads of the fit.
    """
    seconds = {}
    for stage, terms in work.terms().items():
        processor = sum(
            SECONDS[stage].get(term, 0.0) * size / getattr(speed, rate_of(term)) for term, size in terms.items()
        )
        busy = min(threads, work.searched_at_once) if stage == "search" else threads
        share = PARALLEL[stage]
        seconds[stage] = processor * (1.0 - share + share / busy)
    return seconds


def predict_bytes(work: Work) -> dict[str, float]:
    """Return the peak memory of each stage, in bytes."""
    return {
        stage: sum(MEMORY[stage].get(term, 0.0) * size for term, size in terms.items())
        for stage, terms in work.memory_terms().items()
    }
