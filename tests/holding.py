"""Another process that has claimed outputs, for tests of what the second run is told."""

import subprocess
import sys
from contextlib import contextmanager

_HOLD = (
    "import sys\n"
    "from spatialpdvi.io.storage.locks import claimed\n"
    "with claimed(*sys.argv[1:]):\n"
    "    print('held', flush=True)\n"
    "    sys.stdin.read()\n"
)


@contextmanager
def held(*paths):
    """The process, which has claimed some paths while the ``with`` lasts."""
    command = [sys.executable, "-c", _HOLD, *map(str, paths)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.stdin.close()
