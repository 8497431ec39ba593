"""The same bits on a Dask cluster of any size, also where a worker dies."""

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import CancelledError
from contextlib import nullcontext
from functools import partial
from types import CellType, CodeType, FunctionType, SimpleNamespace

import numpy as np
import pytest
from conftest import make_composition_toy, make_toy

from spatialpdvi.engines import LocalEngine, PatchesLostError
from spatialpdvi.errors import InputError, InputWarning, ResourceError
from spatialpdvi.fitting.loop import StopRule, one_epoch, optimise
from spatialpdvi.solvers import SOLVERS, SolverSettings, make_solver

pytest.importorskip("distributed", reason="the extra [dask] is not installed")
# distributed closes the last of its sockets and loops when they are collected, which is after the test
pytestmark = [pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"), pytest.mark.cli]

# after the check that it can be imported
from spatialpdvi.distributed import ClusterEngine, client, connect, worker  # noqa: E402

RULE = StopRule(1e-9, 1e-12, 5)


@pytest.fixture(scope="module", params=[1, 4])  # 2: `pair`, with every solver
def cluster(request):
    with connect(f"local:{request.param}") as workers:
        yield workers


@pytest.fixture(scope="module")
def pair():
    with connect("local:2") as workers:
        yield workers


def _codes(toy):
    codes = toy.truth.copy()
    codes[::7] = -1
    return codes


def _run(engine, toy, name, **settings):
    solver = make_solver(name, SolverSettings(**settings))
    start = (toy.phi.copy(), toy.lam)
    tables = []
    end = optimise(
        engine,
        solver,
        start,
        rule=RULE,
        rng=np.random.default_rng(3),
        on_epoch=lambda row: tables.append(engine.table()),
    )
    return end, tables


def _assert_same(a, b):
    np.testing.assert_array_equal(a.phi, b.phi)
    for left, right in zip(a.lam, b.lam, strict=True):
        np.testing.assert_array_equal(left, right)
    assert [row.evaluation.neg_elbo for row in a.trace] == [row.evaluation.neg_elbo for row in b.trace]
    assert [row.evaluation.residual_max for row in a.trace] == [row.evaluation.residual_max for row in b.trace]


def _assert_the_same_run(cluster, name, batch, *, sparse=False, toy=None, **settings):
    toy = toy or make_toy(side=20, k=4, n_patches=7, sparse=sparse)
    codes = _codes(toy)
    here, tables = _run(LocalEngine(toy.problem, codes=codes), toy, name, batch_patches=batch, **settings)
    engine = ClusterEngine(cluster, toy.problem, codes=codes)
    there, theirs = _run(engine, toy, name, batch_patches=batch, **settings)
    engine.close()
    _assert_same(here, there)
    np.testing.assert_array_equal(tables, theirs)


@pytest.mark.parametrize(("batch", "sparse"), [(1, False), (3, False), (3, True), (7, False)])
def test_any_number_of_workers_gives_the_same_bits(batch, sparse, cluster):
    _assert_the_same_run(cluster, "p2dvi", batch, sparse=sparse)


def test_epochs_that_are_replaced_have_the_same_bits_on_workers(pair):
    _assert_the_same_run(pair, "p2dvi", 3, step_factor=1e-3)


def test_compositions_have_the_same_bits_on_workers(pair):
    _assert_the_same_run(pair, "p2dvi", 3, toy=make_composition_toy(side=20, k=4, n_patches=7))


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_runs_on_workers(name, pair):
    _assert_the_same_run(pair, name, 3, sparse=False)


def test_a_run_resumes_from_the_state_of_another_engine(pair):
    toy = make_toy(side=20, n_patches=6)
    straight = optimise(
        LocalEngine(toy.problem),
        make_solver("p2dvi"),
        (toy.phi.copy(), toy.lam),
        rule=StopRule(1e-9, 1e-12, 6),
        rng=(rng := np.random.default_rng(0)),
    )
    rng = np.random.default_rng(0)
    start = (toy.phi.copy(), toy.lam)
    for engine in (ClusterEngine(pair, toy.problem), LocalEngine(toy.problem), ClusterEngine(pair, toy.problem)):
        end = optimise(engine, make_solver("p2dvi"), start, rule=StopRule(1e-9, 1e-12, 2), rng=rng)
        start = end.state
    np.testing.assert_array_equal(end.phi, straight.phi)
    np.testing.assert_array_equal(end.lam.m, straight.lam.m)


def test_workers_go_back_to_the_point_that_they_kept_more_than_once(pair):
    toy, solver, rng = make_toy(n_patches=4), make_solver("cavi"), np.random.default_rng(0)
    engine = ClusterEngine(pair, toy.problem)
    engine.begin(solver, (toy.phi, toy.lam))
    engine.keep()
    for _ in range(2):
        shared = engine.restart(solver, toy.lam, kept=True)
        np.testing.assert_array_equal(engine.state(shared).phi, toy.phi)
        shared = one_epoch(engine, solver, shared, engine.evaluate(toy.lam), rng=rng)
        assert not np.array_equal(engine.state(shared).phi, toy.phi)
        np.testing.assert_array_equal(engine.kept(), toy.phi)
    engine.close()


def test_traffic_grows_with_borders_and_not_with_spots(pair):
    """An epoch sends only messages and borders, and a patch with four times as many spots has twice the border."""

    def epoch(side):
        toy = make_toy(side=side, n_patches=4)
        engine = ClusterEngine(pair, toy.problem)
        solver = make_solver("p2dvi")
        shared = engine.begin(solver, (toy.phi.copy(), toy.lam))
        before = pair.traffic.sent, pair.traffic.received
        for batch in ([0], [1], [2], [3]):
            engine.visit(shared, np.array(batch))
        engine.patch_states()
        engine.evaluate(toy.lam)
        moved = pair.traffic.sent - before[0], pair.traffic.received - before[1]
        engine.close()
        return np.array(moved), toy.phi.nbytes

    (small, _), (large, phi) = epoch(20), epoch(80)
    assert (large < 4.5 * small).all()  # four times the border; sixteen times the spots
    assert (large < phi / 3).all()


@pytest.mark.longest
@pytest.mark.filterwarnings("ignore:Neighbouring spots are hardly more alike")  # of a hundred genes
def test_a_worker_that_dies_changes_nothing(tmp_path):
    """SIGKILL in the fourth epoch, without a checkpoint and with one: the result is that of this process."""
    from spatialpdvi import FitOptions, fit_file
    from spatialpdvi.checkpoints import Checkpoint
    from spatialpdvi.runtime.progress import Progress
    from spatialpdvi.synthetic import simulate

    path = tmp_path / "section.h5ad"
    simulate(n_spots=2000, n_genes=120, k=4, seed=1, easy=True).write_h5ad(path)
    options = FitOptions(k=4, n_patches=6, batch_patches=3, seed=1, n_top_genes=100)
    here = fit_file(path, options, output=tmp_path / "here.h5ad")

    class Killing(Progress):
        def __init__(self, pids):
            super().__init__()
            self.pids, self.epochs = pids, []

        def _open(self, name):
            stage = super()._open(name)
            stage.note = self.note
            return stage

        def note(self, text):
            epoch = re.match(r"epoch (\d+)", text)
            if epoch:
                self.epochs.append(int(epoch[1]))
                if self.pids and int(epoch[1]) == 3:
                    os.kill(self.pids.pop(), signal.SIGKILL)

    for checkpoint, again in ((None, 0), (Checkpoint(tmp_path / "kept", every=1), 3)):
        with connect("local:2") as cluster:
            progress = Killing([min(cluster.run(os.getpid, dict.fromkeys(cluster.workers(), ())).values())])
            with pytest.warns(InputWarning, match=r"^A worker.* left before the fit was done\. "):
                there = fit_file(
                    path,
                    options,
                    output=tmp_path / "there.h5ad",
                    progress=progress,
                    checkpoint=checkpoint,
                    cluster=cluster,
                )
        assert progress.epochs[4] == again  # after 0, 1, 2, 3: the worker dies before the third is saved
        np.testing.assert_array_equal(here.posterior, there.posterior)
        np.testing.assert_array_equal(here.trace["neg_elbo"], there.trace["neg_elbo"])
        np.testing.assert_array_equal(here.trace["ari"], there.trace["ari"])


def test_workers_read_the_file_and_the_result_is_the_same(tmp_path, pair):
    from spatialpdvi import FitOptions, fit_file, fit_files
    from spatialpdvi.synthetic import simulate

    paths = [tmp_path / "a.h5ad", tmp_path / "b.h5ad"]
    for seed, path in enumerate(paths):
        simulate(n_spots=600, n_genes=150, k=3, seed=seed, easy=True).write_h5ad(path)
    options = FitOptions(k=3, n_patches=5, batch_patches=2, n_top_genes=100, init="annotation")
    here = fit_file(paths[0], options, output=tmp_path / "here.h5ad", find_markers=True)
    before = pair.traffic.received
    there = fit_file(paths[0], options, output=tmp_path / "there.h5ad", find_markers=True, cluster=pair)
    assert pair.traffic.received - before > here.features.nbytes  # genes came from the workers
    np.testing.assert_array_equal(here.features, there.features)
    np.testing.assert_array_equal(here.posterior, there.posterior)
    assert here.trace["neg_elbo"].tolist() == there.trace["neg_elbo"].tolist()
    assert here.markers == there.markers
    (tmp_path / "out").mkdir()
    options = FitOptions(k=3, n_patches=5, n_init=2, n_top_genes=100, states=6, search=0)
    both = [fit_files(paths, options, output=tmp_path / "out", cluster=cluster) for cluster in (None, pair)]
    np.testing.assert_array_equal(both[0].posterior, both[1].posterior)


def test_an_input_error_on_a_worker_is_raised_here_and_says_where_it_arose(pair):
    note = "(A worker of the Dask cluster 'local:2' found this; it must see the file under the same path.)"
    with pytest.raises(InputError, match=rf"^Expected `solver` to be one of .*, found 'em'\. {re.escape(note)}$"):
        pair.map(make_solver, [("cavi",), ("em",)])


LOCAL = r"Give local:2, for example\."


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("local", rf"^Expected the Dask cluster to be local:N .*, found 'local'\. {LOCAL}$"),
        ("local:0", rf"^Expected a Dask cluster local:N with at least one worker, found 'local:0'\. {LOCAL}$"),
        ("127.0.0.1:8786", rf"^Expected the Dask cluster to be local:N .*, found '127\.0\.0\.1:8786'\. {LOCAL}$"),
        (3, r"^Expected `where` to be text, found 3\.$"),
        ("nothing.json", r"^Expected a scheduler file of Dask at 'nothing\.json', found FileNotFoundError: "),
        ("tcp://127.0.0.1:1", r"^Expected a Dask scheduler at 'tcp://127\.0\.0\.1:1', found .* Check its address, "),
    ],
)
def test_an_address_without_a_cluster_is_an_error(where, found, monkeypatch):
    monkeypatch.setattr(client, "_CONNECT_SECONDS", 1)
    with pytest.raises(InputError, match=found), connect(where):
        pass


