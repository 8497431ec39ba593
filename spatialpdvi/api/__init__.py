"""The Python interface. The commands are thin layers over these functions.

Three of them have a room of their own instead: `compare`, `estimate`, and `simulate`, which is in `synthetic`.
"""

from spatialpdvi.api.binning import bin_file
from spatialpdvi.api.description import describe, describe_files
from spatialpdvi.api.evaluation import evaluate, evaluate_file
from spatialpdvi.api.fitting import fit, fit_file, fit_files
from spatialpdvi.api.intervals import intervals, intervals_file
from spatialpdvi.api.labelling import label, label_file
from spatialpdvi.api.marker_genes import markers, markers_file
from spatialpdvi.api.names import read_names
from spatialpdvi.api.plotting import plot_file
from spatialpdvi.api.prediction import load_model, predict, predict_file, save_model
from spatialpdvi.api.report import report_files
from spatialpdvi.api.tables import check_table, domain_table, write_domain_table
from spatialpdvi.api.transfer import transfer, transfer_file

__all__ = [
    "bin_file",
    "check_table",
    "describe",
    "describe_files",
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
    "plot_file",
    "predict",
    "predict_file",
    "read_names",
    "report_files",
    "save_model",
    "transfer",
    "transfer_file",
    "write_domain_table",
]
