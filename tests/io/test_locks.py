"""One writer at a time; a lock ends with the process that holds it, and leaves nothing behind."""

import errno
import fcntl
import os
import re
import signal
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from holding import held

from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.io.storage.locks import claimed
from spatialpdvi.io.storage.temporary import remove_abandoned


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_another_process_is_refused_with_who_is_at_work(tmp_path):
    out = tmp_path / "out.h5ad"
    with held(out) as process:
        with pytest.raises(InputError) as refused, claimed(out):
            pass
        assert re.fullmatch(
            rf"Expected '{re.escape(str(out))}' to be free, found another run at work on it \(process {process.pid} on "
            r"\S+, since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\)\. Nothing was changed\. "
            r"Wait until that has ended, or give another name\.",
            str(refused.value),
        )
        with claimed(tmp_path / "other.h5ad", None):
            assert len(_names(tmp_path)) == 2
    with claimed(out):
        pass
    assert _names(tmp_path) == []


@pytest.mark.parametrize("name", ["link", "../here/real.h5ad", "./real.h5ad"])
def test_other_spellings_and_links_are_the_same_file(tmp_path, name):
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "link").symlink_to("real.h5ad")
    with claimed(folder / "real.h5ad"), held_by_a_thread(folder / name) as error:
        assert isinstance(error, InputError)


@contextmanager
def held_by_a_thread(path):
    """What comes of a claim by another thread of this process."""
    found = [None]

    def claim():
        try:
            with claimed(path):
                pass
        except InputError as error:
            found[0] = error

    thread = threading.Thread(target=claim)
    thread.start()
    thread.join()
    yield found[0]


def test_threads_are_told_apart_and_callers_are_not(tmp_path):
    out = tmp_path / "out"
    with claimed(out):
        with claimed(out, tmp_path / "more"):
            assert len(_names(tmp_path)) == 2
        assert len(_names(tmp_path)) == 1  # the inner one has not given back what the outer one holds
        with held_by_a_thread(out) as error:
            assert f"process {os.getpid()} on" in str(error)
    with held_by_a_thread(out) as error:
        assert error is None


def test_all_or_none_of_several(tmp_path):
    with held(tmp_path / "b"):
        with pytest.raises(InputError, match=r"'.*/b' to be free"), claimed(tmp_path / "a", tmp_path / "b"):
            pass
        assert len(_names(tmp_path)) == 1
        with held_by_a_thread(tmp_path / "a") as error:
            assert error is None


def test_a_lock_ends_with_a_process_that_is_killed_and_the_next_tidies_up(tmp_path):
    with held(tmp_path / "one", tmp_path / "two") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(_names(tmp_path)) == 2
    with claimed(tmp_path / "one"):
        pass
    assert len(_names(tmp_path)) == 1
    remove_abandoned(tmp_path)
    assert _names(tmp_path) == []


def test_tidying_up_leaves_locks_that_are_held_and_files_of_others(tmp_path):
    (tmp_path / ".spatialpdvi-notes.lock").write_text("mine")
    (tmp_path / ".spatialpdvi-0123456789ab.lock").mkdir()
    with held(tmp_path / "out"), claimed(tmp_path / "ours"):
        before = _names(tmp_path)
        remove_abandoned(tmp_path)
        assert _names(tmp_path) == before
    assert _names(tmp_path) == [".spatialpdvi-0123456789ab.lock", ".spatialpdvi-notes.lock"]


def test_a_claim_waits_for_who_only_tidies_up(tmp_path):
    """A lock that is held for an instant is no other run."""
    out = tmp_path / "out"
    with held(out) as process:
        timer = threading.Timer(0.06, process.stdin.close)
        timer.start()
        with claimed(out):
            pass
        timer.join()


def test_what_a_lock_file_says_is_shown_only_if_we_wrote_it(tmp_path):
    out = tmp_path / "out"
    with held(out) as process:
        (lock,) = tmp_path.iterdir()
        lock.write_text("process 1 on \x1b[31m<b>, since ever")
        with pytest.raises(InputError, match=r"found another run at work on it\. Nothing"), claimed(out):
            pass
        process.stdin.close()


@pytest.mark.parametrize("where", ["no/such/folder/out", "file/out", "store.zarr/out", "x" * 300, "a\0b", "pipe"])
def test_where_nothing_may_be_written_the_checks_of_the_output_speak(tmp_path, where):
    (tmp_path / "file").touch()
    (tmp_path / "store.zarr").mkdir()
    (tmp_path / "store.zarr" / ".zgroup").touch()
    os.mkfifo(tmp_path / "pipe")
    with claimed(tmp_path / where):
        assert not list(tmp_path.rglob(".spatialpdvi*"))


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="a disk that says of new files that they do not exist")
def test_no_other_run_is_blamed_where_no_lock_can_be_made():
    with pytest.raises(InputError, match=r"^No file can be made in the folder '/proc'\."), claimed("/proc/x.h5ad"):
        pass


@pytest.mark.parametrize("kind", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, "a link in its place"])
def test_a_disk_without_locks_gives_a_warning(tmp_path, monkeypatch, kind):
    out = tmp_path / "out"
    if kind == "a link in its place":
        with claimed(out):
            (lock,) = tmp_path.iterdir()
        lock.symlink_to(tmp_path / "secret")
    else:

        def refuse(*_):
            raise OSError(kind, os.strerror(kind))

        monkeypatch.setattr(fcntl, "flock", refuse)
    before = _names(tmp_path)
    text = (
        rf"'{re.escape(str(out))}' cannot be locked \(.*\), so nothing keeps a second run from writing there at the "
        r"same time\. Do not start another one\."
    )
    with pytest.warns(InputWarning, match=text), claimed(out):
        pass
    assert _names(tmp_path) == before
