import errno
import os
import shutil
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from spatialpdvi.api.folders import made_folder
from spatialpdvi.errors import InputError, as_flag
from spatialpdvi.io.results.writing import check_output
from spatialpdvi.io.storage import atomic
from spatialpdvi.io.storage.atomic import copy_content, replacing, write_json
from spatialpdvi.io.storage.disk import disk_error
from spatialpdvi.io.storage.outputs import check_writable

AGAIN = ", then run again."


def refusal(source: Path, output: Path) -> str:
    """The error of the check, in the words of the command line; the check leaves nothing behind."""
    folders = {source.parent, output.parent}
    before = [sorted(folder.iterdir()) for folder in folders if folder.is_dir()]
    with pytest.raises(InputError) as caught:
        check_output(source, output)
    assert [sorted(folder.iterdir()) for folder in folders if folder.is_dir()] == before
    return caught.value.sentence(as_flag)


def test_a_good_output_passes_and_leaves_nothing(path, tmp_path) -> None:
    before = sorted(tmp_path.iterdir())
    check_output(path, path)
    check_output(path, tmp_path / "new.h5ad")
    assert sorted(tmp_path.iterdir()) == before


def test_a_missing_folder(path, tmp_path) -> None:
    output = tmp_path / "reslts" / "out.h5ad"
    assert refusal(path, output) == (
        f"Expected the folder of {str(output)!r} to exist, found no {str(output.parent)!r}. "
        "Create it, or choose another --output."
    )


def test_a_folder_as_output(path, tmp_path) -> None:
    assert refusal(path, tmp_path) == (
        f"Expected {str(tmp_path)!r} to be a file to write, found a folder. Choose another --output."
    )


def test_a_pipe_as_output(path, tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "to be a file to write, found a pipe or device." in refusal(path, tmp_path / "pipe")


def test_standard_output_as_output(path, tmp_path, monkeypatch) -> None:
    """A file of the name "-" was made; the folder of the pipe behind /dev/stdout was said to be gone."""
    read, write = os.pipe()
    with pytest.raises(InputError, match=r" to be a file to write, found a pipe or device\."):
        check_writable(f"/dev/fd/{write}", "json")
    os.close(read)
    os.close(write)
    monkeypatch.chdir(tmp_path)
    assert refusal(path, Path("-")) == (
        "Expected a file to write to, found '-'. Results are not written to standard output, which has the summary of "
        "a command alone. Choose another --output, the name of a file."
    )
    with pytest.raises(InputError, match=r"found '-'\. Results are not written to standard output"):
        write_json("-", {}, option="json")
    with pytest.raises(InputError, match=r"found '-'\. "), made_folder("-", n_files=2):
        pass
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="a disk that says of new files that they do not exist")
def test_a_folder_that_makes_no_files() -> None:
    with pytest.raises(InputError, match=r"^No file can be made in the folder '/proc'\. Choose another `output`\.$"):
        check_writable("/proc/x.h5ad")


def test_a_folder_without_permission(path, tmp_path, monkeypatch) -> None:
    output = tmp_path / "out.h5ad"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert refusal(path, output) == (f"The folder {str(tmp_path)!r} is read-only. Choose another --output.")


def test_a_write_protected_file(path, monkeypatch) -> None:
    access = os.access
    monkeypatch.setattr(os, "access", lambda name, mode: name != path and access(name, mode))
    assert "found a file that is write-protected. Choose another" in refusal(path, path)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EROFS, "There is no permission to write {}. Nothing was changed. Choose another --output"),
        (
            errno.EDQUOT,
            (
                "There is no space left on the disk to write {}. Nothing was changed. Free some space or choose "
                "another --output"
            ),
        ),
    ],
)
def test_a_disk_that_refuses_new_files(path, monkeypatch, number, said) -> None:
    create = os.open

    def refuse(name, flags, *rest):
        if flags & os.O_CREAT:
            raise OSError(number, os.strerror(number))
        return create(name, flags, *rest)

    monkeypatch.setattr(os, "open", refuse)
    assert refusal(path, path) == said.format(repr(str(path))) + AGAIN


def test_the_input_is_gone(tmp_path) -> None:
    source = tmp_path / "gone.h5ad"
    assert refusal(source, tmp_path / "out.h5ad") == (
        f"The input {str(source)!r} is no longer there or not readable. Put it back" + AGAIN
    )


def test_too_little_space(path, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1234))
    output = tmp_path / "out.h5ad"
    with pytest.raises(InputError) as caught:
        check_output(path, output, n_bytes=2 * 10**9)
    assert str(caught.value) == (
        f"Writing {str(output)!r} takes 2.0 GB of disk space, and 0.0 MB are free. The old file is removed only when "
        "the new one is complete. Free some space, or choose an output on another disk."
    )


def test_links_in_a_circle(path, tmp_path) -> None:
    link = tmp_path / "link"
    link.symlink_to(link)
    assert refusal(path, link) == (
        f"Expected {str(link)!r} to be the path of a file, found a link that leads nowhere. Choose another --output."
    )


def put(target: Path, like: Path, text: str = "new") -> None:
    with replacing(target, like) as temporary:
        assert temporary.parent == target.parent
        assert temporary.name.startswith(".")
        temporary.write_text(text)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_mode_and_owner_of_a_replaced_file_stay(tmp_path, mode) -> None:
    like, target = tmp_path / "like", tmp_path / "target"
    like.write_text("")
    target.write_text("old")
    if os.geteuid() == 0:
        os.chown(target, 1234, 4321)
    target.chmod(mode)
    owner = (target.stat().st_uid, target.stat().st_gid)
    put(target, like)
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == mode
    assert (target.stat().st_uid, target.stat().st_gid) == owner


