import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spatialpdvi.io.storage import temporary
from spatialpdvi.io.storage.atomic import replacing
from spatialpdvi.io.storage.temporary import ASIDE, create, hidden_name, remove_abandoned, reserve


@pytest.fixture(scope="module")
def dead() -> int:
    """The number of a process that has ended."""
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def renumbered(path: Path, pid: int) -> Path:
    """The name as another process of this place would choose it."""
    return path.with_name(path.name.replace(f"-{os.getpid()}-", f"-{pid}-"))


def test_names_are_hidden_and_differ(tmp_path) -> None:
    first, second = hidden_name(tmp_path), hidden_name(tmp_path)
    assert first != second
    assert re.fullmatch(rf"\.spatialpdvi-[0-9a-f]{{12}}-{os.getpid()}-[0-9a-f]{{12}}\.part", first.name)
    create(first, 0o600)
    with pytest.raises(FileExistsError):
        create(first, 0o600)


def test_only_what_is_certainly_abandoned_is_removed(tmp_path, dead) -> None:
    ours = hidden_name(tmp_path)
    abandoned = renumbered(hidden_name(tmp_path), dead)
    place = ours.name.split("-")[1]
    kept = [
        ours,
        renumbered(hidden_name(tmp_path), os.getppid()),  # runs
        abandoned.with_name(abandoned.name.replace(place, "0" * 12)),  # of another machine
        abandoned.with_name(abandoned.name + ".bak"),
        abandoned.with_name(abandoned.name.removeprefix(".")),
        renumbered(hidden_name(tmp_path), 10**30),
        tmp_path / f".spatialpdvi-{'0' * 12}.part",
    ]
    for path in (abandoned, *kept):
        path.write_text("half")
    folder, link = renumbered(hidden_name(tmp_path), dead), renumbered(hidden_name(tmp_path), dead)
    (folder / "half").mkdir(parents=True)
    link.symlink_to(tmp_path)
    with replacing(tmp_path / "target", tmp_path) as unfinished:
        assert set(tmp_path.iterdir()) == {*kept, link, unfinished}
    assert set(tmp_path.iterdir()) == {*kept, link, tmp_path / "target"}


def test_a_folder_moved_aside_is_put_back_where_nothing_has_its_name(tmp_path, dead) -> None:
    for name in ("gone", "there"):
        aside = renumbered(hidden_name(tmp_path, ASIDE), dead)
        (aside / name).mkdir(parents=True)
        (aside / name / "file").write_text("old")
    (tmp_path / "there").mkdir()
    remove_abandoned(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"gone", "there"}
    assert (tmp_path / "gone" / "file").read_text() == "old"
    assert list((tmp_path / "there").iterdir()) == []


def test_a_folder_that_cannot_be_listed_is_no_failure(tmp_path) -> None:
    remove_abandoned(tmp_path / "gone")


@pytest.fixture(params=["set aside", "no such call", "not on this disk"])
def way(request, monkeypatch) -> str:
    """How room can be had."""

    def refuse(*_) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    if request.param == "no such call":
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    elif request.param == "not on this disk":
        monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    return request.param


@pytest.mark.usefixtures("way")
def test_room_is_given_back(tmp_path, monkeypatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    largest, truncate = [], os.ftruncate

    def look(descriptor, size) -> None:
        largest.append(os.fstat(descriptor).st_size)
        truncate(descriptor, size)

    monkeypatch.setattr(temporary.os, "ftruncate", look)
    reserve(path, 3 << 20)
    assert largest == [7 + (3 << 20)]
    assert path.read_bytes() == b"content"


@pytest.mark.usefixtures("way")
def test_no_room_is_said_and_the_file_stays(tmp_path) -> None:
    import resource

    path = tmp_path / "file"
    path.write_bytes(b"content")
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, old[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            reserve(path, 3 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == b"content"
