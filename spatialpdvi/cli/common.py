"""What the commands share: errors to exit codes, warnings and log lines to the display, a small table."""

import functools
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from spatialpdvi.cli.memory import OutOfMemoryError, is_out_of_memory, out_of_memory
from spatialpdvi.cli.signals import stoppable, word_and_code
from spatialpdvi.errors import InputError, InputWarning, as_flag

if TYPE_CHECKING:
    from spatialpdvi.fitting.result import FitResult
    from spatialpdvi.runtime.progress import Progress

__all__ = [
    "EXIT_INPUT",
    "EXIT_NOT_CONVERGED",
    "FILE",
    "display",
    "limit_threads",
    "print_calibration",
    "print_scores",
    "report_result",
    "takes_table",
    "true_interruption",
    "true_of_the_result",
    "user_errors",
    "verbosity",
]

# The library says what is wrong with a file, in a sentence of its own.
FILE = click.Path(path_type=Path, readable=False)
EXIT_INPUT = 2
EXIT_NOT_CONVERGED = 3


def user_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Print an `InputError` as one sentence and exit 2, memory that has run out too.

    Ctrl-C exits 130 and SIGTERM 143, with a sentence on what was written. Anything else keeps its traceback.
    """

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            with stoppable():
                command(*args, **kwargs)
        except InputError as error:
            _fail(f"Error: {error.sentence(as_flag)}", EXIT_INPUT)
        except KeyboardInterrupt as stop:
            # a command that keeps what is finished says so in the exception
            word, code = word_and_code(stop)
            _fail(f"{word}: {str(stop) or 'nothing was written.'}", code)
        except (MemoryError, OSError, ImportError) as error:
            if not is_out_of_memory(error):
                raise
            _fail(f"Error: {out_of_memory(error)}", EXIT_INPUT)

    return wrapped


@contextmanager
def true_interruption(*outputs: Path | None) -> Iterator[None]:
    """Let a `KeyboardInterrupt` say which of the outputs were written before it came; a `MemoryError` too.

    A file that is replaced is another file afterwards, whichever moment the signal came in: that is what is asked. No
    other run may write to the outputs meanwhile.
    """
    before = [(path, _identity(path)) for path in outputs if path is not None]
    try:
        with _claimed(*outputs):
            yield
    except (KeyboardInterrupt, MemoryError) as stop:
        written = [repr(str(path)) for path, old in before if _identity(path) != old]
        if not written:
            raise
        missing = [repr(str(path)) for path, old in before if _identity(path) == old]
        msg = f"{' and '.join(written)} had been written, complete"
        msg += f"; {' and '.join(missing)} had not." if missing else "."
        if isinstance(stop, MemoryError):
            raise OutOfMemoryError(stop, msg) from stop
        raise type(stop)(msg) from stop


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


@contextmanager
def _claimed(*outputs: Path | None) -> Iterator[None]:
    """`spatialpdvi.io.storage.locks.claimed` before there is a display: its warnings are lines on stderr."""
    from spatialpdvi.io.storage.locks import claimed

    with ExitStack() as stack:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", InputWarning)
            stack.enter_context(claimed(*outputs))
        context = click.get_current_context(silent=True)
        if context is None or not context.params.get("quiet"):
            for warning in caught:
                click.echo(f"Warning: {_in_flags(warning.message)}", err=True)
        yield


def _fail(message: str, code: int) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(code)


def verbosity(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--quiet`` and ``--verbose``."""
    quiet = click.option("--quiet", "-q", is_flag=True, help="Show errors alone. Default: off.")
    verbose = click.option("--verbose", "-v", is_flag=True, help="Show every epoch and every warning. Default: off.")
    return quiet(verbose(command))


@contextmanager
def display(*, quiet: bool, verbose: bool) -> Iterator["Progress"]:
    """Progress on stderr for the terminal at hand; warnings and log lines go through it, in order."""
    from spatialpdvi.runtime.progress import LiveProgress, PlainProgress, Progress

    if quiet and verbose:
        msg = "Expected one of --quiet and --verbose, found both. Leave one of them out."
        raise InputError(msg)
    progress: Progress
    if quiet or sys.stderr is None:  # None: it was closed before the program began
        progress = Progress()
    elif sys.stderr.isatty() and not verbose:
        progress = LiveProgress(sys.stderr)
    else:
        progress = PlainProgress(sys.stderr, interval=0.0 if verbose else 10.0)
    handler = _ShowLog(progress)
    logger = logging.getLogger("spatialpdvi")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default" if verbose else "ignore")
            warnings.simplefilter("always", InputWarning)
            warnings.showwarning = functools.partial(_show_warning, progress)
            yield progress
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        progress.stop()