def test_jobs_for_any_worker_end_where_none_is_left(monkeypatch):
    monkeypatch.setattr(client, "_STARTUP_SECONDS", 1.0)
    with connect("local:1") as cluster:
        cluster.workers()
        stop = threading.Timer(1.0, cluster._client.cluster.scale, (0,))
        stop.start()
        said = r"^No worker of the Dask cluster 'local:1' connected within 1 seconds\. Start .* their logs say why\.$"
        with pytest.raises(ResourceError, match=said):
            cluster.map(time.sleep, [(30,), (30,)])
        stop.join()
        assert _tasks_become(cluster, 0)


def test_jobs_for_any_worker_go_on_with_one_that_replaces_the_last():
    with connect("local:1") as cluster:
        (pid,) = cluster.run(os.getpid, dict.fromkeys(cluster.workers(), ())).values()
        stop = threading.Timer(1.0, os.kill, (pid, signal.SIGKILL))
        stop.start()
        assert cluster.map(_sleep, [(2.0,), (0.0,)]) == [2.0, 0.0]
        stop.join()
        assert _tasks_become(cluster, 0)


def _sleep(seconds):
    time.sleep(seconds)
    return seconds


def _end():
    os.kill(os.getpid(), signal.SIGKILL)


class _Ending:
    """Ends the process that sends it."""

    def __reduce__(self):
        _end()


