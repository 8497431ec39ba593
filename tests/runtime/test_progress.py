"""How long stages take."""

import errno
import io

from spatialpdvi.runtime.progress import PlainProgress, Progress


def test_stages_of_the_same_name_add_up(monkeypatch):
    now = iter([0.0, 2.0, 10.0, 13.0, 20.0, 21.0])
    monkeypatch.setattr("spatialpdvi.runtime.progress.time.perf_counter", lambda: next(now))
    progress = Progress()
    for name in ("fit", "fit", "write"):
        with progress.stage(name):
            pass
    assert progress.seconds == {"fit": 5.0, "write": 1.0}


def test_a_stream_that_takes_no_lines_does_not_end_the_work():
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

    progress = PlainProgress(Full(), interval=0.0)
    with progress.stage("fit") as stage:
        stage.note("epoch 1")
    progress.message("done")
    assert "fit" in progress.seconds
