"""Has YuniKorn's own scheduler and Kornel's shim play the same scenes in turns, and prints a table of what holds.

Run it as ``python -m tests.kubernetes.beside``, with ``--rounds 2`` and ``--only TEXT ...``. The judge
(:mod:`tests.kubernetes.judge`) follows the pods from outside. It counts the bindings that broke a rule of Kubernetes at
their moment, and the pods that wait in the end although a node with room admits them.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from tests.kubernetes.api import (
    HOSTNAME,
    Object,
    keep_apart,
    make_node,
    make_pod,
    make_pods,
    name_of,
    phase_of,
    pin_to,
    spread,
    uid_of,
)
from tests.kubernetes.cluster import DEFAULTS, QUEUES, Cluster, ControlPlane, config_map, run_control_plane
from tests.kubernetes.compare import SCHEDULERS
from tests.kubernetes.judge import find_waiting
from tests.kubernetes.test_gangs import make_gang
from tests.kubernetes.test_preemption import QUEUES as OWED
from tests.kubernetes.test_rules import write_pod
from tests.kubernetes_rules import random_rules

QUIET_S: Final = 40.0
"""After so long without a change, a scene is over: Kornel's shim doubts a no after half a minute at most."""
LONGEST_S: Final = 300.0
ZONE: Final = "topology.kubernetes.io/zone"
TAINT: Final = {"key": "only", "value": "gpu", "effect": "NoSchedule"}


@dataclass(frozen=True)
class Scene:
    """What is there when a scheduler starts, and how many pods run in the end if all is well (0: all, if ever).

    *later*: what comes once everything runs.
    """

    name: str
    nodes: list[Object]
    pods: list[Object]
    running: int = 0
    later: list[Object] = field(default_factory=list)
    queues: str = QUEUES


class Outcome(NamedTuple):
    """How a scheduler did.

    *running*: pods that run in the end, or of those that came later. *seconds*: until the last of them ran. *failed*:
    pods that were bound to a node that did not admit them, or given up.
    """

    running: int
    failed: int
    violations: int
    waiting: int
    seconds: float


def make_nodes(count: int, cpu: str = "16", zones: int = 0) -> list[Object]:
    return [
        make_node(f"node-{at}", cpu=cpu, labels={ZONE: f"zone-{at % zones}"} if zones else {}) for at in range(count)
    ]


