"""The command line: parse, one library call, print. No arithmetic, and nothing heavy before it is needed."""

import click

from spatialpdvi.cli.bin import bin_sample
from spatialpdvi.cli.compare import compare
from spatialpdvi.cli.estimate import estimate
from spatialpdvi.cli.evaluate import evaluate
from spatialpdvi.cli.fit import fit
from spatialpdvi.cli.markers import markers
from spatialpdvi.cli.plot import plot
from spatialpdvi.cli.predict import predict
from spatialpdvi.cli.report import report
from spatialpdvi.cli.simulate import simulate
from spatialpdvi.version import __version__

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="spatialpdvi")
def main() -> None:
    """Find spatial domains in spatial transcriptomics, with a certificate that the fit converged.

    Exit codes: 0 done; 1 a bug of ours; 2 input that cannot be used, or no memory left; 3 stopped before converging
    (the result is written all the same); 130 interrupted;
    143 stopped by SIGTERM.
    """


for command in (fit, predict, compare, estimate, evaluate, markers, bin_sample, simulate, plot, report):
    main.add_command(command)
