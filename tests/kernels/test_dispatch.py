"""What kernels do where their compiled code cannot be kept."""

import errno
import logging
import subprocess
import sys

import numba
import pytest

from spatialpdvi.kernels.dispatch import compiled


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
