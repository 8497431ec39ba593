"""Spatial domains in spatial transcriptomics by preconditioned primal-dual variational inference.

``spatialpdvi.fit(adata, k=20)`` does what ``spatialpdvi fit section.h5ad --k 20`` does. Names are imported when they
are first used, so that ``import spatialpdvi`` and ``spatialpdvi --help`` are fast.
"""

from typing import TYPE_CHECKING, Any

from spatialpdvi.version import __version__ as __version__

if TYPE_CHECKING:
    from spatialpdvi import distributed, pl, pp, tl
    from spatialpdvi.api import (
        bin_file,
        describe,
        describe_files,
        domain_table,
        evaluate,
        evaluate_file,
        fit,
        fit_file,
        fit_files,
        intervals,
        intervals_file,
        label,
        label_file,
        load_model,
        markers,
        markers_file,
        plot_file,
        predict,
        predict_file,
        read_names,
        report_files,
        save_model,
        transfer,
        transfer_file,
        write_domain_table,
    )
    from spatialpdvi.api.estimator import PottsGMM
    from spatialpdvi.checkpoints import Checkpoint
    from spatialpdvi.editing.edits import Levels, Merge, Pieces, Rename, Split
    from spatialpdvi.errors import InputError, InputWarning
    from spatialpdvi.fitting.result import FitResult
    from spatialpdvi.options.fit import FitOptions
    from spatialpdvi.options.presets import preset_options
    from spatialpdvi.plotting import plot_section
    from spatialpdvi.prediction.transfer import TransferResult
    from spatialpdvi.synthetic import simulate

__all__ = [
    "Checkpoint",
    "FitOptions",
    "FitResult",
    "InputError",
    "InputWarning",
    "Levels",
    "Merge",
    "Pieces",
    "PottsGMM",
    "Rename",
    "Split",
    "TransferResult",
    "bin_file",
    "describe",
    "describe_files",
    "distributed",
    "domain_table",
    "evaluate",
    "evaluate_file",
    "fit",
    "fit_file",
    "fit_files",
    "intervals",
    "intervals_file",
    "label",
    "label_file",
    "load_model",
    "markers",
    "markers_file",
    "pl",
    "plot_file",
    "plot_section",
    "pp",
    "predict",
    "predict_file",
    "preset_options",
    "read_names",
    "report_files",
    "save_model",
    "simulate",
    "tl",
    "transfer",
    "transfer_file",
    "write_domain_table",
]

_HOME = {  # of the names that are not those of `spatialpdvi.api`
    "Checkpoint": "checkpoints",
    "FitOptions": "options.fit",
    "FitResult": "fitting.result",
    "InputError": "errors",
    "InputWarning": "errors",
    "Levels": "editing.edits",
    "Merge": "editing.edits",
    "Pieces": "editing.edits",
    "PottsGMM": "api.estimator",
    "Rename": "editing.edits",
    "Split": "editing.edits",
    "TransferResult": "prediction.transfer",
    "plot_section": "plotting",
    "preset_options": "options.presets",
    "simulate": "synthetic",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in {"distributed", "pl", "pp", "tl"}:
        return import_module(f"spatialpdvi.{name}")
    if name not in __all__:
        msg = f"module 'spatialpdvi' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"spatialpdvi.{_HOME.get(name, 'api')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
