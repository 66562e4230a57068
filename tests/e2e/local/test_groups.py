"""Groups of workers: the Python interface, with a real server, core and processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from kornel.shim_local import Cluster, NoServer, RequestRefused, WorkerGroup
from kornel.v1.explain_pb2 import ExplainRequest
from kornel.v1.explain_pb2_grpc import ExplainServiceStub
from tests.e2e.local.harness import ROOT, Local, running_local
from tests.patience import PATIENCE_S
from tests.prepared import python
from tests.waiting import wait_until

WORKER = """
import os, signal, sys, time
def leave(number, frame):
    print("told", os.path.exists(os.environ["KORNEL_PREEMPT_AT"]), flush=True)
    sys.exit(0)
signal.signal(signal.SIGUSR1, leave)
print("there below", os.getppid(), flush=True)
while True:
    time.sleep(60)
"""
QUEUES = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        properties: {gang.grace: 1s}
        queues:
          - {name: default, submitacl: "*"}
          - name: urgent
            submitacl: "*"
            resources: {guaranteed: {vcore: 4}}
            properties: {preemption.delay: 1s}
          - name: owed
            submitacl: "*"
            resources: {guaranteed: {vcore: 1}}
            properties: {preemption.delay: 24h}
"""


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    """A machine of four cores, and queues of which one preempts."""
    (tmp_path / "queues.yaml").write_text(QUEUES, encoding="utf-8")
    queues = ("--queues", str(tmp_path / "queues.yaml"))
    with running_local(tmp_path / "s", "--name", "here", "--vcore", "4", "--memory", "8Gi", *queues) as local:
        yield local


def start(local: Local, size: int, at_least: int = 0, **options: str) -> WorkerGroup:
    cluster = Cluster(local.folder)
    return cluster.start(
        [sys.executable, "-c", WORKER], size, at_least=at_least, directory=local.folder.parent, **options
    )


def there(local: Local, group: WorkerGroup) -> list[str]:
    """Returns the processes that have begun, and can be told."""
    running = [each for each in group.list_workers() if each.state == "running"]
    return [each.key for each in running if "there" in local.read_log(each.task)]


def wait_for(local: Local, group: WorkerGroup, *keys: str) -> None:
    wait_until(lambda: there(local, group) == list(keys), f"{keys} to be there")


def is_known(local: Local, key: str) -> bool:
    """Tells whether the core has the ask of a task, which it is sent once its application has been accepted."""
    with grpc.insecure_channel(f"unix:{local.folder}/core.sock") as channel:
        try:
            ExplainServiceStub(channel).Explain(ExplainRequest(name=key), timeout=PATIENCE_S)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise
            return False
        return True


def test_a_group_is_started_scaled_and_stopped(local: Local) -> None:
    """Those that are too many are told before they end, and a group of none begins anew."""
    group = start(local, 2)
    wait_for(local, group, "1.0-1", "1.1-1")
    group.scale(3)
    wait_for(local, group, "1.0-1", "1.1-1", "1.2-1")
    group.scale(1)
    wait_for(local, group, "1.0-1")
    wait_until(lambda: "told True" in local.read_log("1.2"), "the worker to be told")
    again = Cluster(local.folder).find_group(group.job)
    again.stop()
    local.wait("1")
    assert again.list_workers() == []
    again.scale(2)
    wait_for(local, group, "1.3-1", "1.4-1")
    group.stop_workers(["1.3"])
    wait_for(local, group, "1.4-1")
    local.wait_for_state("1.3", "cancelled")
    group.stop(notice=False)
    assert [each["status"] for each in local.wait("1")] == [0, 0, 0, 0, -15]


PATIENT = """
import os, signal, time
for name in ("SIGUSR1", "SIGTERM"):
    signal.signal(getattr(signal, name), lambda number, frame, name=name: print("got", name, flush=True))
print("there", flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
"""


