"""What ends while pods live: shims, cores, the API server; and what comes in their place."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.kubernetes.api import make_pod, make_pods, name_of, phase_of
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.programs import BUILD_S, wait_for

pytestmark = pytest.mark.timeout(BUILD_S)

LEASE = ("--lease-duration", "3s")
SEED = 20261123


@contextmanager
def stream_of_pods(cluster: Cluster, applications: int, pods: int) -> Iterator[threading.Event]:
    """Has pods made one by one beside the test: *pods* in each of *applications*. The event says that all are made."""
    done = threading.Event()
    stop = threading.Event()
    failures: list[Exception] = []

    def make() -> None:
        try:
            for number in range(applications * pods):
                if stop.wait(0.02):
                    return
                application = f"stream-{number // pods}"
                cluster.api.create(make_pod(f"{application}-{number % pods}", application, cpu="100m"))
            done.set()
        except Exception as error:  # noqa: BLE001 - it is raised where the test can see it
            failures.append(error)

    maker = threading.Thread(target=make)
    maker.start()
    try:
        yield done
    finally:
        stop.set()
        maker.join()
        assert not failures, failures


def wait_for_all(cluster: Cluster, applications: int, pods: int) -> None:
    for number in range(applications):
        cluster.wait_for_pods(f"stream-{number}", pods)


def test_a_shim_that_starts_again_takes_up_what_runs(cluster: Cluster) -> None:
    cluster.add_nodes(4)
    shim = cluster.start()
    cluster.api.create(*make_pods("before", 10))
    cluster.wait_for_pods("before", 10)
    shim.program.kill()
    cluster.api.delete("Pod", "before-0", "before-1")
    cluster.api.create(*make_pods("after", 8))
    shim.start()
    cluster.wait_for_pods("after", 8)
    cluster.wait_for_pods("before", 8)
    cluster.check_books()


def test_a_core_that_is_killed_is_told_everything(cluster: Cluster) -> None:
    cluster.add_nodes(4)
    shim = cluster.start()
    cluster.api.create(*make_pods("before", 10))
    cluster.wait_for_pods("before", 10)
    cluster.core.program.kill()
    cluster.api.delete("Pod", "before-0", "before-1")
    cluster.api.create(*make_pods("after", 8))
    cluster.core.start()
    cluster.wait_for_pods("after", 8)
    cluster.wait_for_pods("before", 8)
    assert shim.metric("kornel_shim_resync_refusals_total") == 0
    cluster.check_books()


def test_a_deployment_of_shims_is_rolled_while_pods_come(cluster: Cluster) -> None:
    cluster.add_nodes(4, cpu="16")
    first = cluster.start()
    second, third = cluster.add_shim("shim-b", *LEASE), cluster.add_shim("shim-c", *LEASE)
    with stream_of_pods(cluster, 10, 20) as all_made:
        for old, new in ((first, second), (second, third)):
            new.program.start()
            new.program.wait_until(lambda new=new: new.health() == "stands by", "the next shim to stand by")  # type: ignore[misc]
            assert old.program.stop() == 0
            wait_for(lambda new=new: new.health() == "schedules", "the next shim to take over")
        wait_for(lambda: all_made.is_set() or "under way", "all pods to be made")
    wait_for_all(cluster, 10, 20)
    assert not [pod for pod in cluster.api.pods() if phase_of(pod) == "Failed"]
    cluster.check_books()


def test_shims_without_a_common_lease_do_not_take_the_core_from_each_other(cluster: Cluster) -> None:
    cluster.add_nodes(4, cpu="16")
    first = cluster.start()
    second = cluster.add_shim("shim-b", "--lease", "another")
    with stream_of_pods(cluster, 10, 20) as all_made:
        second.program.start()
        wait_for(lambda: "held" in second.program.printed() or second.health(), "the second one to wait for the core")
        assert first.health() == "schedules"
        wait_for(lambda: all_made.is_set() or "under way", "all pods to be made")
        first.program.stop()
        wait_for(lambda: second.health() == "schedules", "the second one to register")
    wait_for_all(cluster, 10, 20)
    assert not [pod for pod in cluster.api.pods() if phase_of(pod) == "Failed"]
    cluster.check_books()


def test_a_deployment_of_the_core_is_rolled_while_pods_come(cluster: Cluster) -> None:
    cluster.add_nodes(4, cpu="16")
    cluster.start()
    with stream_of_pods(cluster, 10, 20) as all_made:
        for _ in range(3):
            cluster.core.program.stop()
            cluster.core.start()
        wait_for(lambda: all_made.is_set() or "under way", "all pods to be made")
    wait_for_all(cluster, 10, 20)
    assert not [pod for pod in cluster.api.pods() if phase_of(pod) == "Failed"]
    cluster.check_books()


def test_the_api_server_is_away_for_longer_than_the_lease(cluster: Cluster) -> None:
    cluster.add_nodes(4)
    shim = cluster.start()
    cluster.api.create(*make_pods("before", 8, annotations={"kornel.test/run-for": "8"}))
    cluster.wait_for_pods("before", 8)
    cluster.api.create(*make_pods("under-way", 8))
    cluster.control.program.kill()
    wait_for(lambda: "Lease" in shim.health() or shim.health(), "the shim to say that it has lost the Lease")
    cluster.control.start()
    wait_for(lambda: shim.health() == "schedules" or shim.health(), "the shim to go on")
    cluster.wait_for_pods("under-way", 8)
    cluster.wait_for_pods("before", 8, "Succeeded")
    cluster.api.create(*make_pods("after", 8))
    cluster.wait_for_pods("after", 8)
    cluster.check_books()


def test_nothing_is_lost_or_run_twice_whatever_is_killed_when(cluster: Cluster) -> None:
    """kill -9 of the shim and the core at random moments of the lives of 200 pods in 20 applications."""
    dice = random.Random(SEED)
    cluster.add_nodes(10, cpu="4")
    shim = cluster.start(**{"service.schedulingInterval": "100ms"})
    runtimes = [f"{dice.uniform(0, 6):.2f}" for _ in range(200)]
    lives = [
        make_pod(f"life-{number}", f"life-{number // 10}", annotations={"kornel.test/run-for": runtime})
        for number, runtime in enumerate(runtimes)
    ]
    maker = threading.Thread(target=cluster.api.create, args=lives)
    maker.start()
    for _ in range(8):
        time.sleep(dice.uniform(0.5, 3))
        if dice.random() < 0.5:
            cluster.core.program.kill()
            cluster.core.start()
        else:
            shim.program.kill()
            shim.program.start()
    maker.join()

    def judge() -> object:
        phases = [phase_of(pod) for pod in cluster.api.pods()]
        return phases.count("Succeeded") == 200 or {phase: phases.count(phase) for phase in phases}

    wait_for(judge, "all pods to end well", patience_s=300)
    assert len({name_of(pod) for pod in cluster.api.pods()}) == 200
    cluster.check_books()
