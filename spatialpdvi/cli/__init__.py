"""The command line. Each command parses its options, calls `spatialpdvi.api` and prints the result.

`compare`, `estimate` and `simulate` call the rooms `compare`, `estimate` and `synthetic` instead.

Heavy libraries are imported inside the commands, so that ``--help`` is fast.
"""

import click

from spatialpdvi.cli.bin import bin_sample
from spatialpdvi.cli.compare import compare
from spatialpdvi.cli.describe import describe
from spatialpdvi.cli.estimate import estimate
from spatialpdvi.cli.evaluate import evaluate
from spatialpdvi.cli.fit import fit
from spatialpdvi.cli.intervals import intervals
from spatialpdvi.cli.label import label
from spatialpdvi.cli.markers import markers
from spatialpdvi.cli.plot import plot
from spatialpdvi.cli.predict import predict
from spatialpdvi.cli.report import report
from spatialpdvi.cli.simulate import simulate
from spatialpdvi.cli.transfer import transfer
from spatialpdvi.version import __version__

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="spatialpdvi")
def main() -> None:
    """Find spatial domains in spatial transcriptomics, with a certificate of convergence.

    \b
    Exit codes:
      0    Success.
      1    A bug in spatialpdvi.
      2    The input cannot be used, or there is not enough memory.
      3    The fit stopped before it converged. Its result was written.
      130  Interrupted by Ctrl-C.
      143  Stopped by SIGTERM.
    """


for command in (
    *(fit, predict, transfer, compare, estimate, evaluate, describe, intervals, label, markers),
    *(bin_sample, simulate, plot, report),
):
    main.add_command(command)
