"""Sizes as users write them."""

import subprocess
import sys

import pytest

from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.runtime import memory
from spatialpdvi.runtime.memory import parse_size


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("1500000000", 1_500_000_000),
        ("2000KB", 2_000_000),
        ("500 MB", 500_000_000),
        ("1.5GB", 1_500_000_000),
        ("2T", 2_000_000_000_000),
        ("4096KiB", 4_194_304),
        ("1MiB", 1_048_576),
        (" 2gib ", 2_147_483_648),
        ("1TiB", 1_099_511_627_776),
    ],
)
def test_sizes_are_decimal_unless_they_say_that_they_are_binary(text, n_bytes):
    assert parse_size(text) == n_bytes


@pytest.mark.parametrize("text", ["", "0", "0.0GB", "0.5", "0.0001K", "-1GB", "1e9", "1,5GB", "8XB", "GB", None, 8])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InputError, match=r"^Expected `memory` to be a size such as 8GB or 500MB, found "):
        parse_size(text)


@pytest.mark.parametrize("text", ["4", " 4 ", "999999"])
def test_a_number_that_was_meant_to_have_a_unit_is_refused(text):
    """``--memory 4`` was four bytes, and the fit read its counts block by block without need."""
    with pytest.raises(InputError) as error:
        parse_size(text)
    number = text.strip()
    assert str(error.value) == (
        f"Expected `memory` to be a size such as 8GB or 500MB, found {text!r}, which is {int(number):,} bytes. Give "
        f"the unit as well, '{number}{'GB' if int(number) < 1000 else 'MB'}' for example."
    )
    assert (parse_size("1000000"), parse_size("4B")) == (1_000_000, 4)


@pytest.mark.parametrize(
    ("line", "groups", "left"),  # of a group: its limit, what it uses, and what of that are files
    [
        ("0::/job/step", {"job/step": ("max", 9, 0), "job": (900, 200, 50), "": (2000, 300, 0)}, [750, 1700]),
        ("0::/", {"": (100, 300, 0)}, [0]),
        ("0::/seen/outside", {"": (500, 100, 0)}, [400]),
        ("3:cpu:/job\n5:memory:/job", {"memory/job": (50, 20, 5), "": (1, 1, 0)}, [35]),
        ("0::/", {}, []),
        (None, {}, []),
    ],
)
def test_memory_is_free_within_the_limits_of_groups(tmp_path, line, groups, left):
    if line is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(f"{line}\n")
    for group, (limit, used, files) in groups.items():
        folder = tmp_path / "sys/fs/cgroup" / group
        folder.mkdir(parents=True, exist_ok=True)
        old = group.startswith("memory")
        for name, value in zip(
            ("limit_in_bytes", "usage_in_bytes") if old else ("max", "current"), (limit, used), strict=True
        ):
            (folder / f"memory.{name}").write_text(f"{value}\n")
        (folder / "memory.stat").write_text(f"anon 7\n{'total_' if old else ''}inactive_file {files}\nshmem 3\n")
    assert memory._left_in_groups(tmp_path) == left


def test_a_limit_of_a_group_bounds_what_is_free(monkeypatch):
    free = memory.free_memory()
    monkeypatch.setattr(memory, "_left_in_groups", lambda _: [free * 2, 1_000])
    assert memory.free_memory() == 1_000
    monkeypatch.setattr(memory, "_left_in_groups", lambda _: [])
    assert memory.free_memory() > 1_000


def test_a_limit_on_the_address_space_bounds_what_is_free():
    """As `ulimit -v` sets it; libraries and the interpreter have taken some of it."""
    script = """
import resource
from spatialpdvi.runtime.memory import free_memory
before = free_memory()
resource.setrlimit(resource.RLIMIT_AS, (2_000_000_000, resource.RLIM_INFINITY))
print(before, free_memory())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    before, left = map(int, done.stdout.split())
    assert 1_000_000_000 < left < min(before, 2_000_000_000)


def test_nobody_is_warned_of_less_than_a_gigabyte():
    memory.warn_of_limit(0.9e9, "1MB", "The fit", "Raise it.")
    with pytest.warns(InputWarning, match=r"^The fit takes about 1\.1 GB, more than `memory='1MB'`\. Raise it\.$"):
        memory.warn_of_limit(1.1e9, "1MB", "The fit", "Raise it.")