class _Slow:
    """Takes half a minute to send."""

    def __reduce__(self):
        time.sleep(30)
        return _Slow, ()


@pytest.mark.parametrize("job", [_end, _Ending])
def test_a_worker_that_leaves_during_its_task_or_before_it_has_sent_the_result_is_told(job):
    with connect("local:2") as cluster:
        gone, _ = cluster.workers()
        with pytest.raises(PatchesLostError, match=r"^A worker .*left before the fit was done\.$"):
            cluster.run(job, {gone: ()})


def test_results_for_which_no_worker_is_left_end_in_an_error(monkeypatch):
    monkeypatch.setattr(client, "_STARTUP_SECONDS", 1.0)
    with connect("local:1") as cluster:
        cluster.workers()
        stop = threading.Timer(1.0, cluster._client.cluster.scale, (0,))
        stop.start()
        with pytest.raises(ResourceError, match=r"^No worker of the Dask cluster 'local:1' connected within 1 seconds"):
            cluster.map(_Slow, [()])
        stop.join()


def test_workers_of_other_versions_are_refused(pair, monkeypatch):
    here = dict.fromkeys(("spatialpdvi", "numpy", "numba"), "0.1")  # the workers have their own
    monkeypatch.setattr(worker, "library_versions", lambda: here)
    with pytest.raises(InputError, match=r"numpy \S+ there and 0\.1 here, numba \S+ there and 0\.1 here \(worker tcp"):
        pair.workers()


