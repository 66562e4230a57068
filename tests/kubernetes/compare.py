"""Compares YuniKorn's scheduler, shim and core in one process, with the same shim at a Kornel core.

Both schedule the same pods at the same API server, one after the other, several times. Nodes and pods are there before
a scheduler starts, so that it does not wait for pods to come. ``kubernetes.qps`` limits the binds of both alike.

Run it as ``python -m tests.kubernetes.compare``, with nothing beside it. With ``--singles 300 --nodes 50 --rounds 3``
it measures instead how long single pods wait, in a few minutes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.go.toolchain import SHIM
from tests.kubernetes.api import make_node, make_pod, make_pods, name_of, node_of, phase_of
from tests.kubernetes.cluster import DEFAULTS, QUEUES, TESTER, Cluster, ControlPlane, config_map, run_control_plane
from tests.kubernetes.programs import Program, build_program

APPLICATIONS: Final = 10
WARMING: Final = 20
"""The number of single pods before those that count."""
PATIENCE_S: Final = 60.0
"""After the last pod that began to run: a scheduler has given up the rest by then."""


@dataclass(frozen=True)
class Round:
    """How one scheduler did.

    *seconds*: from the start of its processes until the last pod ran. *bound_per_s*: pods between the hundredth and the
    last one that ran. *processor_s*: of each of its processes, the core's before the shim's. *lost*: pods that did not
    run, because the scheduler tried to bind them once and in vain.
    """

    seconds: float
    bound_per_s: float
    processor_s: tuple[float, ...]
    lost: int


@cache
def build_upstream() -> Path:
    """Returns YuniKorn's own scheduler, built from the modules that the Kubernetes shim is built from."""
    return build_program(SHIM, "github.com/apache/yunikorn-k8shim/pkg/cmd/shim", "yunikorn-scheduler")


@contextmanager
def run_upstream(cluster: Cluster) -> Iterator[list[int]]:
    """Runs YuniKorn's scheduler, and yields the numbers of its processes."""
    environment = {"KUBECONFIG": str(cluster.control.write_kubeconfig(TESTER)), "NAMESPACE": "yunikorn"}
    program = Program([str(build_upstream())], cluster.directory / "upstream.log", environment)
    program.start()
    try:
        yield [program.pid]
    finally:
        program.end()


@contextmanager
def run_kornel(cluster: Cluster) -> Iterator[list[int]]:
    """Runs a core and a shim, and yields the numbers of their processes."""
    cluster.core.start()
    shim = cluster.add_shim("shim")
    shim.program.start()
    try:
        yield [cluster.core.program.pid, shim.program.pid]
    finally:
        shim.end()
        cluster.core.end()


SCHEDULERS: Final[dict[str, Callable[[Cluster], AbstractContextManager[list[int]]]]] = {
    "yunikorn": run_upstream,
    "kornel": run_kornel,
}


@contextmanager
def made_cluster(control: ControlPlane, nodes: int, **defaults: str) -> Iterator[Cluster]:
    """Yields a cluster with nodes, kubelets and ConfigMaps, and removes everything afterwards."""
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(control, Path(directory))
        cluster.api.create(
            config_map("yunikorn-defaults", {**DEFAULTS, **defaults}),
            config_map("yunikorn-configs", {"queues.yaml": QUEUES}),
        )
        try:
            cluster.api.create(*(make_node(f"node-{number}", cpu="16") for number in range(nodes)))
            cluster.kubelet.start()
            yield cluster
        finally:
            cluster.end()
            cluster.clear()