def test_a_new_file_is_no_more_open_than_its_origin(tmp_path) -> None:
    like = tmp_path / "like"
    like.write_text("")
    for mode, expected in ((0o600, 0o600), (0o444, 0o644), (0o666, 0o644)):
        like.chmod(mode)
        mask = os.umask(0o022)
        try:
            put(tmp_path / f"new{mode}", like)
        finally:
            os.umask(mask)
        assert stat.S_IMODE((tmp_path / f"new{mode}").stat().st_mode) == expected


@pytest.mark.parametrize("kind", [KeyboardInterrupt, OSError, SystemExit])
def test_nothing_is_left_of_what_fails(tmp_path, kind) -> None:
    target = tmp_path / "target"
    target.write_text("old")

    def fail() -> None:
        with replacing(target, target) as temporary:
            temporary.write_text("half")
            raise kind

    with pytest.raises(kind):
        fail()
    assert list(tmp_path.iterdir()) == [target]
    assert target.read_text() == "old"


def test_the_file_is_on_disk_before_it_takes_the_place(tmp_path, monkeypatch) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    seen = []
    fsync = os.fsync

    def spy(descriptor) -> None:
        seen.append((Path(f"/proc/self/fd/{descriptor}").resolve(), target.read_text()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    put(target, target)
    (file, before), (folder, after) = seen
    assert (file.parent, before) == (tmp_path, "old")
    assert (folder, after) == (tmp_path, "new")


def test_a_folder_that_cannot_be_synchronised_is_no_failure(tmp_path, monkeypatch) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    fsync = os.fsync

    def refuse(descriptor) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    put(target, target)
    assert target.read_text() == "new"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "x"), "There is no space left on the disk to write 'out.h5ad'."),
        (
            RuntimeError("unable to extend file, errno = 28, error"),
            "There is no space left on the disk to write 'out.h5ad'.",
        ),
        (
            OSError("write failed: time, errno = 27, error message"),
            "There is no space left on the disk to write 'out.h5ad'.",
        ),
        (OSError("errno = 122"), "There is no space left on the disk to write 'out.h5ad'."),
        (OSError(errno.EROFS, "x"), "There is no permission to write 'out.h5ad'."),
        (OSError(errno.ENOENT, "x"), "The input, or the folder of 'out.h5ad', is no longer there."),
        (OSError(errno.EIO, "x"), "Writing 'out.h5ad' failed: input/output error."),
        (OSError("no number"), None),
        (ValueError("errno = 28"), None),
    ],
)
def test_failures_of_the_disk_are_recognised(error, said) -> None:
    failure = disk_error(error, "out.h5ad")
    if said is None:
        assert failure is None
        return
    assert str(failure).startswith(f"{said} Nothing was changed. ")
    assert str(failure).endswith(AGAIN)


def test_a_folder_that_is_not_there_is_not_said_to_have_been_there(tmp_path) -> None:
    target = tmp_path / "none" / "model.npz"
    failure = disk_error(FileNotFoundError(errno.ENOENT, "x"), target, option="save_model")
    assert str(failure) == (
        f"There is no folder {str(target.parent)!r} to write {str(target)!r} into. Nothing was changed. Create it, or "
        "choose another `save_model`, then run again."
    )


def test_the_number_is_found_behind_another_error() -> None:
    outer = RuntimeError("cannot close")
    outer.__context__ = OSError(errno.ENOSPC, "full")
    assert "no space left" in str(disk_error(outer, "out.h5ad"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux is asked to share blocks")
@pytest.mark.parametrize("number", [None, errno.EOPNOTSUPP, errno.EXDEV, errno.ENOTTY])
def test_a_disk_that_can_is_asked_to_share_the_blocks_and_all_others_copy(tmp_path, monkeypatch, number) -> None:
    source, target, asked = tmp_path / "source", tmp_path / "target", []
    source.write_bytes(bytes(range(256)) * 999)
    target.write_bytes(b"longer than nothing")

    def ioctl(copy: int, what: int, original: int) -> None:
        asked.append(what)
        if number is not None:
            raise OSError(number, os.strerror(number))
        os.pwrite(copy, os.pread(original, 1 << 20, 0), 0)  # as the disk would

    copied, copyfile = [], shutil.copyfile
    monkeypatch.setattr("fcntl.ioctl", ioctl)
    monkeypatch.setattr(atomic.shutil, "copyfile", lambda *paths: copied.append(copyfile(*paths)))
    copy_content(source, target)
    assert target.read_bytes() == source.read_bytes()
    assert asked == [0x40049409]
    assert len(copied) == (number is not None)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux is asked to share blocks")
def test_a_copy_that_shares_its_blocks_needs_no_space(path, tmp_path, monkeypatch) -> None:
    free = SimpleNamespace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr("fcntl.ioctl", lambda *_: None)
    check_output(path, path, n_bytes=1000)
    assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(InputError, match="are free"):
        check_output(path, path, n_bytes=1001)

    def refuse(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr("fcntl.ioctl", refuse)
    with pytest.raises(InputError, match="are free"):
        check_output(path, path, n_bytes=1000)
    assert sorted(tmp_path.iterdir()) == before