def test_a_notice_outlives_the_server(local: Local) -> None:
    """The worker goes on until its time is up; whoever cancels it does not wait for that."""
    cluster = Cluster(local.folder)
    group = cluster.start(
        [sys.executable, "-c", PATIENT], 3, directory=local.folder.parent, grace="1h", kill_after="1h"
    )
    wait_for(local, group, "1.0-1", "1.1-1", "1.2-1")
    group.scale(1)
    wait_until(lambda: all("SIGUSR1" in local.read_log(f"1.{index}") for index in (1, 2)), "the notices")
    local.kill_server()
    local.up()
    assert [each.key for each in group.list_workers()] == ["1.0-1"]
    local.request("cancel", names=["1.2"])
    wait_until(lambda: "SIGTERM" in local.read_log("1.2"), "the one that was cancelled to be stopped")
    (local.folder.parent / "go").touch()
    assert [each["state"] for each in local.wait("1")] == ["done", "cancelled", "cancelled"]
    assert local.read_log("1.1") == "there\ngot SIGUSR1\n"


def test_a_gang_has_its_least_or_none(local: Local) -> None:
    """Room for two of three is room for none."""
    other = local.shell("sleep 1000", vcore=2000)
    local.wait_for_state(other, "running")
    group = start(local, 3, at_least=3)
    small = start(local, 1)
    wait_for(local, small, "3.0-1")
    assert [each.state for each in group.list_workers()] == ["queued"] * 3
    small.stop(notice=False)
    local.request("cancel", names=[other])
    wait_for(local, group, "2.0-1", "2.1-1", "2.2-1")
    with pytest.raises(RequestRefused, match="at least 3 tasks, or none"):
        group.scale(2)


def test_a_preempted_worker_is_told_and_comes_back(local: Local) -> None:
    """kornel-local starts it again, whatever its exit status."""
    group = start(local, 4)
    wait_for(local, group, *(f"1.{index}-1" for index in range(4)))
    urgent = local.shell("sleep 1", queue="urgent")
    local.wait(urgent)
    wait_until(lambda: len(there(local, group)) == 4, "all workers to be back")
    (again,) = [each for each in group.list_workers() if each.attempt == 2]
    assert "told True" in local.read_log(again.task, attempt=1)


def test_a_gang_that_stays_below_its_least_is_ended_and_comes_again_as_a_whole(local: Local) -> None:
    """Once gang.grace is over, because another job has taken the room of the member that was lost."""
    group = start(local, 4, at_least=4)
    wait_for(local, group, *(f"1.{index}-1" for index in range(4)))
    other = local.shell("sleep 1000", queue="owed")
    waiting = local.wait_for_state(other, "queued")["key"]
    # Until the core knows that somebody is owed the room, it goes to the gang.
    wait_until(lambda: is_known(local, waiting), "the core to know the other job")
    os.kill(int(local.read_log("1.0").split()[-1]), signal.SIGKILL)
    local.wait_for_state(other, "running")
    wait_until(lambda: {each.state for each in group.list_workers()} == {"queued"}, "the gang to be ended")
    assert ["told True" in local.read_log(f"1.{index}", attempt=1) for index in range(4)] == [False, True, True, True]
    local.request("cancel", names=[other])
    wait_for(local, group, *(f"1.{index}-2" for index in range(4)))


def test_a_command_is_a_list_of_words(local: Local) -> None:
    with pytest.raises(ValueError, match=r"a list of words, such as \['./worker', '--quiet'\]"):
        Cluster(local.folder).start("./worker --quiet", 2)
    with pytest.raises(ValueError, match="'30' has no unit; write 30s"):
        Cluster(local.folder).start(["./worker"], 2, vcore=0.5, grace=30)  # type: ignore[arg-type]


def test_without_a_server_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoServer, match="kornel-local up"):
        Cluster(tmp_path)


@pytest.mark.long
def test_the_program_of_the_page_runs(local: Local) -> None:
    """As it stands there, for a machine that has no room for its gang."""
    page = (ROOT / "docs" / "workers.md").read_text(encoding="utf-8")
    [program] = re.findall(r"```python\n(.*?)```", page.partition("\n## Any program")[2], re.DOTALL)
    folder = local.folder.parent
    (folder / "worker").write_text("#!/bin/sh\nsleep 1000\n", encoding="utf-8")
    (folder / "worker").chmod(0o755)
    environment = {**os.environ, "KORNEL_LOCAL_STATE": str(local.folder), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [python(), "-c", program], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "".join(f"1.{index}-1 queued \n" for index in range(8))
    assert [each["state"] for each in local.wait("1")] == ["cancelled"] * 12
