"""What ``kornel config preview`` tells of a file is what becomes of a working core that reads the file."""

from __future__ import annotations

import json
import queue
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.json_format import ParseDict

from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from kornel.v1 import configuration_pb2 as pb
from kornel.v1.status_pb2 import ExplainUserRequest, QueueStatus, UserStatus
from kornel.v1.status_pb2_grpc import StatusServiceStub
from tests.e2e.harness import allocation_request, application_request, ask, create, node_request
from tests.e2e.test_command import stopped
from tests.e2e.test_reload_command import Running, following
from tests.patience import PATIENCE_S
from tests.waiting import wait_until

HOUR_NS: Final = 3600 * 10**9
OWNERS: Final = {"root.a": "ann", "root.b": "bob", "root.c": "carl"}
HELD: Final = {"root.a": 6, "root.b": 3, "root.c": 1}
BEFORE: Final = """
partitions:
  - name: default
    preemption: {quotapreemptionenabled: true}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a
            resources: {max: {vcore: 8}}
            properties: {quota.preemption.delay: 1h}
          - name: b
          - name: c
"""
AFTER: Final = BEFORE.replace("vcore: 8", "vcore: 4").replace(
    "          - name: b\n          - name: c\n",
    "          - name: b\n            limits: [{limit: less, users: [bob], maxresources: {vcore: 2}}]\n",
)
Kind = pb.QueueChange.Kind


class Shim:
    """Streams to a core, and what came back on them."""

    def __init__(self, channel: grpc.Channel) -> None:
        stub = si_pb2_grpc.SchedulerStub(channel)
        self._requests: list[queue.SimpleQueue[Any]] = []
        self.nodes = self._open(stub.UpdateNode)
        self.applications = self._open(stub.UpdateApplication)
        self.allocations = self._open(stub.UpdateAllocation)

    def _open(self, method: Callable[..., Any]) -> Callable[[Any], Iterator[Any]]:
        requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._requests.append(requests)
        answers = method(iter(requests.get, None), timeout=4 * PATIENCE_S)

        def exchange(request: Any) -> Iterator[Any]:
            requests.put(request)
            return iter(answers)

        return exchange

    def close(self) -> None:
        for requests in self._requests:
            requests.put(None)

    def submit(self, request: si.ApplicationRequest) -> si.ApplicationResponse:
        """The verdict on the applications of *request*; state changes of others may come first."""
        answers = self.applications(request)
        verdict: si.ApplicationResponse = next(found for found in answers if found.accepted or found.rejected)
        return verdict

    def place(self, path: str) -> None:
        """An application called like its queue, with what HELD says."""
        request = application_request(path, queue=path)
        request.new[0].ugi.user = OWNERS[path]
        assert self.submit(request).accepted
        asks = [ask(f"{path}-{number}", path) for number in range(HELD[path])]
        answers = self.allocations(allocation_request(*asks))
        placed = 0
        while placed < len(asks):
            placed += len(next(answers).new)

    def run(self, name: str, path: str, sizes: list[int], style: str = "") -> None:
        """An application of ann's with one task of each size; with a style they are placeholders of one gang."""
        request = application_request(name, queue=path)
        request.new[0].gangSchedulingStyle = style
        assert self.submit(request).accepted
        asks = [ask(f"{name}-{at}", name, vcore=size) for at, size in enumerate(sizes)]
        for one in asks if style else ():
            one.placeholder, one.taskGroupName = True, "g"
        self.decisions = self.allocations(allocation_request(*asks))
        placed = 0
        while placed < len(asks):
            placed += len(next(self.decisions).new)


@contextmanager
def working_core(tmp_path: Path) -> Iterator[tuple[Running, Shim, grpc.Channel]]:
    file = tmp_path / "queues.yaml"
    file.write_text(BEFORE, encoding="utf-8")
    with following(tmp_path, file=file) as core, grpc.insecure_channel(core.address) as channel:
        shim = Shim(channel)
        assert next(shim.nodes(node_request(create("n1", vcore=100_000)))).accepted
        for path in OWNERS:
            shim.place(path)
        yield core, shim, channel
        shim.close()
        stopped(core.process, signal.SIGTERM)


