"""A fit that was stopped goes on to the same result; what is not of this fit is refused, what is damaged is told."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import anndata
import numpy as np
import pytest
from checkpoints.conftest import Fragile, StoppedError, same_elements
from documented import named, part

import spatialpdvi
from spatialpdvi import Checkpoint, FitOptions, InputError, InputWarning, fit_file
from spatialpdvi.api import checked
from spatialpdvi.errors import NotConvergedWarning, ResourceError
from spatialpdvi.graph.neighbors import mutual_knn
from spatialpdvi.io.results import writing
from spatialpdvi.io.storage.archive import read_archive, write_archive
from spatialpdvi.io.storage.temporary import hidden_name
from spatialpdvi.runtime.progress import Progress
from spatialpdvi.version import library_versions


class Heard(Progress):
    def __init__(self):
        super().__init__()
        self.lines = []

    def message(self, text):
        self.lines.append(text)


@pytest.fixture
def halves(toy_section, tmp_path):
    """Two files with a half of the section each."""
    paths = [tmp_path / "a.h5ad", tmp_path / "b.h5ad"]
    for path, spots in zip(paths, (slice(0, 300), slice(300, 600)), strict=True):
        toy_section[spots].copy().write_h5ad(path)
    return paths


def _refusal(section, chosen, checkpoint, tmp_path):
    with pytest.raises(InputError) as caught:
        fit_file(section, chosen, output=tmp_path / "never.h5ad", checkpoint=checkpoint)
    assert not (tmp_path / "never.h5ad").exists()
    return str(caught.value)


@pytest.mark.filterwarnings("ignore:Not converged")  # the epochs of some are limited
@pytest.mark.parametrize(
    "more",
    [
        {},
        pytest.param({"restarts": "best", "max_epochs": 9}, marks=pytest.mark.slow),
        pytest.param({"solver": "cavi", "step_factor": None}, marks=pytest.mark.slow),
        pytest.param(
            {"states": 6, "search": 1, "step_factor": 4.0},
            marks=[pytest.mark.slow, pytest.mark.filterwarnings("ignore:Only 3 of 4 domains have spots")],
        ),
        pytest.param({"solver": "adam", "step_factor": None, "max_epochs": 30}, marks=pytest.mark.slow),
        pytest.param({"label_key": "annotation", "init": "annotation", "n_init": None}, marks=pytest.mark.slow),
    ],
)
def test_stopped_again_and_again_it_ends_with_the_same_result(section, options, folder, tmp_path, more):
    chosen = options(**more)
    straight = fit_file(section, chosen, output=tmp_path / "straight.h5ad")
    assert len(straight.trace["epoch"]) > 7
    stops, stops_after = 0, max(5, len(straight.trace["epoch"]) // 4)  # each attempt begins with the search
    while True:
        try:
            kept = Fragile(folder, stops_after=stops_after, every=2, resume=True)
            result = fit_file(section, chosen, output=tmp_path / "out.h5ad", checkpoint=kept)
        except StoppedError:
            stops += 1
            assert not (tmp_path / "out.h5ad").exists()
        else:
            break
    assert stops >= 2
    same_elements(result, straight)
    assert folder.exists() == (not result.certificate.converged and "restarts" not in more)


@pytest.mark.cli
def test_checkpoints_change_nothing_and_are_removed(section, options, folder, tmp_path):
    straight = fit_file(section, options(), output=tmp_path / "straight.h5ad")
    kept = fit_file(section, options(), output=tmp_path / "kept.h5ad", checkpoint=Checkpoint(folder, every=1))
    same_elements(kept, straight)
    assert not folder.exists()


@pytest.mark.cli
def test_files_and_facts_are_documented(stopped, folder):
    words = named(part("The folder of `--checkpoint`"))
    files = sorted(folder.iterdir())
    assert len(files) == 2
    for path in files:
        _, facts = read_archive(path, option="checkpoint")
        assert {path.name, *facts} <= words


@pytest.mark.cli
def test_files_that_cannot_be_removed_are_told(section, options, folder, tmp_path, monkeypatch):
    def refuse(path, **_):
        if path.suffix == ".checkpoint":
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    kept = Checkpoint(folder, every=1)
    with pytest.warns(
        InputWarning, match=r"The checkpoint in .* cannot be removed \(Permission denied\)\. Please remove it\."
    ):
        fit_file(section, options(), output=tmp_path / "kept.h5ad", checkpoint=kept)
    assert (kept.saved, kept.files[0].exists()) == (None, True)


@pytest.mark.cli
def test_files_of_the_user_stay_in_the_folder(section, options, folder, tmp_path):
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    fit_file(section, options(), output=tmp_path / "kept.h5ad", checkpoint=Checkpoint(folder, every=1))
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


@pytest.mark.cli
def test_an_anndata_in_memory_goes_on_too(toy_section, folder):
    chosen = {"k": 4, "rep": "X_pca", "n_init": 1}
    straight = spatialpdvi.fit(toy_section.copy(), **chosen)
    with pytest.raises(StoppedError):
        spatialpdvi.fit(toy_section.copy(), checkpoint=Fragile(folder, stops_after=3, every=2), **chosen)
    same_elements(spatialpdvi.fit(toy_section.copy(), checkpoint=Checkpoint(folder, resume=True), **chosen), straight)
    assert not folder.exists()


@pytest.mark.cli
def test_several_files_go_on_too(halves, options, folder, tmp_path):
    for name in ("straight", "out"):
        (tmp_path / name).mkdir()
    straight = spatialpdvi.fit_files(halves, options(), output=tmp_path / "straight")
    with pytest.raises(StoppedError):
        spatialpdvi.fit_files(
            halves, options(), output=tmp_path / "out", checkpoint=Fragile(folder, stops_after=2, every=1)
        )
    kept = Checkpoint(folder, resume=True)
    same_elements(spatialpdvi.fit_files(halves, options(), output=tmp_path / "out", checkpoint=kept), straight)


@pytest.mark.cli
def test_the_output_is_no_checkpoint(section, options, tmp_path):
    place = tmp_path / "same.zarr"
    with pytest.raises(InputError, match=r"^Expected `checkpoint` to be another file than '.*same\.zarr', found the "):
        fit_file(section, options(), output=place, checkpoint=Checkpoint(place, every=np.int64(1)))
    assert not place.exists()


@pytest.mark.cli
def test_what_was_written_before_a_failure_is_named(halves, options, monkeypatch):
    write, (first, second) = writing.write_elements, halves

    def no_space(path, *arguments, **more):
        if Path(path.given) == second:
            raise ResourceError("There is no space left.", "Free some.", outcome="Nothing was changed.")
        write(path, *arguments, **more)

    monkeypatch.setattr(writing, "write_elements", no_space)
    old = second.read_bytes()
    with pytest.raises(InputError) as failure:
        spatialpdvi.fit_files(halves, options())
    assert str(failure.value) == (
        f"There is no space left. {str(first)!r} was written before; nothing else was. Free some."
    )
    assert "pdvi" in anndata.read_h5ad(first).uns
    assert second.read_bytes() == old


@pytest.mark.cli
def test_files_warn_of_a_fit_that_has_not_converged(toy_section, section, options, tmp_path):
    for path, run in ((section, fit_file), ([section, tmp_path / "other.h5ad"], spatialpdvi.fit_files)):
        toy_section.write_h5ad(tmp_path / "other.h5ad")
        (tmp_path / run.__name__).mkdir()
        out = tmp_path / run.__name__ / ("out.h5ad" if run is fit_file else "")
        with pytest.warns(NotConvergedWarning, match=r"^Not converged.* The result is written all the same\.$") as said:
            run(path, options(max_epochs=1, states="off"), output=out)
        assert said[0].filename == __file__


@pytest.mark.cli
def test_it_says_where_it_begins(section, options, stopped, folder, tmp_path):
    heard = Heard()
    kept = Checkpoint(folder, resume=True)
    fit_file(section, stopped, output=tmp_path / "out.h5ad", checkpoint=kept, progress=heard)
    assert heard.lines[0] == f"The fit resumes from the checkpoint in {str(folder)!r}: epoch 4."
    heard = Heard()
    fit_file(section, stopped, output=tmp_path / "out.h5ad", checkpoint=kept, progress=heard)
    assert heard.lines[0] == f"There is no checkpoint in {str(folder)!r} yet, so the fit starts from the beginning."


@pytest.mark.cli
def test_restarts_are_made_once(section, options, folder, tmp_path, monkeypatch):
    from spatialpdvi.fitting import fit as pipeline
    from spatialpdvi.fitting import prepare as preparation

    chosen = options()
    straight = fit_file(section, chosen, output=tmp_path / "straight.h5ad")
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "solve", lambda *_, **__: (_ for _ in ()).throw(StoppedError))
        with pytest.raises(StoppedError):
            fit_file(section, chosen, output=tmp_path / "out.h5ad", checkpoint=Checkpoint(folder))
    assert [path.name for path in folder.iterdir()] == ["start.checkpoint"]
    monkeypatch.setattr(preparation, "restart_labels", lambda *_, **__: pytest.fail("made again"))
    heard = Heard()
    kept = Checkpoint(folder, resume=True)
    result = fit_file(section, chosen, output=tmp_path / "out.h5ad", checkpoint=kept, progress=heard)
    assert heard.lines[0] == f"The fit resumes from the checkpoint in {str(folder)!r}: the restarts."
    same_elements(result, straight)


@pytest.mark.cli
def test_a_limit_of_epochs_can_be_raised(section, options, folder, tmp_path):
    straight = fit_file(section, options(), output=tmp_path / "straight.h5ad")
    kept = Checkpoint(folder, every=2)
    with pytest.warns(NotConvergedWarning):
        short = fit_file(section, options(max_epochs=5), output=tmp_path / "out.h5ad", checkpoint=kept)
    assert not short.certificate.converged
    assert len(list(folder.iterdir())) == 2
    sentence = _refusal(section, options(max_epochs=4), Checkpoint(folder, resume=True), tmp_path)
    assert sentence == (
        f"Expected `max_epochs` to be more than the 4 epochs of the checkpoint in {str(folder)!r}, found 4. Raise "
        "it, or remove the checkpoint to begin again."
    )
    result = fit_file(section, options(), output=tmp_path / "out.h5ad", checkpoint=Checkpoint(folder, resume=True))
    same_elements(result, straight)
    assert not folder.exists()


@pytest.mark.cli
def test_a_checkpoint_is_not_overwritten_unasked(section, stopped, folder, tmp_path):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert _refusal(section, stopped, Checkpoint(folder), tmp_path) == (
        f"Expected no checkpoint in {str(folder)!r}, found fit.checkpoint. Resume from it with `resume=True`, or "
        "remove it to begin again."
    )
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.cli
@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"beta": 0.5}, "`beta` 1.0 there and 0.5 here"),
        ({"seed": 1, "solver": "pdvi"}, "`solver` p2dvi there and pdvi here, `seed` 0 there and 1 here"),
        ({"n_patches": 3}, "`n_patches` not given there and 3 here"),
        ({"k": 5}, "`k` 4 there and 5 here"),
    ],
)
def test_other_options_are_named(section, options, stopped, folder, tmp_path, more, found):
    assert _refusal(section, options(**more), Checkpoint(folder, resume=True), tmp_path) == (
        f"Expected the checkpoint in {str(folder)!r} to belong to this fit, found {found}. Give the options with which "
        "it was made, or remove the checkpoint to begin again."
    )


@pytest.mark.cli
def test_options_that_change_no_bit_may_change(section, options, stopped, folder, tmp_path):
    chosen = options(key_added="other", save_graph=True, memory="2GB", max_epochs=600)
    fit_file(section, chosen, output=tmp_path / "out.h5ad", checkpoint=Checkpoint(folder, resume=True))
    assert not folder.exists()


@pytest.mark.cli
def test_other_versions_are_named(section, stopped, folder, tmp_path, monkeypatch):
    known = checked.library_versions()
    monkeypatch.setattr(checked, "library_versions", lambda: known | {"numba": "0.1", "anndata": "0.1"})
    sentence = _refusal(section, stopped, Checkpoint(folder, resume=True), tmp_path)
    assert f"found numba {known['numba']} there and 0.1 here. Give" in sentence


@pytest.mark.cli
@pytest.mark.parametrize(
    ("change", "found", "removed"),
    [
        ("features", "other features", None),
        ("features", "other features", "start.checkpoint"),
        ("features", "other features", "fit.checkpoint"),
        ("coordinates", "other features", None),  # they are averages over neighbours
        ("coordinates", "other features", "start.checkpoint"),
        ("coordinates", "other features", "fit.checkpoint"),
        ("labels", "other labels to score against", None),
        ("labels", "other labels to score against", "start.checkpoint"),
    ],
)
def test_other_data_are_named(toy_section, stopped, folder, tmp_path, change, found, removed):
    if removed is not None:
        (folder / removed).unlink()
    other = toy_section.copy()
    if change == "features":
        other.obsm["X_pca"] = other.obsm["X_pca"] + np.linspace(0, 1e-3, 600)[:, None]
    elif change == "coordinates":
        other.obsm["spatial"] = other.obsm["spatial"] * np.array([1.0, 1.1])
    else:
        other.obs["annotation"] = other.obs["annotation"].to_numpy()[::-1].copy()
    other.write_h5ad(tmp_path / "other.h5ad")
    sentence = _refusal(tmp_path / "other.h5ad", stopped, Checkpoint(folder, resume=True), tmp_path)
    assert f"to belong to this fit, found {found}" in sentence
    assert "Give the section with which it was made, on a computer of the same kind, or remove" in sentence


@pytest.mark.cli
def test_other_edges_are_named(toy_section, options, folder, tmp_path):
    weighted, path, chosen = toy_section.copy(), tmp_path / "weighted.h5ad", options(graph="edges")
    weighted.obsp["edges"] = mutual_knn(weighted.obsm["spatial"], 6)
    weighted.write_h5ad(path)
    with pytest.raises(StoppedError):
        fit_file(path, chosen, output=tmp_path / "never.h5ad", checkpoint=Fragile(folder, stops_after=2, every=1))
    weighted.obsp["edges"] = 2.0 * weighted.obsp["edges"]
    weighted.write_h5ad(path)
    sentence = _refusal(path, chosen, Checkpoint(folder, resume=True), tmp_path)
    assert "to belong to this fit, found other edges or patches. Give" in sentence


@pytest.mark.cli
def test_another_start_is_named(toy_section, options, folder, tmp_path):
    """Where neither features nor edges depend on it."""
    section, path = toy_section.copy(), tmp_path / "section.h5ad"
    chosen = options(init="begin", n_init=None, whiten=False, beta=0.0)
    section.obs["begin"] = section.obs["annotation"].to_numpy()
    section.write_h5ad(path)
    with pytest.raises(StoppedError):
        fit_file(path, chosen, output=tmp_path / "never.h5ad", checkpoint=Fragile(folder, stops_after=2, every=1))
    section.obs["begin"] = np.roll(section.obs["annotation"].to_numpy(), 1)
    section.write_h5ad(path)
    sentence = _refusal(path, chosen, Checkpoint(folder, resume=True), tmp_path)
    assert "to belong to this fit, found other start. Give" in sentence


@pytest.mark.cli
@pytest.mark.parametrize("name", ["fit.checkpoint", "start.checkpoint"])
@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "another file", "a folder"])
def test_a_damaged_file_is_named(section, stopped, folder, tmp_path, name, damage):
    path = folder / name
    content = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "flipped":
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    elif damage == "another file":
        with path.open("wb") as file:
            np.save(file, np.arange(3))
    else:
        path.unlink()
        path.mkdir()
    sentence = _refusal(section, stopped, Checkpoint(folder, resume=True), tmp_path)
    assert sentence.startswith(f"Expected {str(path)!r} to be a file ")
    assert sentence.endswith("then run again.") or damage == "a folder"


@pytest.mark.cli
@pytest.mark.parametrize("position", np.linspace(0, 0.999, 25))
def test_no_flipped_bit_changes_a_result(section, options, stopped, folder, tmp_path, position):
    """Whatever byte is hit: refused in a sentence, or a byte that holds nothing."""
    path = folder / "fit.checkpoint"
    before, _ = read_archive(path, option="checkpoint")
    content = bytearray(path.read_bytes())
    content[int(position * len(content))] ^= 0x10
    path.write_bytes(content)
    try:
        after, _ = read_archive(path, option="checkpoint")
    except InputError:
        return
    assert after.keys() == before.keys()
    for name, array in before.items():
        assert after[name].tobytes() == array.tobytes()


@pytest.mark.cli
@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda facts, arrays: facts.update(format=0), "found format 0 there and 3 here"),
        (lambda facts, arrays: facts.pop("digests"), "found it damaged ('digests')"),
        (lambda facts, arrays: facts.update(epoch="four"), "found it damaged (no epoch)"),
        (lambda facts, arrays: facts.update(value={"plain": 1}), "found it damaged (no start)"),
        (lambda facts, arrays: arrays.pop("a0"), "found it damaged ('a0')"),
        (lambda facts, arrays: arrays.update(a0=arrays["a0"][:10]), "found it damaged (arrays of other shapes)"),
        (
            lambda facts, arrays: arrays.update(a0=arrays["a0"].astype("f4")),
            "found it damaged (arrays of other shapes)",
        ),
    ],
)
def test_a_file_that_holds_something_else_is_refused(section, stopped, folder, tmp_path, change, found):
    path = folder / "fit.checkpoint"
    arrays, facts = read_archive(path, option="checkpoint")
    change(facts, arrays)
    write_archive(path, arrays, facts, option="checkpoint")
    assert found in _refusal(section, stopped, Checkpoint(folder, resume=True), tmp_path)


@pytest.mark.cli
def test_a_folder_that_cannot_be_written_to_is_refused_at_the_start(section, options, folder, tmp_path, monkeypatch):
    folder.write_text("a file")
    assert _refusal(section, options(), Checkpoint(folder), tmp_path) == (
        f"Expected {str(folder)!r} to be a folder to write into, found a file. Choose another `checkpoint`."
    )
    missing = tmp_path / "no" / "kept"
    assert "Expected the folder of" in _refusal(section, options(), Checkpoint(missing), tmp_path)
    folder.unlink()
    folder.mkdir()
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    assert "is read-only. Choose another `checkpoint`." in _refusal(section, options(), Checkpoint(folder), tmp_path)


@pytest.mark.cli
@pytest.mark.parametrize("every", [0, -1, 2.5, True, None])
def test_a_number_of_epochs_that_is_none(every):
    with pytest.raises(InputError, match="Expected `every` to be a whole number of at least 1, found"):
        Checkpoint("kept", every=every)


@pytest.mark.cli
def test_a_folder_that_vanishes_is_no_reason_to_end(section, options, tmp_path):
    parent = tmp_path / "parent"
    parent.mkdir()

    class Vanishing(Checkpoint):
        def after_epoch(self, epoch, value):
            if epoch == 4:
                shutil.rmtree(parent)
            super().after_epoch(epoch, value)

    straight = fit_file(section, options(), output=tmp_path / "straight.h5ad")
    kept = Vanishing(parent / "kept", every=2)
    with pytest.warns(InputWarning) as told:
        result = fit_file(section, options(), output=tmp_path / "out.h5ad", checkpoint=kept)
    assert len(told) == 1  # though every later checkpoint fails as well
    assert "The fit goes on, and tries to save again after 2 epochs; the last checkpoint is of epoch 2." in str(
        told[0].message
    )
    same_elements(result, straight)


@pytest.mark.cli
def test_a_checkpoint_in_a_folder_that_comes_back_is_written_again(section, options, folder, tmp_path):
    class Vanishing(Fragile):
        def after_epoch(self, epoch, value):
            if epoch == 3:
                shutil.rmtree(folder)
            super().after_epoch(epoch, value)

    with pytest.raises(StoppedError):
        fit_file(section, options(), output=tmp_path / "out.h5ad", checkpoint=Vanishing(folder, stops_after=3, every=1))
    assert [path.name for path in folder.iterdir()] == ["fit.checkpoint"]
    straight = fit_file(section, options(), output=tmp_path / "straight.h5ad")
    kept = Checkpoint(folder, resume=True)
    same_elements(fit_file(section, options(), output=tmp_path / "out.h5ad", checkpoint=kept), straight)


@pytest.mark.cli
def test_nothing_in_a_file_is_run(section, stopped, folder, tmp_path):
    class Trap:
        def __reduce__(self):
            return pytest.fail, ("unpickled",)

    with (folder / "fit.checkpoint").open("wb") as file:
        np.savez(file, facts=np.array([Trap()], dtype=object), allow_pickle=True)
    assert "or a damaged one. Remove it" in _refusal(section, stopped, Checkpoint(folder, resume=True), tmp_path)


@pytest.mark.cli
def test_another_section_at_the_same_path(toy_section, stopped, folder, tmp_path):
    part = toy_section[:500].copy()
    part.write_h5ad(tmp_path / "part.h5ad")
    assert "found other features" in _refusal(
        tmp_path / "part.h5ad", stopped, Checkpoint(folder, resume=True), tmp_path
    )


@pytest.mark.cli
def test_every_option_is_told_or_changes_no_bit():
    from spatialpdvi.checkpoints.identity import identify

    versions = dict.fromkeys(("spatialpdvi", "numba", "numpy"), "1")
    told = identify(FitOptions(k=2), versions)
    silent = {name for name in FitOptions(k=2).__dict__ if name not in told}
    assert silent == {"key_added", "save_graph", "memory", "max_epochs"}
    assert "max_epochs" in identify(FitOptions(k=2, restarts="best"), versions)


def test_what_a_kill_has_left_beside_the_checkpoint_goes_with_it(tmp_path):
    """The fit may have ended before it wrote another checkpoint, which would have removed it."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    left = hidden_name(folder)
    left.with_name(left.name.replace(f"-{os.getpid()}-", f"-{int(ended.stdout)}-")).write_text("half")
    assert Checkpoint(folder).close()
    assert not folder.exists()


def test_epochs_are_what_is_kept_where_the_restarts_have_to_be_made_again(options, folder):
    """Their file may have been lost; what is told is how far the fit had come."""
    kept = Checkpoint(folder, every=1)
    kept.open(options(), library_versions(), Progress())
    restarts = (np.zeros((6, 2)),), (np.arange(6) % 2,)
    kept.save_restarts(*restarts)
    assert kept.saved == "the restarts"
    kept.after_epoch(1, lambda: 1.0)
    kept.save_restarts(*restarts)
    assert kept.saved == "epoch 1"


@pytest.mark.cli
def test_a_checkpoint_that_was_kept_for_more_epochs_is_removed_after_them(section, options, folder, tmp_path):
    kept = Checkpoint(folder, every=2, resume=True)
    with pytest.warns(NotConvergedWarning):
        fit_file(section, options(max_epochs=5), output=tmp_path / "out.h5ad", checkpoint=kept)
    assert folder.exists()
    assert fit_file(section, options(), output=tmp_path / "out.h5ad", checkpoint=kept).certificate.converged
    assert not folder.exists()
