"""The files of the core whose code one placed ask, one preemption and one idle cycle run through, with the functions
that are called.

``python -m tests.bench.visited_files`` prints the numbers, ``--functions preemption`` what is called in each
file. Everything from the bytes of a message to the bytes of the answer counts, on an engine that has
been warmed up; code that only runs when a module is imported does not.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import kornel.core
from kornel.core.domain.commands import RegisterManager, TerminationType
from kornel.core.domain.effects import Allocated, Released
from kornel.core.engine.engine import Engine
from kornel.core.service.calls.plain_asks import PlainReader
from kornel.core.service.wire.scheduler_wire import Decoder, Encoder
from kornel.si.v1 import si_pb2 as si

CORE: Final = str(Path(kornel.core.__file__).parent) + os.sep
RM: Final = "rm"
SECOND_NS: Final = 1_000_000_000

CONFIG: Final = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: owed
            resources: {guaranteed: {vcore: 4000m}}
            properties: {preemption.delay: 1s}
          - name: batch
"""

Visits = dict[str, Counter[str]]
"""The functions that were called, and how often, by file."""


def visit(act: Callable[[], Any]) -> Visits:
    """Returns what *act* calls in the core."""
    found: Visits = defaultdict(Counter)

    def trace(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if name.startswith(CORE):
            found[name.removeprefix(CORE)][frame.f_code.co_qualname] += 1

    others = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(others)
    return dict(found)


def count_calls(visits: Visits) -> int:
    """Returns the number of calls in *visits*."""
    return sum(functions.total() for functions in visits.values())


def visit_idle_cycle() -> Visits:
    """Returns what a cycle calls in which nobody has anything to do."""
    small = Small()
    small.send_asks("batch", "k1", "k2")
    small.wait(1.0)
    return visit(lambda: small.engine.cycle(small.now_ns + SECOND_NS, 100))


class Small:
    """A core without its shell: four nodes of four cores, an application in each of two queues."""

    def __init__(self) -> None:
        self.engine = Engine()
        self._decoder, self._encoder = Decoder(), Encoder()
        self._plain = PlainReader(self._decoder)
        self.now_ns = 0
        self.engine.apply(RegisterManager(RM, CONFIG), 0)
        room = si.Resource(resources={"vcore": si.Quantity(value=4_000)})
        nodes = [si.NodeInfo(nodeID=f"n{at}", action=si.NodeInfo.CREATE, schedulableResource=room) for at in range(4)]
        for command in self._decoder.node_commands(si.NodeRequest(rmID=RM, nodes=nodes)):
            self.engine.apply(command, 0)
        owner = si.UserGroupInformation(user="u", groups=["g"])
        new = [
            si.AddApplicationRequest(applicationID=name, queueName=f"root.{name}", ugi=owner)
            for name in ("owed", "batch")
        ]
        for more in self._decoder.application_commands(si.ApplicationRequest(rmID=RM, new=new)):
            self.engine.apply(more, 0)

    def send_asks(self, application: str, *keys: str, preempts: bool = False) -> list[Any]:
        """Returns what the core decides once *application* has sent an ask of one core under each of *keys*."""
        size = si.Resource(resources={"vcore": si.Quantity(value=1_000)})
        policy = si.PreemptionPolicy(allowPreemptSelf=True, allowPreemptOther=preempts)
        asks = [
            si.Allocation(allocationKey=key, applicationID=application, resourcePerAlloc=size, preemptionPolicy=policy)
            for key in keys
        ]
        request = self._plain.read(si.AllocationRequest(rmID=RM, allocations=asks).SerializeToString())
        assert request is not None
        effects: list[Any] = []
        for command in self._decoder.allocation_commands(request.message, request.specs):
            effects += self.engine.apply(command, self.now_ns)
        return self._answer([*effects, *self._decide()])

    def wait(self, seconds: float) -> list[Any]:
        """Returns what the core decides after *seconds*."""
        self.now_ns += round(seconds * SECOND_NS)
        return self._answer(self._decide())

    def confirm(self, victims: list[Released]) -> list[Any]:
        """Returns what the core decides once *victims* have left."""
        releases = [
            si.AllocationRelease(
                partitionName=victim.partition,
                applicationID=victim.application_id,
                allocationKey=victim.key,
                terminationType=si.TerminationType.ValueType(TerminationType.PREEMPTED_BY_SCHEDULER),
            )
            for victim in victims
        ]
        message = si.AllocationRequest(rmID=RM, releases=si.AllocationReleasesRequest(allocationsToRelease=releases))
        effects: list[Any] = []
        for command in self._decoder.allocation_commands(message):
            effects += self.engine.apply(command, self.now_ns)
        return self._answer([*effects, *self._decide()])

    def _decide(self) -> list[Any]:
        effects: list[Any] = []
        more = True
        while more:
            result = self.engine.cycle(self.now_ns, 100)
            effects += result.effects
            more = result.more
        if self.engine.preemption_interval_ns is not None:
            effects += self.engine.preempt(self.now_ns)
        return effects

    def _answer(self, effects: list[Any]) -> list[Any]:
        for kind in (Allocated, Released):
            run = [effect for effect in effects if isinstance(effect, kind)]
            if run:
                self._encoder.encode_allocations(run)
        return effects


def visit_for_ask() -> Visits:
    """Returns what one ask for which there is room calls."""
    small = Small()
    small.send_asks("batch", "k1", "k2")
    found: list[Any] = []
    visits = visit(lambda: found.extend(small.send_asks("batch", "k3")))
    assert sum(isinstance(effect, Allocated) for effect in found) == 1
    return visits


def visit_for_preemption() -> Visits:
    """Returns what one ask calls for which a victim has to leave, from its arrival to its place."""
    small = Small()
    small.send_asks("batch", *(f"b{at}" for at in range(16)))

    def act() -> None:
        small.send_asks("owed", "k", preempts=True)
        victims: list[Released] = []
        while not victims:
            assert small.now_ns < 60 * SECOND_NS, "nobody was asked to leave"
            victims = [effect for effect in small.wait(1.0) if isinstance(effect, Released)]
        assert any(isinstance(effect, Allocated) for effect in small.confirm(victims))

    return visit(act)


VISITS: Final = {"ask": visit_for_ask, "preemption": visit_for_preemption, "idle": visit_idle_cycle}


def main() -> None:
    """Prints what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.visited_files", description=__doc__)
    parser.add_argument("--functions", choices=list(VISITS), help="print the functions that are called")
    given = parser.parse_args()
    for name in [given.functions] if given.functions else VISITS:
        found = VISITS[name]()
        print(f"{name}: {len(found)} files, {count_calls(found)} calls")
        for file, functions in sorted(found.items()) if given.functions else ():
            called = ", ".join(f"{function} {times}" for function, times in functions.most_common())
            print(f"  {file}: {called}")


if __name__ == "__main__":
    main()
