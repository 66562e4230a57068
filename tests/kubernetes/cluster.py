"""A cluster of Kubernetes with Kornel as its scheduler: an API server, kubelets, a core, and shims."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.go.toolchain import ROOT
from tests.kubernetes.api import (
    NAMESPACE,
    SYSTEM,
    Api,
    Object,
    is_live,
    is_placeholder,
    make_node,
    name_of,
    node_of,
    phase_of,
    uid_of,
)
from tests.kubernetes.judge import Judge, Watcher, find_waiting
from tests.kubernetes.programs import Program, build_kube, build_shim, wait_for
from tests.ports import reserve_port

TESTER: Final = "tester"
SHIM: Final = "shim"
TOKENS: Final = f"{TESTER},tester,0,system:masters\n{SHIM},system:serviceaccount:{SYSTEM}:kornel-shim,1\n"
"""Who may do everything, and who may do what the manifests of the shim allow it."""
ROLES: Final = ROOT / "deploy/kubernetes/shim/roles.yaml"
QUEUES: Final = """
partitions:
  - name: default
    placementrules:
      - {name: provided, create: false}
      - {name: tag, value: namespace, create: true}
    queues:
      - name: root
        submitacl: "*"
"""
DEFAULTS: Final = {
    "kubernetes.qps": "1000",
    "kubernetes.burst": "1000",
    "service.schedulingInterval": "200ms",
}
KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
clusters: [{{name: test, cluster: {{server: "{address}", insecure-skip-tls-verify: true}}}}]
users: [{{name: test, user: {{token: {token}}}}}]
contexts: [{{name: test, context: {{cluster: test, user: test}}}}]
current-context: test
"""


class ControlPlane:
    """An API server on a port of its own. It keeps what it was told when it is started again."""

    def __init__(self, directory: Path) -> None:
        port = reserve_port()
        self.address = f"https://127.0.0.1:{port}"
        self._directory = directory
        tokens = directory / "tokens.csv"
        tokens.write_text(TOKENS)
        command = [str(build_kube()), "apiserver", "-directory", str(directory), "-port", str(port)]
        self.program = Program([*command, "-tokens", str(tokens)], directory / "apiserver.log")
        self.api = Api(self.address, TESTER)

    def start(self) -> None:
        self.program.start()
        self.program.wait_until(self.api.is_ready, "an API server")

    def write_kubeconfig(self, token: str) -> Path:
        """Returns the path of a file by which a program reaches the API server as whoever has *token*."""
        file = self._directory / f"kubeconfig-{token}"
        file.write_text(KUBECONFIG.format(address=self.address, token=token))
        return file

    def end(self) -> None:
        self.program.end()
        self.api.close()


class Core:
    """A core on ports of its own."""

    def __init__(self, directory: Path) -> None:
        grpc, rest = reserve_port(), reserve_port()
        self.address = f"127.0.0.1:{grpc}"
        self._rest = httpx.Client(base_url=f"http://127.0.0.1:{rest}/ws/v1", timeout=30)
        command = [sys.executable, "-m", "kornel", "serve", "--grpc", self.address, "--history", "off"]
        command += ["--rest-address", f"127.0.0.1:{rest}"]
        self.program = Program(command, directory / "core.log")

    def start(self) -> None:
        self.program.start()
        self.program.wait_until(self._is_ready, "a core")

    def _is_ready(self) -> bool:
        try:
            return self._rest.get("/partitions").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def end(self) -> None:
        self.program.end()
        self._rest.close()

    def read(self, path: str) -> Any:
        return self._rest.get(path).raise_for_status().json()

    def nodes_by_allocation(self) -> dict[str, str] | None:
        """Returns the node of every allocation, by its key, which is the UID of a pod; ``None``: the core has been
        started again, and no shim has registered yet."""
        answer = self._rest.get("/partition/default/nodes")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        nodes = answer.raise_for_status().json()
        return {each["allocationKey"]: node["nodeID"] for node in nodes for each in node.get("allocations") or ()}


class Shim:
    """A Kubernetes shim, with its metrics and health."""

    def __init__(self, name: str, directory: Path, kubeconfig: Path, core: str, *options: str) -> None:
        port = reserve_port()
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10)
        command = [str(build_shim()), "--core", core, "--listen", f"127.0.0.1:{port}", "--identity", name, *options]
        environment = {"KUBECONFIG": str(kubeconfig), "NAMESPACE": SYSTEM}
        self.program = Program(command, directory / f"{name}.log", environment)

    def start(self) -> None:
        """Starts the shim, and returns once it schedules."""
        self.program.start()
        self.program.wait_until(lambda: self.health() == "schedules", "a shim that schedules")

    def health(self) -> str:
        try:
            return self._http.get("/healthz/ready").text.strip()
        except httpx.TransportError as error:
            return f"away: {error}"

    def metric(self, name: str) -> float:
        for line in self._http.get("/metrics").text.splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise KeyError(name)

    def end(self) -> None:
        self.program.end()
        self._http.close()


LIMITS: Final = ("max", "limit")
"""Words of a configuration whose queues may keep pods waiting beside room."""