def preview(core: Running, file: Path) -> pb.PreviewConfigurationResponse:
    """As the command tells it, in both its forms."""
    told = core.command("config", "preview", str(file))
    assert told.returncode == 0, told.stderr
    found = pb.PreviewConfigurationResponse()
    ParseDict(json.loads(core.command("config", "preview", str(file), "--json").stdout), found)
    for change in found.queues:
        assert change.path in told.stdout
    return found


def queues_of(core: Running) -> dict[str, QueueStatus]:
    return {found.path: found for found in core.status().partitions[0].queues}


def users_of(core: Running) -> dict[str, UserStatus]:
    return {found.user: found for found in core.status().partitions[0].users}


def test_what_was_told_is_what_happens(tmp_path: Path) -> None:
    """A max and a new limit below what is held, a queue that goes: told first, then seen in status and timers."""
    file = tmp_path / "after.yaml"
    file.write_text(AFTER, encoding="utf-8")
    with working_core(tmp_path) as (core, shim, channel):
        before = queues_of(core)
        impact = preview(core, file)
        assert queues_of(core) == before, "a preview changes nothing"

        assert {found.path: found.kind for found in impact.queues} == {
            "root.a": Kind.KIND_CHANGED,
            "root.b": Kind.KIND_CHANGED,
            "root.c": Kind.KIND_DRAINED,
        }
        (quota,) = impact.quota_excesses
        (limit,) = impact.limit_excesses
        (unplaced,) = impact.unplaced_applications
        (enforced,) = impact.enforcements
        assert (quota.path, quota.type, quota.already) == ("root.a", "vcore", False)
        assert (limit.path, limit.kind, limit.name, limit.already) == ("root.b", "user", "bob", False)
        assert (unplaced.application_id, unplaced.queue) == ("root.c", "root.c")
        assert enforced.path == "root.a"

        began_ns = time.time_ns()
        core.file.write_text(AFTER, encoding="utf-8")
        core.process.send_signal(signal.SIGHUP)
        wait_until(lambda: core.status().configuration_checksum == impact.checksum, "the file to hold")
        ended_ns = time.time_ns()

        after = queues_of(core)
        assert (after["root.a"].used["vcore"], after["root.a"].max["vcore"]) == (quota.used, quota.max)
        assert after["root.a"].used["vcore"] - after["root.a"].max["vcore"] == enforced.amounts["vcore"] == 2_000
        assert enforced.delay_ns == HOUR_NS
        start_ns = after["root.a"].quota_preemption_start_ns
        assert began_ns + enforced.delay_ns <= start_ns <= ended_ns + enforced.delay_ns
        assert [p for p, found in after.items() if found.HasField("quota_preemption_start_ns")] == [enforced.path]

        explained = StatusServiceStub(channel).ExplainUser(ExplainUserRequest(user=limit.name), timeout=PATIENCE_S)
        (level,) = explained.levels
        assert (level.path, level.max["vcore"], level.used["vcore"]) == (limit.path, limit.limit, limit.used)
        assert users_of(core)["bob"].used["vcore"] == limit.used

        assert {path for path, found in after.items() if found.state == "Draining"} == {unplaced.queue}
        assert after["root.c"].application_count == before["root.c"].application_count == 1, "it goes on running"
        again = shim.submit(application_request("again", queue=unplaced.queue))
        assert [found.applicationID for found in again.rejected] == ["again"]

        held = {path: found.used["vcore"] for path, found in after.items() if path in HELD}
        assert held == {path: 1_000 * number for path, number in HELD.items()}, "nothing running is touched yet"
        shim.allocations(allocation_request(ask("more-a", "root.a"), ask("more-b", "root.b"), ask("more-c", "root.c")))
        wait_until(lambda: queues_of(core)["root.c"].used["vcore"] == 2_000, "the queue that drains to go on")
        waiting = queues_of(core)
        assert [waiting[path].pending["vcore"] for path in ("root.a", "root.b")] == [1_000, 1_000]
        assert [waiting[path].used["vcore"] for path in ("root.a", "root.b")] == [6_000, 3_000]

        assert not preview(core, file).changed
        file.write_text(AFTER + "          - name: d\n", encoding="utf-8")
        later = preview(core, file)
        assert [found.already for found in later.quota_excesses] == [True]
        assert [found.already for found in later.limit_excesses] == [True]
        assert not later.unplaced_applications, "it has lost its place already"
        assert not later.enforcements, "the timer runs already"