def test_a_worker_that_was_restarted_has_lost_its_patches(pair):
    with pytest.raises(PatchesLostError, match=r"^A worker was restarted and no longer has its patches\.$"):
        pair.run(worker.patch_states, {pair.workers()[0]: ("no run",)})


@pytest.mark.parametrize("error", [OSError("closed"), RuntimeError("ConnectionPool is closed")])
def test_a_scheduler_that_is_gone_is_told(error):
    def gone():
        raise error

    cluster = client.Cluster(SimpleNamespace(nthreads=gone), "tcp://there")
    with pytest.raises(
        ResourceError, match=rf"^The scheduler of the Dask cluster 'tcp://there' is gone \({error}\)\. "
    ):
        cluster.workers()


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (OSError("closed"), r"^The scheduler of the Dask cluster 'tcp://there' is gone"),
        (None, r"^The Dask cluster 'tcp://there' has lost the results of its workers \("),
    ],
    ids=["scheduler", "results"],
)
def test_what_workers_read_is_lost_with_the_scheduler(monkeypatch, raised, message):
    def connected():
        if raised is not None:
            raise raised
        return {"tcp://worker": 1}

    def lost():
        raise CancelledError("scheduler-connection-lost")  # Dask's own is one

    released = []
    future = SimpleNamespace(release=lambda: released.append(1))
    cluster = client.Cluster(SimpleNamespace(nthreads=connected, submit=lambda *_, **__: future), "tcp://there")
    monkeypatch.setattr(cluster, "_gathered", lambda *_: SimpleNamespace(result=lost))
    monkeypatch.setattr(cluster, "_check_versions", lambda _: None)
    with pytest.raises(ResourceError, match=message):
        cluster.map(len, [("a",), ("b",)])
    assert len(released) == 2


def _tasks_become(cluster, number):
    """Whether the scheduler knows so many tasks, within a few seconds: it learns later that a future was released."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if cluster._client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == number:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("stopped", [False, True])
def test_logs_and_warnings_are_in_the_end_as_they_were(stopped):
    loggers = [logging.getLogger(name) for name in ("distributed.client", "asyncio", "tornado.application")]

    def state():
        return [(logger.level, logger.filters.copy()) for logger in loggers], warnings.filters.copy()

    before = state()
    with pytest.raises(KeyboardInterrupt) if stopped else nullcontext(), connect("local:1"):
        assert loggers[0].level == logging.CRITICAL
        assert state()[1] != before[1]
        if stopped:
            raise KeyboardInterrupt
    assert state() == before


def test_what_dask_logs_of_an_error_is_not_shown_where_it_is_imported_here():
    code = (
        "import logging, sys\n"
        "from spatialpdvi.distributed import connect\n"
        "assert 'distributed' not in sys.modules\n"
        "with connect('local:1'):\n"
        "    assert logging.getLogger('distributed.client').level == logging.CRITICAL\n"
    )
    main = f"if __name__ == '__main__':\n    exec({code!r})"  # the workers import it too
    subprocess.run([sys.executable, "-c", main], check=True)


def test_only_the_end_of_a_wait_that_a_signal_cut_short_is_kept_from_the_log(caplog):
    """Where the signal comes before a wait has begun, Dask's own cancellation of it fails, which tornado logs."""
    from distributed.utils import sync

    inner = [code for code in sync.__code__.co_consts if isinstance(code, CodeType) and code.co_name == "cancel"]
    ended = FunctionType(inner[0], {}, closure=(CellType(),) * len(inner[0].co_freevars))
    ended.__qualname__ = f"{sync.__qualname__}.<locals>.cancel"
    with connect("local:1"):
        for callback in (partial(ended), partial(int, "no number")):
            logging.getLogger("tornado.application").error("Exception in callback %r", callback)
    assert "no number" in caplog.text
    assert "<locals>.cancel" not in caplog.text