class Cluster:
    """One API server with kubelets, one core, and as many shims as a test starts. A judge follows its pods."""

    def __init__(self, control: ControlPlane, directory: Path) -> None:
        self.control = control
        self.api = control.api
        self.directory = directory
        self.core = Core(directory)
        self.shims: list[Shim] = []
        command = [str(build_kube()), "kubelet", "-kubeconfig", str(control.write_kubeconfig(TESTER))]
        self.kubelet = Program(command, directory / "kubelet.log")
        self.judge = Judge()
        self._watcher = Watcher(self.judge, control.address, TESTER)
        self._queues = ""

    def start(self, queues: str = QUEUES, options: Sequence[str] = (), **defaults: str) -> Shim:
        """Starts everything, with a first shim. Nodes that were made before are known to it at once."""
        self.api.create(
            config_map("yunikorn-defaults", {**DEFAULTS, **defaults}),
            config_map("yunikorn-configs", {"queues.yaml": queues}),
        )
        self._queues = queues
        self.kubelet.start()
        self.core.start()
        shim = self.add_shim("shim-a", *options)
        shim.start()
        return shim

    def add_shim(self, name: str, *options: str) -> Shim:
        shim = Shim(name, self.directory, self.control.write_kubeconfig(SHIM), self.core.address, *options)
        self.shims.append(shim)
        return shim

    def end(self) -> None:
        for shim in self.shims:
            shim.end()
        self.core.end()
        self.kubelet.end()
        self._watcher.stop()

    def add_nodes(self, count: int, **options: Any) -> None:
        self.api.create(*(make_node(f"node-{number}", **options) for number in range(count)))

    def wait_for_pods(
        self, application: str, count: int, phase: str = "Running", patience_s: float = 120
    ) -> list[Object]:
        """Returns the pods of an application, without placeholders, once *count* of them are in *phase*."""
        found: list[Object] = []

        def judge() -> object:
            pods = self.api.pods(application)
            found[:] = [pod for pod in pods if phase_of(pod) == phase and not is_placeholder(pod)]
            return len(found) == count or Counter((phase_of(pod), is_placeholder(pod)) for pod in pods)

        wait_for(judge, f"{count} pods of {application} in phase {phase}")
        return list(found)

    def wait_until_gone(self, application: str) -> None:
        wait_for(lambda: not self.api.pods(application) or "pods are left", f"{application} to go")

    def reports(self) -> list[dict[str, str]]:
        """Returns what the kubelets did, in order."""
        lines = self.kubelet.printed().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def find_differences(self) -> list[str]:
        """Returns where the API server's books and the core's differ, as sentences."""
        pods = self.api.pods()
        names = {uid_of(pod): name_of(pod) for pod in pods}
        ours = (pod for pod in pods if pod["spec"]["schedulerName"] == "yunikorn")
        bound = {uid_of(pod): node for pod in ours if is_live(pod) and (node := node_of(pod))}
        booked = self.core.nodes_by_allocation()
        if booked is None:
            return ["no shim is registered at the core"]
        return [
            f"{names.get(key, key)}: bound to {bound.get(key)}, booked on {booked.get(key)}"
            for key in sorted(bound.keys() | booked.keys())
            if bound.get(key) != booked.get(key)
        ]

    def check_books(self) -> None:
        """Fails unless the books agree before long, nothing was started twice or on a node without room, no binding
        broke a rule, and in the end nobody waits whom a node with room admits."""
        wait_for(lambda: not (differences := self.find_differences()) or differences[:5], "the books to agree")
        reports = self.reports()
        refused = [report for report in reports if report["what"] == "refused"]
        assert not refused, refused
        started = Counter(report["uid"] for report in reports if report["what"] == "started")
        assert not [uid for uid, times in started.items() if times > 1]
        wait_for(lambda: self.judge.knows(self.api.pods()), "the judge to have seen all pods")
        if not any(word in self._queues for word in LIMITS):
            wait_for(lambda: not (found := self.find_waiting()) or found[:5], "nobody to wait beside room")
        self.check_bindings()

    def check_bindings(self) -> None:
        """Fails if a binding broke a rule of Kubernetes at its moment."""
        assert not (found := self.judge.find_violations()), found[:5]

    def find_waiting(self) -> list[str]:
        """Returns who waits although a node with room admits it now."""
        return find_waiting(self.api.pods(), self.api.read_all("Node"))

    def clear(self) -> None:
        """Removes everything that a test has made from the API server."""
        grace = {"gracePeriodSeconds": "0"}
        for kind in ("Pod", "Node", "ConfigMap", "Lease"):
            self.api.delete(kind, *map(name_of, self.api.read_all(kind)), **grace)
        made = [name for name in map(name_of, self.api.read_all("PriorityClass")) if not name.startswith("system-")]
        self.api.delete("PriorityClass", *made)
        wait_for(lambda: not self.api.pods() or "pods are left", "the cluster to be empty")


def config_map(name: str, data: dict[str, str]) -> Object:
    return {"kind": "ConfigMap", "metadata": {"name": name, "namespace": SYSTEM}, "data": data}


@contextmanager
def run_control_plane(directory: Path) -> Iterator[ControlPlane]:
    """Runs an API server that keeps its state in *directory*, with what the shim needs."""
    control = ControlPlane(directory)
    try:
        control.start()
        _prepare(control.api)
        yield control
    finally:
        control.end()


def _prepare(api: Api) -> None:
    """Makes the namespaces, and lets the shim do what its manifests say and no more."""
    for name in (NAMESPACE, SYSTEM):
        api.create({"kind": "Namespace", "metadata": {"name": name}})
    api.create(*yaml.safe_load_all(ROLES.read_text()))


def show_logs(directory: Path, length: int = 4000) -> None:
    """Prints the end of every log, for the report of a failure."""
    for log in sorted(directory.glob("*.log")):
        print(f"--- {log.name}\n{log.read_text(errors='replace')[-length:]}")


def keep_logs(request: pytest.FixtureRequest, directory: Path) -> None:
    """Prints the logs where the test has failed."""
    report = getattr(request.node, "report_of_call", None)
    if report is not None and report.failed:
        show_logs(directory)
