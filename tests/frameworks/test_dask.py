"""Dask's own scheduler, workers and client: ``KornelCluster`` on a real kornel-local."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kornel.shim_local import Cluster, RequestRefused
from tests.e2e.local.harness import ROOT, Local
from tests.patience import PATIENCE_S
from tests.waiting import wait_until

distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")

from kornel.shim_local.dask_cluster import KornelCluster  # noqa: E402 - needs Dask


def make_task(trace: Path) -> Callable[[int], int]:
    """Returns a task that leaves a line in the file *trace* each time that it begins."""

    def run(number: int) -> int:
        import os  # noqa: PLC0415 - it is sent to workers as a value
        import time  # noqa: PLC0415

        with open(trace, "a") as file:  # noqa: PTH123
            file.write(f"{number} {os.environ['KORNEL_TASK']}-{os.environ['KORNEL_ATTEMPT']}\n")
        # Longer than Dask takes to copy results, so that a worker which closes right after that breaks a task off.
        time.sleep(5 if number in range(8, 16) else 0.3)
        return number * number

    return run


def read_trace(trace: Path) -> list[list[str]]:
    return [line.split() for line in trace.read_text().splitlines()] if trace.exists() else []


def test_an_urgent_job_takes_a_worker_and_nothing_is_computed_twice(local: Local, tmp_path: Path) -> None:
    """The worker that has to go finishes its task and hands on its results, and kornel-local starts it again."""
    trace = tmp_path / "trace"
    with KornelCluster(4, local=Cluster(local.folder)) as cluster, cluster.get_client() as client:
        client.wait_for_workers(4, timeout=PATIENCE_S)
        futures = client.map(make_task(trace), range(60), pure=False)
        wait_until(lambda: len(read_trace(trace)) >= 12, "the first tasks to have begun")
        urgent = local.shell("sleep 2", queue="urgent")
        (ended,) = local.wait(urgent)
        assert ended["state"] == "done"
        assert client.gather(futures) == [number * number for number in range(60)]
        runs = read_trace(trace)
        assert Counter(int(number) for number, _ in runs) == Counter(range(60))
        assert len(runs) == 60
        (back,) = [each for each in cluster.group.list_workers() if each.attempt > 1]
        first = f"{back.task}-1"
        assert first in {worker for _, worker in runs}
        wait_until(
            lambda: cluster.observed == cluster.plan == {each.key for each in cluster.group.list_workers()}, "all"
        )
    assert local.wait("1")
    assert cluster.group is None


def test_the_last_worker_goes_at_once(local: Local, tmp_path: Path) -> None:
    """Since nobody can take its results, the urgent job need not wait while it computes more of them."""
    other = local.shell("sleep 1000", vcore=3000, preemptible=False)
    local.wait_for_state(other, "running")
    trace = tmp_path / "trace"
    with KornelCluster(1, local=Cluster(local.folder)) as cluster, cluster.get_client() as client:
        futures = client.map(make_task(trace), range(20, 60), pure=False)
        wait_until(lambda: len(read_trace(trace)) >= 5, "the first tasks to have begun")
        local.wait(local.shell("true", queue="urgent"))
        assert len(read_trace(trace)) < 40
        assert client.gather(futures) == [number * number for number in range(20, 60)]


def test_workers_that_go_together_go_at_once(local: Local, tmp_path: Path) -> None:
    """Nobody can take their results, so they wait neither for their tasks nor for each other until they are killed."""
    trace = tmp_path / "trace"
    local_ = Cluster(local.folder)
    with KornelCluster(4, local=local_, grace="20s", kill_after="1s") as cluster, cluster.get_client() as client:
        client.wait_for_workers(4, timeout=PATIENCE_S)
        futures = client.map(make_task(trace), range(60), pure=False)
        wait_until(lambda: len(read_trace(trace)) >= 8, "the first tasks to have begun")
        cluster.scale(0)
        assert [each["status"] for each in local.wait("1")] == [0] * 4
        del futures


def test_it_scales_with_the_tasks(local: Local, tmp_path: Path) -> None:
    """Up when tasks wait, and down to none when there are none."""
    trace = tmp_path / "trace"
    with KornelCluster(local=Cluster(local.folder)) as cluster, cluster.get_client() as client:
        cluster.adapt(maximum=3, interval="200ms", wait_count=2, target_duration="100ms")
        futures = client.map(make_task(trace), range(20, 44), pure=False)
        wait_until(lambda: len(cluster.observed) == 3, "three workers")
        assert sum(client.gather(futures)) == sum(number * number for number in range(20, 44))
        del futures
        wait_until(lambda: not cluster.group.list_workers(), "all workers to have ended")
        assert Counter(number for number, _ in read_trace(trace)).most_common(1)[0][1] == 1
        assert client.submit(make_task(trace), 7, pure=False).result(PATIENCE_S) == 49


def test_a_gang_of_workers_waits_for_room_together(local: Local) -> None:
    other = local.shell("sleep 1000", vcore=2000)
    local.wait_for_state(other, "running")
    with KornelCluster(3, at_least=3, local=Cluster(local.folder)) as cluster, cluster.get_client() as client:
        assert {each.state for each in cluster.group.list_workers()} == {"queued"}
        with pytest.raises(RequestRefused, match="at least 3 tasks, or none"):
            cluster.scale(2)
        local.request("cancel", names=[other])
        client.wait_for_workers(3, timeout=PATIENCE_S)
    with pytest.raises(ValueError, match="never 3 tasks"):
        KornelCluster(2, at_least=3, local=Cluster(local.folder))


def test_a_worker_that_has_failed_is_told_of(local: Local, caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise a program would wait for it for ever, and not know why."""
    with KornelCluster(1, vcore=0.5, queue="nowhere", local=Cluster(local.folder)) as cluster:
        wait_until(lambda: "worker 1.0-1 has failed" in caplog.text, "the warning")
        assert "root.nowhere does not exist" in caplog.text
        assert cluster.plan == set()


def test_a_cluster_that_had_no_workers_for_long_has_some_again(local: Local) -> None:
    """Though kornel-local keeps jobs that have ended for a while only."""
    with KornelCluster(1, local=Cluster(local.folder)) as cluster, cluster.get_client() as client:
        client.wait_for_workers(1, timeout=PATIENCE_S)
        cluster.scale(0)
        local.wait("1")
        local.options += ("--keep", "0s")
        local.kill_server()
        local.up()
        wait_until(lambda: cluster.group is None, "the group to be forgotten")
        cluster.scale(1)
        assert client.submit(pow, 3, 2).result(PATIENCE_S) == 9
        assert [each.key for each in cluster.group.list_workers()] == ["2.0-1"]


def test_workers_end_with_their_program(local: Local) -> None:
    """Even if it is killed. kornel-local does not start again what has ended well."""
    program = (
        "import time, pathlib; from kornel.shim_local import Cluster;"
        "from kornel.shim_local.dask_cluster import KornelCluster;"
        f"cluster = KornelCluster(2, local=Cluster(pathlib.Path({str(local.folder)!r})));"
        "cluster.get_client().wait_for_workers(2); print('there', flush=True); time.sleep(1000)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        process.kill()
    assert [each["state"] for each in local.wait("1")] == ["done", "done"]