class _ShowLog(logging.Handler):
    def __init__(self, progress: "Progress") -> None:
        super().__init__()
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        self._progress.message(record.getMessage())


def _show_warning(progress: "Progress", message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    name = "Warning" if issubclass(category, InputWarning) else category.__name__
    progress.message(f"{name}: {_in_flags(message)}")


def _in_flags(message: Warning | str) -> str:
    """Return a warning in words, with options named by their flags."""
    return message.sentence(as_flag) if isinstance(message, InputWarning) else str(message)


def takes_table(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--table``, which says what of a SpatialData store ``section`` or ``sections`` stands for."""

    @functools.wraps(command)
    def wrapped(*args: Any, table: str | None, **kwargs: Any) -> None:
        from spatialpdvi.io.storage.paths import choose_tables

        if "section" in kwargs:
            (kwargs["section"],) = choose_tables([kwargs["section"]], table)
        else:
            kwargs["sections"] = tuple(choose_tables(kwargs["sections"], table))
        command(*args, **kwargs)

    text = "Table of a SpatialData store to use. Default: the only one."
    return click.option("--table", help=text)(wrapped)


def limit_threads(threads: int | None) -> None:
    """Use at most ``threads`` threads, from before any library that counts cores is loaded."""
    if threads is None:
        return
    if threads < 1:
        msg = f"Expected `--threads` to be at least 1, found {threads}."
        raise InputError(msg)
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)


def print_scores(rows: dict[str, dict[str, Any]]) -> None:
    """Table on stdout: one row per labelling, one column per score that it has; above it how many spots are scored."""
    first = next(iter(rows.values()))
    if "n_scored" in first:
        click.echo(f"{first['n_scored']:,} of {first['n_spots']:,} spots are labelled and scored")
    names = ("ari", "nmi", "homogeneity", "completeness", "chaos", "pas")
    shown = [name for name in names if any(name in row for row in rows.values())]
    widths = [max(len(name), 6) for name in shown]
    left = max(len(label) for label in rows)
    titles = (name if name in ("homogeneity", "completeness") else name.upper() for name in shown)
    click.echo(" " * left + "".join(f"  {t:>{w}}" for t, w in zip(titles, widths, strict=True)))
    for label, row in rows.items():
        values = (
            f"  {row[name]:>{w}.3f}" if name in row else " " * (w + 2) for name, w in zip(shown, widths, strict=True)
        )
        click.echo(f"{label:<{left}}" + "".join(values))


def print_calibration(result: "FitResult") -> None:
    """One line on the calibration of the posteriors, where labels and restarts are there to know it."""
    found = result.scores.get("calibration", {})
    if "ece_calibrated" in found:
        click.echo(
            f"expected calibration error: {found['ece']:.3f}, calibrated {found['ece_calibrated']:.3f} "
            f"(temperature {result.params['temperature']:.1f})"
        )


def report_result(result: "FitResult", path: Path, written: list[Path]) -> None:
    """Write the JSON of ``--report`` for a result that has been written."""
    from spatialpdvi.io.storage.atomic import write_json
    from spatialpdvi.runtime.memory import peak_memory

    outputs = [str(output) for output in written]
    where = outputs[0] if len(outputs) == 1 else outputs
    content = {"output": where, **result.report(), "peak_memory_bytes": peak_memory()}
    with true_of_the_result(written, "the report"):
        write_json(path, content, option="report")


@contextmanager
def true_of_the_result(written: Sequence[Path], what: str) -> Iterator[None]:
    """Let an `InputError` about a file beside the result say that the result itself is written."""
    try:
        yield
    except InputError as error:
        truth = f"The result is written, to {' and '.join(repr(str(path)) for path in written)}; {what} is not."
        msg = str(error).replace("Nothing was changed.", truth)
        raise InputError(msg) from error
