"""Kept results: whose they are, and when they no longer count."""

import os

import pytest

from spatialpdvi import FitOptions, InputError
from spatialpdvi.compare.store import Store, check_folder, identify


@pytest.fixture
def section(tmp_path):
    path = tmp_path / "s.h5ad"
    path.write_bytes(b"abc")
    return path


def test_a_result_comes_back_for_the_same_identity_alone(tmp_path, section):
    identity = identify(section, FitOptions(k=3))
    store = Store(tmp_path / "out", identity)
    assert store.load("a", step=0.1) is None
    store.save("a", {"x": 0.1 + 0.2}, step=0.1)
    assert Store(tmp_path / "out", identify(section, FitOptions(k=3))).load("a", step=0.1) == {"x": 0.1 + 0.2}
    assert store.load("a", step=0.2) is None
    assert store.load("a") is None
    other = Store(tmp_path / "out", identify(section, FitOptions(k=4)))
    assert other.load("a", step=0.1) is None
    assert other.changes("a", step=0.1) == {"k": (3, 4)}
    assert store.changes("a", step=0.1) == store.changes("b") == {}
    later = Store(tmp_path / "out", identity | {"new_option": 2})
    assert later.changes("a", step=0.1) == {"new_option": (None, 2)}


def test_a_touched_or_changed_input_is_another_one(tmp_path, section):
    before = identify(section, FitOptions(k=3))
    os.utime(section, ns=(1, 1))
    touched = identify(section, FitOptions(k=3))
    assert {key for key in before if before[key] != touched[key]} == {"input_mtime_ns"}
    section.write_bytes(b"abcd")
    assert identify(section, FitOptions(k=3))["input_size"] == 4


def test_solver_seed_names_of_keys_and_memory_do_not_matter(section):
    plain = identify(section, FitOptions(k=3))
    other = FitOptions(k=3, seed=4, solver="cavi", key_added="x", save_graph=True, memory="2GB")
    assert identify(section, other) == plain


@pytest.mark.parametrize("content", ["", "{", "[]", '{"identity": 1, "result": 2}', '{"result": {}}', "\xff"])
def test_a_file_that_is_not_ours_is_made_again(tmp_path, content):
    store = Store(tmp_path, {"k": 2})
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a.json").write_bytes(content.encode("latin-1"))
    assert store.load("a") is None
    assert store.changes("a") == {}


def test_the_folder_may_be_missing_its_parent_may_not(tmp_path, section):
    assert check_folder(tmp_path / "new") == tmp_path / "new"
    assert not (tmp_path / "new").exists()
    check_folder(tmp_path)
    in_the_way = r"^Expected `output` to be a folder, found the file '.*{}'\. Choose another one, or remove the file\.$"
    with pytest.raises(InputError, match=in_the_way.format(r"s\.h5ad")):
        check_folder(section)
    with pytest.raises(InputError, match="found no"):
        check_folder(tmp_path / "no" / "new")
    (tmp_path / "runs").write_text("a file in the way")
    with pytest.raises(InputError, match=in_the_way.format("runs")):
        check_folder(tmp_path)
    with pytest.raises(InputError, match=in_the_way.format("runs")):
        Store(tmp_path, {}).save("a", {})
