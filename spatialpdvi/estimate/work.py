"""How much there is to do in a fit: numbers that its time and memory follow from. No file, no clock."""

from dataclasses import dataclass

__all__ = ["EPOCHS", "SMOOTH", "Work"]

EPOCHS = (8, 18, 60)  # few, typical and many epochs of p2dvi: 8 to 26 on most sections, 60 where domains overlap
SMOOTH = 18  # nearest spots that sections ask for, in the median; 4 to 80
_RICHER = 2.1  # times as many values in a highly variable gene as in any
_LEARNT_FROM = 20_000  # spots that restarts learn from, and that the scale is asked of
_ASKED = 116  # neighbours of those, spare ones included
_MIXTURES = 3  # restarts by a mixture for each by k-means
_SCALES = 3  # that restarts see
_SPARE = 16  # neighbours that are asked for beyond those needed


@dataclass(frozen=True, kw_only=True)
class Work:
    """Sizes of a section, of its file and of a fit of it."""

    n: int  # spots
    genes: int = 0  # none with ready features
    values: int = 0  # counts that are not 0
    kept_genes: int = 0
    counts_bytes: int = 0  # of the counts in memory
    packed_bytes: int = 0  # that are decompressed in reading them
    copies: int = 1  # of the counts while they are read
    file_bytes: int = 0  # of the whole file, which is copied
    block_bytes: int = 0  # of a block of the counts; 0 where they are read as a whole
    width: float = 15.0  # components, of which the start is made
    gene_wise: bool = False  # the fit is of genes in their place, of those that a spot expresses
    k: int = 2
    epochs: int = EPOCHS[1]
    n_init: int = 6
    starts: int = 1  # fits: more with --restarts best
    smooth: int | None = None  # None where the data choose
    n_neighbors: int = 10
    flow_neighbors: int = 100
    given_start: bool = False  # by --init
    labelled: bool = False
    markers: bool = False

    @property
    def kept(self) -> int:
        """Counts of the genes that are kept."""
        share = self.kept_genes / self.genes if self.genes else 0.0
        return int(self.values * min(1.0, _RICHER * share))

    @property
    def restarts(self) -> int:
        """Labellings that the start is made from."""
        return 0 if self.given_start else _SCALES * (self.n_init + -(-self.n_init // _MIXTURES))

    @property
    def reads(self) -> int:
        """Times that the counts are read in stages after the first: where they are not kept, each pass reads them."""
        return 2 if self.block_bytes else 0

    def terms(self) -> dict[str, dict[str, float]]:
        """What each stage's seconds are proportional to, by name."""
        some = min(self.n, _LEARNT_FROM)
        smooth = SMOOTH if self.smooth is None else self.smooth
        once = {"once": 1.0}
        reading = {"packed": float(self.packed_bytes), "bytes": float(self.counts_bytes)}
        stages: dict[str, dict[str, float]] = {"start-up": once}
        whole = 0.0 if self.block_bytes else 1.0
        stages["read"] = {"spots": self.n, **{name: whole * size for name, size in reading.items()}}
        if self.genes:
            again = {name: self.reads * size for name, size in reading.items()}
            stages["genes"] = once | {"values": self.values, "kept": self.kept, "genes": self.genes} | again
            stages["PCA"] = once | {"kept": self.kept, "spots": self.n}
        asked = some * _ASKED if self.smooth is None else 0
        stages["smooth"] = once | {"asked": asked, "neighbours": self.n * (2 * smooth + _SPARE)}
        mixed = self.k * self.width
        stages["start"] = once | {
            "learnt": self.restarts * some * mixed,
            "labelled": self.restarts * self.n * mixed,
            "votes": self.restarts * self.n * self.k,
        }
        stages["graph"] = once | {"neighbours": self.n * (self.flow_neighbors + self.n_neighbors + 2 * _SPARE)}
        # edges and the exponential cost some twenty features' worth
        rounds = self.starts * self.epochs * self.k
        dense, sparse = (0.0, self.kept) if self.gene_wise else (self.width, 0)
        stages["fit"] = once | {"updates": rounds * self.n * (dense + 20.0), "gene updates": rounds * sparse}
        stages["scores"] = once | {"spots": self.n, "learnt": self.labelled * some * mixed}
        if self.markers and self.genes:
            again = {name: size * (self.block_bytes > 0) for name, size in reading.items()}
            stages["markers"] = once | {"values": self.values, "sums": self.k * self.genes} | again
        stages["write"] = once | {"posteriors": self.n * self.k, "file": self.file_bytes}
        return stages

    def memory_terms(self) -> dict[str, dict[str, float]]:
        """What each stage's peak of memory is made of; terms in bytes or in numbers of values."""
        held = float(self.block_bytes or self.counts_bytes)
        kept = 8.0 * self.kept
        common = {"once": 1.0, "spots": self.n}
        posteriors = {"posteriors": self.n * self.k}
        genes = {"fitted genes": 8.0 * self.kept} if self.gene_wise else {}
        stages = {"start-up": {"once": 1.0}, "read": common | {"held": 0.0 if self.block_bytes else self.copies * held}}
        if self.genes:
            stages["genes"] = common | {"held": held, "kept": kept, "genes": self.genes}
            stages["PCA"] = common | {"held": 0.0 if self.block_bytes else held, "kept": kept}
        after = 0.0 if self.block_bytes else held
        for name in ("smooth", "start", "graph"):
            stages[name] = common | genes | {"held": after}
        for name in ("fit", "scores", "write"):
            stages[name] = common | posteriors | genes | {"held": after}
        if self.markers and self.genes:
            stages["markers"] = common | posteriors | genes | {"held": held, "sums": self.k * self.genes}
        return stages
