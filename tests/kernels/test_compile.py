"""Kernels work where compiled code cannot be cached, and in a process that was forked."""

import logging
import os
import subprocess
import sys

import pytest

from spatialpdvi.kernels import dispatch


def test_a_kernel_is_compiled_where_its_cache_cannot_be_written(monkeypatch, caplog):
    real = dispatch.njit

    def without_a_place(**options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'f': no locator available for file 'kernels.py'")
        return real(**options)

    monkeypatch.setattr(dispatch, "njit", without_a_place)
    with caplog.at_level(logging.INFO, logger="spatialpdvi"):
        double = dispatch.compiled(lambda x: 2 * x)
    assert double(21) == 42
    assert "NUMBA_CACHE_DIR" in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on Windows")
def test_a_process_that_is_forked_after_parallel_loops_runs_them_serially():
    """Numba ended it, and a pool of such processes waited for ever."""
    code = (
        "import os\n"
        "import numpy as np\n"
        "from spatialpdvi.kernels import dispatch\n"
        "from spatialpdvi.kernels.graph import means_over_neighbours\n"
        "dispatch.SMALL_WORK = 0\n"
        "def run():\n"
        "    out = np.empty((2, 1))\n"
        "    means_over_neighbours(np.array([[1.0], [3.0]]), np.array([0, 1, 2]), np.array([1, 0]), out)\n"
        "    assert out.tolist() == [[2.0], [2.0]]\n"
        "run()\n"
        "if child := os.fork():\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "    run()\n"
        "else:\n"
        "    run()\n"
        "    os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
