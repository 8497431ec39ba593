"""An estimate of a fit as a whole: stages, range, and what it rests on; as a table and as JSON."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spatialpdvi.estimate.cost_model import Prediction, predict_bytes, predict_seconds
from spatialpdvi.estimate.machine import REFERENCE, Speed, measure_speed
from spatialpdvi.estimate.plan import Plan, plan_fit
from spatialpdvi.estimate.work import EPOCHS
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.runtime.threads import n_threads

__all__ = ["Estimate", "estimate_file"]


@dataclass(frozen=True)
class Estimate:
    """Seconds and peak memory of a fit that has not begun."""

    plan: Plan
    prediction: Prediction
    seconds_range: tuple[float, float]  # of the total, with few and with many epochs
    epochs_range: tuple[int, int]
    threads: int
    speed: Speed  # of the machine, beside that of the coefficients

    @property
    def in_memory(self) -> bool:
        """Whether the counts are read as a whole."""
        return not self.plan.work.block_bytes

    def as_dict(self) -> dict[str, Any]:
        """What ``--json`` writes."""
        work, found = self.plan.work, self.prediction
        return {
            "n_spots": work.n,
            "n_genes": work.genes,
            "n_values": work.values,
            "source": self.plan.source,
            "storage": self.plan.layout.storage,
            "reading": "in memory" if self.in_memory else "block by block",
            "memory_bytes": self.plan.memory,
            "in_memory_needs_bytes": self.plan.needed,
            "seconds": found.seconds,
            "total_seconds": found.total_seconds,
            "total_seconds_range": list(self.seconds_range),
            "peak_bytes": found.peak_bytes,
            "peak_memory_bytes": found.peak_memory_bytes,
            "epochs": work.epochs,
            "epochs_range": list(self.epochs_range),
            "threads": self.threads,
            "speed": self.speed._asdict(),
            "assumed": list(self.plan.assumed),
        }


def estimate_file(path: str | Path, options: FitOptions, *, markers: bool = False) -> Estimate:
    """Estimate a fit of a file from its metadata and the speed of this machine, on all threads it may use.

    Parameters
    ----------
    path
        An h5ad file, or the folder of a zarr store.
    options
        Of the fit.
    markers
        Whether the fit would have a ``--report``, for which genes are ranked.

    Raises
    ------
    InputError
        Where the file or what the options name in it cannot be used.
    """
    plan = plan_fit(path, options, markers=markers)
    speed, threads = measure_speed().beside(REFERENCE), n_threads()
    found = Prediction(predict_seconds(plan.work, speed, threads=threads), predict_bytes(plan.work))
    few, many = (min(epochs, options.max_epochs) for epochs in (EPOCHS[0], EPOCHS[2]))
    least, most = (
        sum(predict_seconds(replace(plan.work, epochs=epochs), speed, threads=threads).values())
        for epochs in (few, many)
    )
    return Estimate(plan, found, (least, most), (few, many), threads, speed)