QUOTAS: Final = """
partitions:
  - name: default
    preemption: {quotapreemptionenabled: true}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: p
            resources: {max: {vcore: MOST}}
            properties: {quota.preemption.delay: 1s}
            queues:
              - {name: a, resources: {max: {vcore: LEAF}}}
              - {name: b}
          - name: c
            resources: {guaranteed: {vcore: 1}, max: {vcore: OWN}}
            properties: {quota.preemption.delay: 1s}
"""


def quotas(most: int, leaf: int, own: int) -> str:
    return QUOTAS.replace("MOST", str(most)).replace("LEAF", str(leaf)).replace("OWN", str(own))


def test_who_would_have_to_leave_is_asked_to(tmp_path: Path) -> None:
    """Several queues due at once, a gang that leaves as a whole, and a queue that nobody can leave: the command names
    those whom the core then asks to leave, from which leaf, and what stays and why."""
    file, in_force = tmp_path / "after.yaml", tmp_path / "queues.yaml"
    in_force.write_text(quotas(60, 20, 20), encoding="utf-8")
    file.write_text(quotas(18, 4, 2), encoding="utf-8")
    with following(tmp_path, file=in_force) as core, grpc.insecure_channel(core.address) as channel:
        shim = Shim(channel)
        assert next(shim.nodes(node_request(create("n1", vcore=100_000)))).accepted
        shim.run("a", "root.p.a", [4_000, 4_000])
        shim.run("gang", "root.p.b", [10_000] * 4, style="Hard")
        shim.run("c", "root.c", [3_000])

        told = core.command("config", "preview", str(file)).stdout
        found = preview(core, file).enforcements
        assert [(one.path, one.amounts["vcore"], one.freed["vcore"], one.unmet["vcore"]) for one in found] == [
            ("root.p.a", 4_000, 4_000, 0),
            ("root.c", 1_000, 0, 1_000),
            ("root.p", 26_000, 40_000, 0),
        ]
        for line in (
            "root.p.a: a-0 would have to leave",
            "root.p: gang-0, gang-1, gang-2, gang-3 of root.p.b would have to leave",
            "root.c stays above its max: root.c is guaranteed vcore=1 and holds vcore=3",
        ):
            assert line in told
        assert [victim.user for one in found for victim in one.victims] == ["ann"] * 5
        assert told.index("application  leave") < told.index("a-0 would have to leave")

        in_force.write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
        core.process.send_signal(signal.SIGHUP)
        released: list[str] = []
        while len(released) < 5:
            released += [one.allocationKey for one in next(shim.decisions).released]
        assert released == [victim.key for one in found for victim in one.victims]
        shim.close()
        stopped(core.process, signal.SIGTERM)


def test_a_wider_file_tells_of_no_harm(tmp_path: Path) -> None:
    """Raising a max harms nobody, and what waited for it is placed."""
    file = tmp_path / "wider.yaml"
    file.write_text(BEFORE.replace("vcore: 8", "vcore: 80"), encoding="utf-8")
    with working_core(tmp_path) as (core, shim, _):
        shim.allocations(allocation_request(*[ask(f"more-{number}", "root.a") for number in range(5)]))
        wait_until(lambda: queues_of(core)["root.a"].used["vcore"] == 8_000, "the queue to be full")
        impact = preview(core, file)
        assert [found.path for found in impact.queues] == ["root.a"]
        harm = (impact.quota_excesses, impact.limit_excesses, impact.enforcements, impact.unplaced_applications)
        assert not any(harm)
        core.file.write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
        core.process.send_signal(signal.SIGHUP)
        wait_until(lambda: queues_of(core)["root.a"].used["vcore"] == 11_000, "all asks to be placed")
