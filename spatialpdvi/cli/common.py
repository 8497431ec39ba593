"""What the commands share: exit codes, warnings and progress on stderr, and tables."""

import functools
import gc
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from spatialpdvi.cli.memory import OutOfMemoryError, is_out_of_memory, out_of_memory
from spatialpdvi.cli.signals import name_signal, stop_on_sigterm
from spatialpdvi.errors import (
    InputError,
    InputWarning,
    NotConvergedWarning,
    ResourceError,
    as_flag,
    option,
    own_names,
)

if TYPE_CHECKING:
    from spatialpdvi.fitting.result import FitResult
    from spatialpdvi.runtime.progress import Progress

__all__ = [
    "FILE",
    "check_label_table",
    "check_outputs",
    "display",
    "echo",
    "exit_not_converged",
    "importing",
    "limit_threads",
    "name_written",
    "only_counts",
    "print_calibration",
    "print_excluded",
    "print_scores",
    "print_table",
    "print_written",
    "report_result",
    "result_is_written",
    "table_option",
    "user_errors",
    "verbosity",
    "write_label_table",
]


class _File(click.Path):
    """A path that click does not check: the library has an error for each thing that can be wrong with a file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":  # would be the current folder
            self.fail("Expected a path, found an empty text. A variable of the shell may not be set.", param, ctx)
        return super().convert(value, param, ctx)


FILE = _File(path_type=Path, readable=False)
EXIT_INPUT = 2
_EXIT_NOT_CONVERGED = 3
_MOST_THREADS = 4096  # OpenMP crashes where the system has no room for the stacks of its threads
_OF_LABELS = {"output": "labels"}  # what Python calls `--labels`


def exit_not_converged(reason: str) -> NoReturn:
    """End a command whose result was written, saying why it has not converged, loudly, and with an exit code of 3."""
    loudly = reason.replace("Not converged", "NOT CONVERGED", 1)
    click.echo(f"{loudly} The result was written all the same.", err=True)
    sys.exit(_EXIT_NOT_CONVERGED)


@contextmanager
def importing() -> Iterator[None]:
    """Import libraries without looking for garbage meanwhile, which would take a fifth of the seconds of all imports.

    Modules make some hundred thousand objects, which stay as long as the process does. Later collections therefore
    leave them out as well. Where the libraries have been imported before, nothing is changed.
    """
    if "numpy" in sys.modules or not gc.isenabled():
        yield
        return
    _check_threads_of_numba()
    _give_numba_a_folder()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _check_threads_of_numba() -> None:
    """Raise an `InputError` where numba could not be imported, for a variable that is no number of threads."""
    name = "NUMBA_NUM_THREADS"
    set_to = os.environ.get(name)
    if set_to is not None and not (set_to.isdecimal() and 0 < int(set_to) <= _MOST_THREADS):
        raise InputError(f"{name} of 1 to {_MOST_THREADS:,}", repr(set_to), "Correct this variable, or unset it.")


def _give_numba_a_folder() -> None:
    """Where numba can keep compiled code nowhere, give it a folder for this process.

    Without one, libraries that have their functions kept, scanpy among them, cannot be imported. The folder is no
    common one: numba runs what it finds there.
    """
    if os.environ.get("NUMBA_CACHE_DIR"):
        return
    import sysconfig

    own = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 (of a user without a home)
    if _is_writable(Path(own)) or _is_writable(Path(sysconfig.get_path("purelib"))):
        return
    import atexit
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="spatialpdvi-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = folder


def _is_writable(place: Path) -> bool:
    """Whether a folder can be written to, or made."""
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)


def user_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Print an `InputError` or a lack of memory without a traceback, and exit with 2.

    Ctrl-C exits with 130, SIGTERM with 143 and its like with 128 and their number, and the message says what was
    written. Other exceptions keep their traceback.
    """

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            with stop_on_sigterm():
                command(*args, **kwargs)
        except InputError as error:
            _fail(f"Error: {error.sentence(as_flag)}", EXIT_INPUT)
        except KeyboardInterrupt as stop:
            # a command that had written something says so in the exception
            name, code = name_signal(stop)
            _fail(f"{name}. {str(stop) or 'Nothing was written.'}", code)
        except (MemoryError, OSError, ImportError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            _fail(f"Error: {out_of_memory(error).sentence(as_flag)}", EXIT_INPUT)

    return wrapped


def echo(text: str = "", *, nl: bool = True) -> None:
    """Print the results of a command, once all of its files are written.

    Raises
    ------
    ResourceError
        Where standard output is a file, and its disk is full.
    """
    try:
        click.echo(text, nl=nl)
    except OSError as error:
        from spatialpdvi.io.storage.disk import NO_SPACE

        if error.errno not in NO_SPACE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python still writes when it ends
        raise ResourceError(
            "There is no space left on the disk for what this command prints.",
            f"Free some space, or use {option('quiet')}.",
            outcome="The files that it writes were written before.",
        ) from error


def check_outputs(others: Iterable[Path], **outputs: Path | None) -> list[Path]:
    """Check before hours of work that each output can be written, and is neither another one nor one of ``others``.

    Outputs are given by the names of their options, as Python spells them; None is no output. Returns all these files,
    which no further output may be.
    """
    from spatialpdvi.io.storage.outputs import check_distinct, check_writable

    taken = list(others)
    for name, path in outputs.items():
        if path is not None:
            check_distinct(path, name, taken)
            check_writable(path, name)
            taken.append(path)
    return taken


def check_label_table(path: Path | None, taken: Iterable[Path]) -> None:
    """Check before hours of work that the table of ``--labels``, if it is given, can be written, and is a new file."""
    from spatialpdvi.api import check_table
    from spatialpdvi.io.storage.outputs import check_distinct

    if path is not None:
        check_distinct(path, "labels", tuple(taken))
        with own_names(_OF_LABELS):
            check_table(path)


def only_counts(section: Path, counts: Sequence[Path]) -> Path | None:
    """Return the file that ``--counts`` gives for the one section of a command, if any; several are an `InputError`."""
    from spatialpdvi.io.results.slim import counts_of_each

    return counts_of_each([section], counts)[0]


@contextmanager
def name_written(*outputs: Path | None) -> Iterator[None]:
    """Lock the outputs, and add to a `KeyboardInterrupt` or a `MemoryError` which of them had been written.

    Writing replaces a file by a new one, so an output was written if its path leads to another file than before.
    """
    before = [(path, _identity(path)) for path in outputs if path is not None]
    try:
        with _locked(*outputs):
            yield
    except (KeyboardInterrupt, MemoryError) as stop:
        written = [repr(str(path)) for path, old in before if _identity(path) != old]
        if not written:
            raise
        missing = [repr(str(path)) for path, old in before if _identity(path) == old]
        msg = f"{' and '.join(written)} {'was' if len(written) == 1 else 'were'} written completely"
        msg += f"; {' and '.join(missing)} {'was' if len(missing) == 1 else 'were'} not written." if missing else "."
        if isinstance(stop, MemoryError):
            raise OutOfMemoryError(stop, msg) from stop
        stop.args = (msg,)
        raise


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells the file at a path from others, or None where there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


@contextmanager
def _locked(*outputs: Path | None) -> Iterator[None]:
    """Lock the outputs. There is no display yet, so that warnings are printed here."""
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
    quiet = click.option("--quiet", "-q", is_flag=True, help="Show errors only. Default: off.")
    verbose = click.option("--verbose", "-v", is_flag=True, help="Show all progress and all warnings. Default: off.")
    return quiet(verbose(command))


@contextmanager
def display(*, quiet: bool, verbose: bool) -> Iterator["Progress"]:
    """Show progress, warnings and log lines on stderr, as suits the terminal, in the order in which they occur."""
    from spatialpdvi.runtime.progress import LiveProgress, PlainProgress, Progress

    if quiet and verbose:
        raise InputError("at most one of --quiet and --verbose", "both", "Leave one of them out.")
    progress: Progress
    if quiet or sys.stderr is None:  # None where it was closed before the program began
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
            warnings.simplefilter("ignore", NotConvergedWarning)  # `exit_not_converged` says it, at the end
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


def table_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--table``, and replace a SpatialData store in ``section`` or ``sections`` by the path of its table."""

    @functools.wraps(command)
    def wrapped(*args: Any, table: str | None, **kwargs: Any) -> None:
        from spatialpdvi.io.storage.paths import choose_tables

        if "section" in kwargs:
            (kwargs["section"],) = choose_tables([kwargs["section"]], table)
        else:
            kwargs["sections"] = tuple(choose_tables(kwargs["sections"], table))
        command(*args, **kwargs)

    text = "Name of the table to use of each SECTION that is a SpatialData store. Default: the only table."
    return click.option("--table", help=text)(wrapped)


def limit_threads(threads: int | None) -> None:
    """Use at most ``threads`` threads; to be called before libraries that read these variables are imported."""
    if threads is None:
        return
    if threads < 1:
        raise InputError("at least 1", str(threads), option="threads")
    if threads > _MOST_THREADS:
        raise InputError(f"at most {_MOST_THREADS:,}", f"{threads:,}", option="threads")
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)


def print_scores(*rows: tuple[str, Mapping[str, Any]]) -> None:
    """Print the number of labelled spots, and a table with one row per labelling and one column per score."""
    from spatialpdvi.metrics.clustering import SCORES

    _, first = rows[0]
    if "n_scored" in first:
        echo(f"{first['n_scored']:,} of {first['n_spots']:,} spots have a label and are scored")
    shown = [name for name in SCORES if any(name in row for _, row in rows)]
    heads = ["", *(SCORES[name] for name in shown)]
    cells = [[label, *(f"{row[name]:.3f}" if name in row else "" for name in shown)] for label, row in rows]
    print_table(heads, cells, numbers=range(1, len(heads)))


def print_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: range, widest: int | None = None
) -> None:
    """Print columns side by side, those of numbers to the right; nothing where lines are longer than ``widest``."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    if widest is not None and sum(widths) + 2 * (len(widths) - 1) > widest:
        return
    for row in (heads, *rows):
        cells = (
            f"{cell:>{width}}" if i in numbers else f"{cell:<{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        echo("  ".join(cells).rstrip())


def print_calibration(result: "FitResult") -> None:
    """Print the calibration error of the posteriors, where labels and restarts are there to compute it."""
    found = result.scores.get("calibration", {})
    if "ece_calibrated" in found:
        echo(
            f"expected calibration error: {found['ece']:.3f}, calibrated {found['ece_calibrated']:.3f} "
            f"(temperature {result.params['temperature']:.1f})"
        )


def print_excluded(result: "FitResult") -> None:
    """Print how many spots were left out, if any were."""
    if result.kept is not None:
        echo(f"left out: {(~result.kept).sum():,} of {result.kept.size:,} spots, which have no domain")


def print_written(files: Iterable[Path], key_added: str) -> None:
    """Print the files that have a result, and the keys under which they have its main parts."""
    from spatialpdvi.io.results.keys import Keys

    keys, names = Keys(key_added), ", ".join(map(click.format_filename, files))
    echo(f"written: {names} (obs['{keys.domain}'], obsm['{keys.posterior}'], uns['{keys.uns}'])")


def report_result(result: "FitResult", path: Path, written: list[Path]) -> None:
    """Write the file of ``--json``, after the result itself."""
    from spatialpdvi.io.storage.atomic import write_json
    from spatialpdvi.runtime.memory import peak_memory

    outputs = [str(output) for output in written]
    where = outputs[0] if len(outputs) == 1 else outputs
    content = {"output": where, **result.report(), "peak_memory_bytes": peak_memory()}
    with result_is_written(written, "JSON file"):
        write_json(path, content, option="json")


def write_label_table(written: Sequence[Path], path: Path | None, key_added: str) -> None:
    """Write the table of ``--labels``, if it is given, after the result itself."""
    from spatialpdvi.api import write_domain_table

    if path is not None:
        with result_is_written(written, "table"), own_names(_OF_LABELS):
            write_domain_table(written, path, key_added=key_added)


@contextmanager
def result_is_written(written: Sequence[Path], what: str) -> Iterator[None]:
    """Add to an `InputError` about another file that the result itself was written."""
    try:
        yield
    except InputError as error:
        paths = " and ".join(repr(str(path)) for path in written)
        raise error.but(outcome=f"The result was written to {paths}; the {what} was not written.") from error
