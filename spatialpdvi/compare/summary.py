"""The table of a comparison: how low each solver brought F, and how fast."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from spatialpdvi.compare.runs import Run

__all__ = ["best_by_seed", "markdown", "spread", "summarise"]

NEAR = 1e-3  # distance to the best F of the seed that counts as reaching it, relative to the problem's scale


def best_by_seed(runs: Iterable[Run]) -> dict[int, float]:
    """Return the lowest F of all solvers for each seed; seeds without a finite run are left out."""
    best: dict[int, float] = {}
    for run in runs:
        values = run.column("neg_elbo")
        if not run.failed:
            best[run.seed] = min(best.get(run.seed, np.inf), float(np.nanmin(values)))
    return best


def summarise(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return one row per solver, in the order of the runs; means are over the seeds that did not fail."""
    best = best_by_seed(runs)
    names = list(dict.fromkeys(run.solver for run in runs))
    return [_row([run for run in runs if run.solver == name], best) for name in names]


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table with aligned columns."""
    titles = ("solver", "step", "F", "gap", "epochs to 0.1 %", "seconds to 0.1 %", "ARI", "converged")
    cells = [titles, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(titles))]
    lines = [_line([c.ljust(w) for c, w in zip(line, widths, strict=True)]) for line in cells]
    lines.insert(1, _line(["-" * width for width in widths]))
    return "\n".join(lines) + "\n"


def spread(values: np.ndarray) -> np.ndarray:
    """Return the sample standard deviation over the first axis; 0 for a single value."""
    return np.asarray(values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:]))


def _row(runs: list[Run], best: dict[int, float]) -> dict[str, Any]:
    good = [run for run in runs if not run.failed]
    reached = [place for run in good if (place := _reach(run, best[run.seed])) is not None]
    ari = np.array([run.ari for run in good if run.ari is not None])
    final = {run.seed: run.column("neg_elbo")[-1] for run in good}
    return {
        "solver": runs[0].solver,
        "step": runs[0].step,
        "n_runs": len(runs),
        "neg_elbo": _mean(list(final.values())),
        "gap": _mean([(final[run.seed] - best[run.seed]) / run.scale for run in good]),
        "n_near_best": len(reached),
        "epochs_to_near_best": _mean([epoch for epoch, _ in reached]),
        "seconds_to_near_best": _mean([seconds for _, seconds in reached]),
        "ari_mean": _mean(ari.tolist()),
        "ari_sd": float(spread(ari)) if ari.size else None,
        "n_converged": sum(run.converged for run in runs),
        "n_failed": len(runs) - len(good),
    }


def _reach(run: Run, best: float) -> tuple[float, float] | None:
    """Return the epoch and the seconds at which F was first within `NEAR` of the best, or None if it never was."""
    near = run.column("neg_elbo") <= best + NEAR * run.scale
    if not near.any():
        return None
    first = int(near.argmax())
    return float(run.column("epoch")[first]), float(run.column("seconds")[first])


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    n = row["n_runs"]
    partly = f" ({row['n_near_best']} of {n})" if 0 < row["n_near_best"] < n else ""
    failed = f", {row['n_failed']} failed" if row["n_failed"] else ""
    ari = "" if row["ari_mean"] is None else f"{row['ari_mean']:.3f} ± {row['ari_sd']:.3f}"
    return (
        row["solver"],
        "" if row["step"] is None else f"{row['step']:.2g}",
        _text(row["neg_elbo"], ".1f"),
        _text(row["gap"], ".1e"),
        _text(row["epochs_to_near_best"], ".1f", none="never") + partly,
        _text(row["seconds_to_near_best"], ".2g", none="never") + partly,
        ari,
        f"{row['n_converged']} of {n}{failed}",
    )


def _text(value: float | None, form: str, *, none: str = "") -> str:
    return none if value is None else format(value, form)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
