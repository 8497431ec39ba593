"""What kernels do where their compiled code cannot be kept."""

import errno
import logging
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numba
import pytest

from spatialpdvi.kernels import dispatch
from spatialpdvi.kernels.dispatch import brief_spin, compiled


def _twice(x):
    return 2 * x


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_a_full_disk_ends_no_call(monkeypatch, caplog):
    def save(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", save)
    kernel = compiled(_twice)
    with caplog.at_level(logging.INFO, logger="spatialpdvi"):
        assert (kernel(4), kernel(2.5)) == (8, 5.0)
    said = "Compiled code of _twice is not cached: set NUMBA_CACHE_DIR to a writable folder on a disk with room."
    assert [record.getMessage() for record in caplog.records] == [said, said]  # for integers and for numbers


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_what_one_process_has_compiled_the_next_one_reads(tmp_path):
    script = tmp_path / "kernel.py"
    script.write_text(
        "from spatialpdvi.kernels.dispatch import compiled\n"
        "@compiled\n"
        "def kernel(x):\n"
        "    return 2 * x\n"
        "assert kernel(3) == 6\n"
        "print(sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))\n"
    )
    said = [
        subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout for _ in range(2)
    ]
    assert said == ["0 1\n", "1 0\n"]


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_code_that_was_compiled_before_a_module_that_it_calls_changed_is_not_used(tmp_path):
    """What a kernel calls is compiled into it, and numba looks at the kernel's own file alone."""
    package = tmp_path / "spatialpdvi"
    shutil.copytree(Path(dispatch.__file__).parent, package / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").touch()
    code = (
        "import numpy as np\n"
        "from spatialpdvi.kernels.posteriors import softmax_rows as kernel\n"
        "kernel(np.zeros(1, dtype=np.int64), 0, 1, np.zeros((1, 2)), np.zeros(1))\n"
        "print(sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))\n"
    )

    def run():
        there = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=there, cwd=tmp_path)
        return done.stdout

    assert [run(), run()] == ["0 1\n", "1 0\n"]
    with (package / "kernels" / "simd.py").open("a") as file:
        file.write("# changed\n")
    assert [run(), run()] == ["0 1\n", "1 0\n"]


def test_two_threads_may_start_openmp_at_once(monkeypatch):
    monkeypatch.setitem(dispatch._OPENMP, "started", False)
    variables = dict(dispatch._WAITING)
    for name in variables:
        monkeypatch.delenv(name, raising=False)
    looked, together, inside = threading.Barrier(2), threading.Barrier(2), []

    class Waiting(dict):
        def items(self):
            yield from super().items()
            with suppress(threading.BrokenBarrierError):
                looked.wait(timeout=0.2)  # for the other, which would have seen that nothing is set either

    monkeypatch.setattr(dispatch, "_WAITING", Waiting(variables))

    def start():
        with brief_spin():
            together.wait(timeout=10)
            inside.append(variables.items() <= os.environ.items())
            together.wait(timeout=10)

    with ThreadPoolExecutor(2) as pool:
        for started in [pool.submit(start) for _ in range(2)]:
            started.result()
    assert inside == [True, True]
    assert not variables.keys() & os.environ.keys()