def measure(control: ControlPlane, name: str, nodes: int, pods: int, qps: int) -> Round:
    """Has the scheduler *name* place all pods, and removes everything."""
    limits = {"kubernetes.qps": str(qps), "kubernetes.burst": str(qps)}
    with made_cluster(control, nodes, **limits) as cluster:
        for number in range(APPLICATIONS):
            cluster.api.create(*make_pods(f"wave-{number}", pods // APPLICATIONS))
        return _watch(cluster, name, pods)


def measure_singles(control: ControlPlane, name: str, nodes: int, pods: int, interval: str) -> list[float]:
    """Returns for each of *pods*, made one after the other, the milliseconds from the request that made it until a
    watch of the API server said that it was bound."""
    took_ms: list[float] = []
    with (
        made_cluster(control, nodes, **{"service.schedulingInterval": interval}) as cluster,
        SCHEDULERS[name](cluster),
        cluster.api.watch_pods(cluster.api.list_pods()[1]) as events,
        ThreadPoolExecutor(1) as making,
    ):
        for number in range(WARMING + pods):
            pod = make_pod(f"single-{number}", "singles")
            began = time.monotonic()
            making.submit(cluster.api.create, pod)
            next(each for _, each in events if name_of(each) == name_of(pod) and node_of(each))
            if number >= WARMING:
                took_ms.append((time.monotonic() - began) * 1000)
            next(each for _, each in events if name_of(each) == name_of(pod) and phase_of(each) == "Running")
    return took_ms


def _watch(cluster: Cluster, name: str, pods: int) -> Round:
    """Starts the scheduler, and returns once all *pods* run.

    The log of the kubelets is read, since questions would cost the API server time.
    """
    began = ended = time.monotonic()
    first, started = 0.0, 0
    with SCHEDULERS[name](cluster) as processes:
        while started < pods and time.monotonic() - ended < PATIENCE_S:
            time.sleep(0.2)
            seen, started = started, cluster.kubelet.printed().count('"started"')
            if started > seen:
                ended = time.monotonic()
                first = first or (ended if started >= 100 else 0.0)
        spent = tuple(read_processor_s(process) for process in processes)
    return Round(ended - began, (started - 100) / (ended - first), spent, pods - started)


def read_processor_s(process: int) -> float:
    """Returns the processor time of a process in seconds, that of its ended children included."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def percentile(values: list[float], percent: int) -> float:
    """Returns the value that so many percent of *values* do not exceed."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def compare_rates(control: ControlPlane, options: argparse.Namespace) -> None:
    """Prints how long each scheduler needs for all pods, and the ratio of the medians."""
    rounds: dict[str, list[Round]] = {name: [] for name in SCHEDULERS}
    for _ in range(options.rounds):
        for name, done in rounds.items():
            done.append(measure(control, name, options.nodes, options.pods, options.qps))
            print(
                f"{name:9}  {done[-1].seconds:6.1f} s until all run  {done[-1].bound_per_s:6.0f} pods/s"
                f"  {' + '.join(f'{spent:.1f}' for spent in done[-1].processor_s)} s of processors"
                f"  {done[-1].lost} lost",
                flush=True,
            )
    theirs, ours = (statistics.median(each.bound_per_s for each in rounds[name]) for name in SCHEDULERS)
    print(f"medians: {theirs:.0f} and {ours:.0f} pods/s, ratio {ours / theirs:.2f}")


def compare_singles(control: ControlPlane, options: argparse.Namespace) -> None:
    """Prints how long single pods wait for their binding at each scheduler, and the difference of the medians."""
    waits: dict[str, list[float]] = {name: [] for name in SCHEDULERS}
    for _ in range(options.rounds):
        for name in SCHEDULERS:
            took_ms = measure_singles(control, name, options.nodes, options.singles, options.interval)
            waits[name] += took_ms
            print(
                f"{name:9}  p50 {percentile(took_ms, 50):6.1f} ms  p99 {percentile(took_ms, 99):6.1f} ms"
                f"  load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    for percent in (10, 50, 90, 99):
        theirs, ours = (percentile(waits[name], percent) for name in SCHEDULERS)
        print(f"all rounds: p{percent} {theirs:.1f} and {ours:.1f} ms, difference {ours - theirs:+.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--qps", type=int, default=1000)
    parser.add_argument("--singles", type=int, help="make so many pods one after the other, and time each")
    parser.add_argument("--interval", default="10ms", help="service.schedulingInterval of the shim, with --singles")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, run_control_plane(Path(directory)) as control:
        (compare_rates if options.singles is None else compare_singles)(control, options)


if __name__ == "__main__":
    main()
