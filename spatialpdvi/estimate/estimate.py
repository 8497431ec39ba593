"""The estimate of the time and memory of a fit, from its plan and the speed of this machine."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spatialpdvi.estimate.cost_model import EPOCHS, Prediction, predict_bytes, predict_seconds
from spatialpdvi.estimate.machine import REFERENCE, Speed, measure_speed
from spatialpdvi.estimate.plan import FitPlan, plan_fit
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.runtime.threads import n_threads

__all__ = ["Estimate", "estimate_file"]


@dataclass(frozen=True)
class Estimate:
    """Estimated seconds and peak memory of a fit.

    Parameters
    ----------
    plan
        What the fit would do.
    prediction
        Seconds and peak bytes of each stage.
    seconds_range
        Seconds of the whole fit with few and with many epochs.
    epochs_range
        These numbers of epochs.
    threads
        Number of threads of the fit.
    speed
        Speed of this machine relative to the one that the coefficients were measured on.
    """

    plan: FitPlan
    prediction: Prediction
    seconds_range: tuple[float, float]
    epochs_range: tuple[int, int]
    threads: int
    speed: Speed

    @property
    def in_memory(self) -> bool:
        """Whether the counts are read as a whole, and not block by block."""
        return not self.plan.work.block_bytes

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
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
    """Estimate the time and memory of a fit from the metadata of the file and the speed of this machine.

    Parameters
    ----------
    path
        An h5ad file, or the folder of a zarr store.
    options
        Options of the fit.
    markers
        Whether the fit would search for marker genes.

    Raises
    ------
    InputError
        Where the file cannot be used, or something that the options name is not in it.
    """
    plan = plan_fit(path, options, markers=markers)
    speed, threads = measure_speed().relative_to(REFERENCE), n_threads()
    found = Prediction(predict_seconds(plan.work, speed, threads=threads), predict_bytes(plan.work))
    few, many = (min(epochs, options.max_epochs) for epochs in (EPOCHS[0], EPOCHS[2]))
    least, most = (
        sum(predict_seconds(replace(plan.work, epochs=epochs), speed, threads=threads).values())
        for epochs in (few, many)
    )
    return Estimate(plan, found, (least, most), (few, many), threads, speed)
