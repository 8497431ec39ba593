"""Every number of domains of a range fitted, and what is measured of each."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.errors import InputWarning
from spatialpdvi.features.build import RawFeatures
from spatialpdvi.fitting.loop import Stop
from spatialpdvi.fitting.prepare import prepare
from spatialpdvi.fitting.solve import solve, solver_from
from spatialpdvi.io.section.section import Section
from spatialpdvi.model_selection.bound import complete_bound
from spatialpdvi.model_selection.recommend import recommend
from spatialpdvi.model_selection.stability import Replication, persistence
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.options.k_range import candidates
from spatialpdvi.runtime.progress import Progress, Stage

__all__ = ["Scan", "scan_domains"]

_RESTARTS = 2  # --n-init at the most: tables need fewer restarts than the fit that follows


class Scan(NamedTuple):
    """What was measured of each number of domains, and the one that is recommended."""

    asked: str  # --k
    k: int
    reason: str
    table: dict[str, np.ndarray]  # columns of equal length, a row for each K

    def summary(self) -> dict[str, Any]:
        """What is written: the table, and the choice with its reason."""
        return {"k_scan": self.table, "k_choice": {"asked": self.asked, "k": self.k, "reason": self.reason}}


class _Row(NamedTuple):
    """One number of domains."""

    k: int
    neg_elbo: float
    found_again: float
    split_ari: float
    restart_ari: float
    smallest: int
    n_empty: int
    smooth: int
    converged: bool
    seconds: float


def scan_domains(section: Section, options: FitOptions, raw: RawFeatures, progress: Progress) -> Scan:
    """Fit the section with every number of domains that ``options.k`` stands for, and recommend one.

    Counts were read, genes chosen and components made before, once. Each fit is what ``--k`` of that number gives with
    nine restarts.

    Parameters
    ----------
    section, options
        As for `spatialpdvi.fitting.fit.fit_section`; ``options.k`` is a range or ``"auto"``.
    raw
        Features before they are averaged in space.
    progress
        One stage is shown.

    Raises
    ------
    InputError
        Where the range goes beyond the number of spots.
    """
    asked = str(options.k)
    counts = candidates(asked, section.coordinates.shape[0])
    rows: list[_Row] = []
    domains: list[np.ndarray] = []
    with progress.stage("scan") as stage, warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # the fit that follows says what there is to say
        replication = Replication(section, raw, options)
        for k in counts:
            stage.advance(len(rows), len(counts))
            tried = replace(options, k=k, n_init=min(options.n_init, _RESTARTS))
            row, found = _fit_one(section, tried, raw, replication=replication)
            rows.append(row)
            domains.append(found)
            stage.note(f"K {k}  found again {row.found_again:.1f}  smallest domain {row.smallest:,}")
        table = _columns(rows, persistence(domains))
        k, reason = recommend(table)
        stage.note(f"K {k} of {asked}")
    return Scan(asked, k, reason, table)


def _fit_one(
    section: Section, options: FitOptions, raw: RawFeatures, *, replication: Replication
) -> tuple[_Row, np.ndarray]:
    """A row of the table, and the domains (n,) in the user's order."""
    began = time.perf_counter()
    k = options.n_domains
    prepared = prepare(section, options, Progress(), raw=raw)
    solved = solve(prepared, solver_from(options), options, stage=Stage())
    found = np.empty(prepared.start.labels.size, dtype=np.int64)
    found[prepared.patching.order] = solved.phi.argmax(axis=1)
    sizes = np.bincount(found, minlength=k)
    again = replication.of(k, n_neighbors=prepared.found["smooth"], n_components=prepared.features.smoothed.shape[1])
    row = _Row(
        k=k,
        neg_elbo=complete_bound(
            solved.last[-1].evaluation.neg_elbo,
            prepared.fitted,
            prepared.patching.graph,
            k=k,
            hyperparameters=prepared.start.hyperparameters,
            rotation=prepared.rotation,
            seed=options.seed,
        ),
        found_again=again.net,
        split_ari=again.ari,
        restart_ari=float(prepared.found["restart_ari"]),
        smallest=int(sizes[sizes > 0].min()),
        n_empty=int((sizes == 0).sum()),
        smooth=int(prepared.found["smooth"]),
        converged=solved.stop is Stop.CONVERGED,
        seconds=time.perf_counter() - began,
    )
    return row, found


def _columns(rows: Sequence[_Row], persisting: np.ndarray) -> dict[str, np.ndarray]:
    columns = {name: np.array(values) for name, values in zip(_Row._fields, zip(*rows, strict=True), strict=True)}
    return {**columns, "persistence": persisting}