def require(kind: str, application: str, topology: str) -> Object:
    """Returns affinity or anti-affinity to *application*."""
    term = {"topologyKey": topology, "labelSelector": {"matchLabels": {"app": application}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def build_scenes() -> Iterator[Scene]:
    guard, web = make_pod("guard-0", "guard", affinity=keep_apart("web")), make_pod("web-0", "web")
    yield Scene("a guard, then the pod that it keeps away, on one node", make_nodes(1), [guard, web], 1)
    yield Scene("the same, the guard second", make_nodes(1), [web, guard], 1)
    guards = make_pods("guard", 15, affinity=keep_apart("web"))
    yield Scene("15 guards and 60 that they keep away, 20 nodes", make_nodes(20), [*guards, *make_pods("web", 60)], 75)
    both = [
        *make_pods("red", 20, affinity=keep_apart("blue")),
        *make_pods("blue", 20, affinity=keep_apart("red")),
    ]
    yield Scene("20 and 20 that keep each other away, 10 nodes", make_nodes(10), both, 40)
    apart = {"affinity": keep_apart("app")}
    yield Scene("20 that keep apart, 20 nodes", make_nodes(20), make_pods("app", 20, **apart), 20)
    yield Scene("30 that keep apart, 20 nodes", make_nodes(20), make_pods("app", 30, **apart), 20)
    yield Scene("20 with one host port, 20 nodes", make_nodes(20), make_pods("app", 20, ports=[8080]), 20)
    rule = {"topologySpreadConstraints": spread("app")}
    yield Scene("20 spread over nodes, 20 nodes", make_nodes(20), make_pods("app", 20, **rule), 20)
    zoned = {"topologySpreadConstraints": [spread("app")[0] | {"topologyKey": ZONE}]}
    yield Scene("60 spread over 3 zones, 9 nodes", make_nodes(9, zones=3), make_pods("app", 60, **zoned), 60)
    alone = {"affinity": require("podAntiAffinity", "app", ZONE)}
    yield Scene("5 that keep apart by zone, 3 zones", make_nodes(9, zones=3), make_pods("app", 5, **alone), 3)
    near = {"affinity": require("podAffinity", "db", ZONE)}
    yield Scene(
        "20 near a database, by zone", make_nodes(9, zones=3), [*make_pods("app", 20, **near), make_pod("db", "db")], 21
    )
    together = {"affinity": require("podAffinity", "app", ZONE)}
    yield Scene("20 near each other, by zone", make_nodes(9, zones=3), make_pods("app", 20, **together), 20)
    gang = make_gang("gang", 5, 5)
    for pod in gang:
        pod["spec"]["affinity"] = keep_apart("gang")
    yield Scene("a gang of 5 that keep apart, 5 nodes", make_nodes(5), gang, 5)
    yield Scene(
        "two Hard gangs of 6, room for 8", make_nodes(2, "4"), [*make_gang("one", 6, 6), *make_gang("two", 6, 6)], 6
    )
    many = [pod for at in range(10) for pod in make_gang(f"gang-{at}", 4, 4)]
    yield Scene("10 gangs of 4, room for all", make_nodes(10, "4"), many, 40)
    waits = make_gang("gang", 6, 6)
    yield Scene("a Hard gang too large, and 4 pods, room for 4", make_nodes(1, "4"), waits, 4, make_pods("other", 4))
    tolerant = {"tolerations": [TAINT | {"operator": "Equal"}], "nodeSelector": {HOSTNAME: "tainted"}}
    nodes = [
        make_node("plain"),
        make_node("disk", labels={"disk": "ssd"}, cpu="8"),
        make_node("tainted", taints=[TAINT]),
    ]
    picky = make_pods("picky", 4, nodeSelector={"disk": "ssd"})
    yield Scene("selectors and taints", nodes, [*picky, *make_pods("plain", 4), *make_pods("own", 2, **tolerant)], 10)
    nowhere = make_pods("nowhere", 50, nodeSelector={"disk": "none"})
    yield Scene(
        "50 that no node admits before 20 plain ones", make_nodes(5, "4"), [*nowhere, *make_pods("app", 20)], 20
    )
    daemons = []
    for at in range(4):
        pod = make_pod(f"agent-{at}", "daemon", affinity=pin_to(f"node-{at}"))
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "0", "controller": True}
        pod["metadata"]["ownerReferences"] = [owner]
        daemons.append(pod)
    yield Scene("4 of a DaemonSet on full nodes", make_nodes(4, "4"), make_pods("filler", 16), 16, daemons)
    batch, service = make_pods("batch", 20, queue="root.batch"), make_pods("service", 20, queue="root.production")
    owed = OWED.replace("vcore: 8", "vcore: 20").replace("vcore: 4", "vcore: 0")
    yield Scene("20 preempt 20 in a queue without guarantee", make_nodes(5, "4"), batch, 20, service, owed)
    short = make_pods("short", 100, annotations={"kornel.test/run-for": "1"}, affinity=keep_apart("short"))
    yield Scene("100 short ones that keep apart, 10 nodes", make_nodes(10), short, 0)
    pods = random_rules(random.Random(7), 200, 20, ("team",))
    yield Scene(
        "200 with random rules, 12 nodes in 3 zones", make_nodes(12, zones=3), list(map(write_pod, pods.values()))
    )


def play(control: ControlPlane, scene: Scene, name: str) -> Outcome:
    """Has the scheduler *name* play *scene*, and removes everything."""
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(control, Path(directory))
        try:
            cluster.api.create(
                config_map("yunikorn-defaults", DEFAULTS),
                config_map("yunikorn-configs", {"queues.yaml": scene.queues}),
                *scene.nodes,
            )
            cluster.kubelet.start()
            for pod in scene.pods:
                cluster.api.create(pod)
            with SCHEDULERS[name](cluster):
                seconds = _wait(cluster, scene.pods, scene.running)
                if scene.later:
                    cluster.api.create(*scene.later)
                    seconds = _wait(cluster, scene.later, len(scene.later))
                pods = cluster.api.pods()
                return Outcome(
                    _count(pods, scene.later or scene.pods),
                    sum(phase_of(pod) == "Failed" for pod in pods),
                    len(cluster.judge.find_violations()),
                    len(find_waiting(pods, cluster.api.read_all("Node"))),
                    seconds,
                )
        finally:
            cluster.end()
            cluster.clear()


def _wait(cluster: Cluster, wanted: list[Object], count: int) -> float:
    """Waits until *count* of the pods *wanted* run (0: all) or nothing changes any more, and returns the seconds until
    the last change."""
    began = changed = time.monotonic()
    state: dict[str, str] = {}
    while time.monotonic() - changed < QUIET_S and time.monotonic() - began < LONGEST_S:
        pods = cluster.api.pods()
        now = {uid_of(pod): phase_of(pod) for pod in pods}
        if now != state:
            state, changed = now, time.monotonic()
        if _count(pods, wanted) == (count or len(wanted)):
            break
        time.sleep(0.2)
    return changed - began


def _count(pods: Iterable[Object], wanted: Iterable[Object]) -> int:
    """Returns how many of the pods *wanted* run or have run well."""
    names = set(map(name_of, wanted))
    return sum(phase_of(pod) in {"Running", "Succeeded"} and name_of(pod) in names for pod in pods)


def show(outcomes: list[Outcome]) -> str:
    """Returns the cell of a table for all rounds of a scene."""
    values = [sorted({getattr(each, what) for each in outcomes}) for what in Outcome._fields[:-1]]
    texts = [str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}" for found in values]
    seconds = median(each.seconds for each in outcomes)
    return f"{texts[0]} run, {texts[1]} failed, {texts[2]} wrong, {texts[3]} idle, {seconds:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=[""], help="scenes whose names have one of these texts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, run_control_plane(Path(directory)) as control:
        print("| Scene | YuniKorn | Kornel |\n|---|---|---|", flush=True)
        for scene in build_scenes():
            if any(text in scene.name for text in options.only):
                outcomes: dict[str, list[Outcome]] = {name: [] for name in SCHEDULERS}
                for _ in range(options.rounds):
                    for name, found in outcomes.items():
                        found.append(play(control, scene, name))
                cells = " | ".join(map(show, outcomes.values()))
                print(f"| {scene.name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
