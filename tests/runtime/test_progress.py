"""How long stages take."""

from spatialpdvi.runtime.progress import Progress


def test_stages_of_the_same_name_add_up(monkeypatch):
    now = iter([0.0, 2.0, 10.0, 13.0, 20.0, 21.0])
    monkeypatch.setattr("spatialpdvi.runtime.progress.time.perf_counter", lambda: next(now))
    progress = Progress()
    for name in ("fit", "fit", "write"):
        with progress.stage(name):
            pass
    assert progress.seconds == {"fit": 5.0, "write": 1.0}
