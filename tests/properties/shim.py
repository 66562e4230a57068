"""A shim that does anything at any time, and knows only what it was told.

A history is a list of operations, each a few small numbers: the first says what to do, the others with what. So the
same history can come from Hypothesis, which shrinks it, or from a seeded generator. The shim keeps its own view of
every request from the answers alone; the engine must agree with it after every step.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from kornel.core.domain.application_states import AppState
from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationRef,
    ApplicationSpec,
    Command,
    NodeAction,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.effects import (
    Allocated,
    AllocationRejected,
    ApplicationAccepted,
    ApplicationUpdated,
    AskReleased,
    Effect,
    Released,
)
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.engine.gangs import replacement
from kornel.core.state.books import audit
from kornel.core.state.partition_state import PartitionState
from tests.properties.held_room import has_room
from tests.properties.lending import is_kept_below

RM: Final = "rm"
PARTITION: Final = "[rm]default"
SECOND: Final = 10**9
WIDTH: Final = 6
"""Numbers of one operation."""

Operation = tuple[int, ...]
T = TypeVar("T")

LEAVES: Final = ("root.p.a", "root.p.b", "root.q", "root.r")
NODES: Final = tuple(f"n{number}" for number in range(5))
APPLICATIONS: Final = tuple(f"app{number}" for number in range(6))
KEYS: Final = tuple(f"k{number}" for number in range(40))
JUMPS_NS: Final = (SECOND // 10, SECOND, 2 * SECOND, 16 * SECOND, 31 * SECOND, 700 * SECOND, 3700 * SECOND)


def configuration(variant: int, *, quota: bool = True) -> str:
    """One of a few configurations of the same leaves. Some leave the last one to be made by placement.

    With *quota* some of them enforce maxima by preemption, which differ from one to the next.
    """
    enforced = str(quota and variant % 3 > 0).lower()
    delay = f"quota.preemption.delay: {3 + variant % 2}s, quota.preemption.miss: '{variant % 4 * 20}'"
    timer = ("reset", "adjust")[variant // 2 % 2]
    policy = ("fifo", "fair")[variant % 2]
    nodes = ("fair", "binpacking")[variant // 2 % 2]
    mode = ("reach", "strict")[variant // 4 % 2]
    fence = ("default", "fence", "disabled")[variant // 8 % 3]
    listed = "- name: r" if variant % 5 else ""
    return f"""
partitions:
  - name: default
    nodesortpolicy: {{type: {nodes}}}
    preemption:
      guaranteemode: {mode}
      quotapreemptionenabled: {enforced}
      cycle: {{interval_ms: 1000, limit: 0.5, batch: 3}}
    placementrules: [{{name: provided, create: true}}]
    queues:
      - name: root
        submitacl: "*"
        properties: {{preemption.delay: 2s, {delay}, quota.preemption.timer: {timer}}}
        childtemplate: {{resources: {{guaranteed: {{vcore: 3m}}, max: {{memory: {18 + variant % 3}}}}}}}
        queues:
          - name: p
            resources: {{guaranteed: {{vcore: 16m, memory: 16}}, max: {{vcore: {24 - variant % 4}m}}}}
            queues:
              - name: a
                resources: {{guaranteed: {{vcore: 14m, memory: 12}}}}
                properties: {{application.sort.policy: {policy}}}
              - name: b
                resources: {{max: {{vcore: {20 - variant % 7 * 2}m, memory: 20}}}}
                properties: {{priority.offset: "{variant % 3}"}}
          - name: q
            resources: {{guaranteed: {{vcore: 6m}}, max: {{vcore: {24 - variant % 8 * 2}m}}}}
            properties: {{preemption.policy: {fence}, application.sort.policy: {policy}}}
          {listed}
"""


def random_history(seed: int, length: int) -> Iterator[Operation]:
    dice = random.Random(seed)
    for _ in range(length):
        yield tuple(dice.randrange(10_000) for _ in range(WIDTH))


class Shim:
    """Drives an engine by operations; ``log`` holds every call and its effects, as text."""

    def __init__(
        self,
        variant: int = 0,
        *,
        preemption: bool = True,
        gangs: bool = False,
        budget: int | None = None,
        engine: Engine | None = None,
    ) -> None:
        """*budget* fixes that of every slice; ``None`` draws it. With *gangs* two thirds of all asks are of one.

        *engine*: other than with default settings.
        """
        self.engine = engine or Engine()
        self.now_ns = 1_000 * SECOND
        self.log: list[str] = []
        self._preemption = preemption
        self._gangs = gangs
        self._budget = budget
        self.requests: dict[str, str | None] = {}
        """What the shim knows of: pending (``None``) or the node it runs on."""
        self.owners: dict[str, str] = {}
        self.states: dict[str, str] = {}
        """Live applications."""
        self.victims: dict[str, None] = {}
        """Told to end, not confirmed yet."""
        self.leaving: dict[str, int] = {}
        """Placeholders told to end, and why; not confirmed yet."""
        self.nodes: dict[str, None] = {}
        self._send(RegisterManager(RM, self.configured(variant)))
        for node_id in NODES[:3]:
            self.send_node(NodeSpec(node_id, NodeAction.CREATE, PARTITION, capacity=size(10, 10)))
        for number, application_id in enumerate(APPLICATIONS[:4]):
            self._send(UpdateApplications(RM, (self.owned(application_id, LEAVES[number], number),)))

    def configured(self, variant: int) -> str:
        """The configuration to register with, or to change to."""
        return configuration(variant % 24, quota=self._preemption)

    def owned(self, application_id: str, queue: str, number: int) -> ApplicationSpec:
        """An application to add; the number may choose whose it is."""
        return _application(application_id, queue, number)

    @property
    def state(self) -> PartitionState:
        state = self.engine.partition(PARTITION)
        assert state is not None
        return state

    def perform(self, operation: Operation) -> None:
        """One operation; all that draw numbers draw from it."""
        kind, *numbers = operation
        actions: tuple[Callable[[list[int]], None], ...] = (
            self._ask, self._ask, self._ask, self._ask, self._ask, self._ask, self._ask, self._ask,
            self._cycle, self._cycle, self._cycle,
            self._later, self._later, self._later, self._later,
            self._confirm, self._confirm, self._confirm,
            self._end, self._end, self._end, self._end, self._end, self._release_all,
            self._recover, self._bind, self._resize,
            self._foreign, self._release_foreign,
            self._create_node, self._create_node, self._change_node, self._remove_node,
            self._add_application, self._add_application, self._add_application, self._remove_application,
            self._preempt, self._configure, self._nonsense,
        )  # fmt: skip
        actions[kind % len(actions)](numbers)

    def settle(self) -> None:
        """Cycle until there is nothing left to decide now."""
        for _ in range(10_000):
            if not self.cycle(self._budget or 1000):
                return
        raise AssertionError("10,000 slices came to no end")

    def cycle(self, budget: int) -> bool:
        result = self.engine.cycle(self.now_ns, budget)
        self._hear(f"cycle {self.now_ns}", result.effects)
        return result.more

    def _send(self, command: Command) -> None:
        self._hear(f"{command} {self.now_ns}", self.engine.apply(command, self.now_ns))

    def _hear(self, cause: str, effects: Sequence[Effect]) -> None:
        self.log.append(cause)
        for effect in effects:
            self.log.append(repr(effect))
            match effect:
                case Allocated(spec, node_id, _):
                    self.requests[spec.key] = node_id
                case Released(_, _, key, TerminationType.PREEMPTED_BY_SCHEDULER, _):
                    self._check_told(key)
                    self.victims[key] = None
                case Released(_, _, key, TerminationType.TIMEOUT, _) if self.requests[key] is None:
                    self._forget(key)
                case Released(_, _, key, TerminationType.TIMEOUT | TerminationType.PLACEHOLDER_REPLACED as why, _):
                    self._check_told(key)
                    self.leaving[key] = why
                case AskReleased(_, _, key, TerminationType.TIMEOUT, _):
                    assert self.requests[key] is None, f"{key} runs"
                    self._forget(key)
                case Released(_, _, key, _, _):
                    self._forget(key)
                case AllocationRejected(key, _, _, _):
                    raise AssertionError(f"unexpected: {effect}")
                case ApplicationAccepted(application_id):
                    self.states[application_id] = "New"
                case ApplicationUpdated(application_id, "Expired", _, _):
                    pass
                case ApplicationUpdated(application_id, "Completed" | "Failed", _, _):
                    self.states.pop(application_id, None)
                    for key in [key for key, by in self.owners.items() if by == application_id]:
                        # What a removed application held is listed after its state.
                        if self.requests[key] is None:
                            self._forget(key)
                case ApplicationUpdated(application_id, now, _, _):
                    self.states[application_id] = now

    def _check_told(self, key: str) -> None:
        assert key not in self.victims, f"{key} was told to end twice"
        assert key not in self.leaving, f"{key} was told to end twice"
        assert self.requests[key] is not None, f"{key} does not run"

    def _forget(self, key: str) -> None:
        self.requests.pop(key, None)
        self.owners.pop(key, None)
        self.victims.pop(key, None)
        self.leaving.pop(key, None)

    def _spec(self, key: str, application_id: str, numbers: list[int], node_id: str = "") -> AllocationSpec:
        shape, traits, age, required = numbers[1:5]
        in_gang = self._gangs and traits // 180 % 3 > 0
        placeholder = in_gang and traits // 1080 % 2 == 0
        return AllocationSpec(
            key,
            application_id,
            PARTITION,
            size((4 if placeholder else 1) + shape % 5, shape // 7 % 4),
            priority=traits % 3,
            node_id=node_id,
            originator=traits // 3 % 5 == 0,
            allow_preempt_self=traits // 15 % 3 > 0,
            allow_preempt_other=self._preemption and traits // 45 % 4 > 0,
            created_s=self.now_ns // SECOND - age % 5 if age % 3 == 0 else None,
            required_node=pick(NODES, required // 30) if required % 30 == 0 else "",
            task_group=pick(("g", "h"), traits // 540) if in_gang else "",
            placeholder=placeholder,
            legacy=in_gang and not node_id and traits % 2 == 0,
        )

    def _ask(self, numbers: list[int]) -> None:
        """Up to four asks of one application in one request."""
        free = [key for key in KEYS if key not in self.requests][: 1 + numbers[0] // 7 % 4]
        willing = sorted(application_id for application_id, now in self.states.items() if now != "Failing")
        if not free or not willing:
            return
        application_id = pick(willing, numbers[0])
        self.requests.update(dict.fromkeys(free))
        self.owners.update(dict.fromkeys(free, application_id))
        specs = tuple(self._spec(key, application_id, numbers) for key in free)
        self._send(UpdateAllocations(RM, specs))
        if self._gangs and numbers[3] % 2 == 0:
            # As if predicates kept replacements off the nodes of their placeholders.
            replacement.serve(self.state, self.now_ns, 1000, stays=lambda *_: False)
            self._send(UpdateAllocations(RM))

    def _recover(self, numbers: list[int]) -> None:
        free = [key for key in KEYS if key not in self.requests]
        if not free or not self.states or not self.nodes:
            return
        key, application_id = free[0], pick(sorted(self.states), numbers[0])
        self.owners[key] = application_id
        node_id = pick(sorted(self.nodes), numbers[1])
        self._send(UpdateAllocations(RM, (self._spec(key, application_id, numbers, node_id),)))
        assert self.requests[key] == node_id

    def _bind(self, numbers: list[int]) -> None:
        pending = [key for key in self.requests if self.state.requests[key].pending]
        if not pending or not self.nodes:
            return
        key = pick(pending, numbers[0])
        known = self.state.requests[key]
        node_id = pick(sorted(self.nodes), numbers[1])
        spec = known.spec._replace(node_id=node_id, resources=known.shape.resources, legacy=False)
        self._send(UpdateAllocations(RM, (spec,)))
        assert self.requests[key] == node_id

    def _resize(self, numbers: list[int]) -> None:
        if not self.requests:
            return
        key = pick(list(self.requests), numbers[0])
        spec = self.state.requests[key].spec._replace(node_id="", resources=size(1 + numbers[1] % 7, numbers[2] % 4))
        self._send(UpdateAllocations(RM, (spec,)))

    def _cycle(self, numbers: list[int]) -> None:
        if self._budget is not None or numbers[0] % 2:
            self.settle()
        else:
            self.cycle(numbers[1] % 8)

    def _later(self, numbers: list[int]) -> None:
        self.now_ns += pick(JUMPS_NS, numbers[0])
        self.settle()

    def _preempt(self, numbers: list[int]) -> None:
        if self._preemption:
            self._hear(f"preempt {self.now_ns}", self.engine.preempt(self.now_ns))

    def _confirm(self, numbers: list[int]) -> None:
        """The shim did as it was told: some victim or placeholder is gone."""
        told = {**dict.fromkeys(self.victims, TerminationType.PREEMPTED_BY_SCHEDULER.value), **self.leaving}
        if told:
            key = pick(list(told), numbers[0])
            self._release(key, pick((told[key], TerminationType.STOPPED_BY_RM), numbers[1]))

    def _end(self, numbers: list[int]) -> None:
        """Up to four requests end, most of them running ones, for any reason a shim can give."""
        for turn in range(1 + numbers[2] % 4):
            running = [key for key, node_id in self.requests.items() if node_id is not None]
            among = list(self.requests) if numbers[3] % 4 == 0 else running
            if among:
                kinds = (1, 1, 1, 0, 2, 3, 4, 5, 99)
                self._release(pick(among, numbers[0] + turn), pick(kinds, numbers[1] + turn))

    def _release(self, key: str, termination: int) -> None:
        """Release *key*, pending or not, and expect what the contract says of this type."""
        owner, pending = self.owners[key], self.requests[key] is None
        request = self.state.requests[key]
        leaves = key in self.victims or key in self.leaving
        match termination:
            case TerminationType.SCHEDULING_FAILED_ON_RM:
                if not pending and not leaves and self.states[owner] in ("Accepted", "Running"):
                    self.requests[key] = None
            case TerminationType.TIMEOUT:
                if not pending:
                    self._forget(key)
            case TerminationType.PLACEHOLDER_REPLACED:
                if request.spec.placeholder:
                    self._forget(key)
            case _:
                if pending or termination == TerminationType.PREEMPTED_BY_SCHEDULER:
                    self._forget(key)
        self._send(UpdateAllocations(RM, releases=(ReleaseSpec(PARTITION, owner, key, termination),)))

    def _release_all(self, numbers: list[int]) -> None:
        if not self.states or numbers[2] % 3:
            return
        owner = pick(sorted(self.states), numbers[0])
        termination = pick((1, 2, 4), numbers[1])
        for key in [key for key, by in self.owners.items() if by == owner]:
            pending = self.requests[key] is None
            if (termination == TerminationType.STOPPED_BY_RM and pending) or (
                termination == TerminationType.TIMEOUT and not pending
            ):
                self._forget(key)
        self._send(UpdateAllocations(RM, releases=(ReleaseSpec(PARTITION, owner, "", termination),)))

    def _foreign(self, numbers: list[int]) -> None:
        if not self.nodes:
            return
        spec = AllocationSpec(
            f"f{numbers[0] % 3}",
            "",
            PARTITION,
            size(numbers[1] % 6, numbers[2] % 4),
            node_id=pick(sorted(self.nodes), numbers[3]),
            foreign="default",
        )
        self._send(UpdateAllocations(RM, (spec,)))

    def _release_foreign(self, numbers: list[int]) -> None:
        self._send(UpdateAllocations(RM, releases=(ReleaseSpec(PARTITION, "", f"f{numbers[0] % 3}"),)))

    def _create_node(self, numbers: list[int]) -> None:
        action = NodeAction.CREATE_DRAIN if numbers[1] % 4 == 0 else NodeAction.CREATE
        capacity = size(4 + numbers[2] % 10, 4 + numbers[3] % 10)
        self.send_node(NodeSpec(pick(NODES, numbers[0]), action, PARTITION, capacity=capacity))

    def _change_node(self, numbers: list[int]) -> None:
        kinds = (NodeAction.UPDATE, NodeAction.DRAIN_NODE, *[NodeAction.DRAIN_TO_SCHEDULABLE] * 3, NodeAction.UNKNOWN)
        capacity = size(5 + numbers[2] % 10, 5 + numbers[3] % 10)
        self.send_node(NodeSpec(pick(NODES, numbers[0]), pick(kinds, numbers[1]), PARTITION, capacity=capacity))

    def _remove_node(self, numbers: list[int]) -> None:
        if numbers[1] % 4 == 0:
            self.send_node(NodeSpec(pick(NODES, numbers[0]), NodeAction.DECOMISSION, PARTITION))

    def send_node(self, spec: NodeSpec) -> None:
        if spec.action in (NodeAction.CREATE, NodeAction.CREATE_DRAIN):
            self.nodes[spec.node_id] = None
        elif spec.action == NodeAction.DECOMISSION:
            self.nodes.pop(spec.node_id, None)
        self._send(UpdateNodes(RM, (spec,)))
        assert not [key for key, node_id in self.requests.items() if node_id and node_id not in self.nodes]

    def _add_application(self, numbers: list[int]) -> None:
        spec = self.owned(pick(APPLICATIONS, numbers[0]), pick(LEAVES, numbers[1]), numbers[2])
        self._send(UpdateApplications(RM, (spec,)))

    def _remove_application(self, numbers: list[int]) -> None:
        if numbers[1] % 3:
            return
        application_id = pick(APPLICATIONS, numbers[0])
        for key in [key for key, by in self.owners.items() if by == application_id and self.requests[key] is None]:
            self._forget(key)
        self._send(UpdateApplications(RM, remove=(ApplicationRef(application_id, PARTITION),)))
        self.states.pop(application_id, None)

    def _configure(self, numbers: list[int]) -> None:
        self._send(UpdateConfiguration(RM, self.configured(numbers[0])))

    def _nonsense(self, numbers: list[int]) -> None:
        """Entries that must be turned away, or ignored, without a trace."""
        before = len(self.state.requests)
        bad = (
            AllocationSpec("x", "nobody", PARTITION, size(1, 1)),
            AllocationSpec("", "nobody", PARTITION, size(1, 1)),
            AllocationSpec("x", pick(sorted(self.states) or ["nobody"], numbers[0]), PARTITION, None),
            AllocationSpec("x", "nobody", "[rm]nowhere", size(1, 1)),
            AllocationSpec("x", "", PARTITION, size(1, 1), node_id="nowhere", foreign="default"),
            AllocationSpec("x", pick(sorted(self.states) or ["nobody"], numbers[0]), PARTITION, size(-1, 1)),
        )
        effects = self.engine.apply(
            UpdateAllocations(RM, bad, releases=(ReleaseSpec(PARTITION, "nobody", "x"),)), self.now_ns
        )
        assert [type(effect) for effect in effects] == [AllocationRejected] * len(bad)
        assert len(self.state.requests) == before


def _application(application_id: str, leaf: str, number: int) -> ApplicationSpec:
    return ApplicationSpec(
        application_id,
        leaf,
        PARTITION,
        user="user",
        placeholder_timeout_ms=pick((0, 1500, 20_000), number),
        placeholder_ask=size(4, 2) if number // 3 % 4 == 0 else None,
        gang_style=pick(("Soft", "Hard", ""), number // 12),
    )


def size(vcore: int, memory: int) -> Resources:
    return Resources({"vcore": vcore, "memory": memory})


def pick(options: Sequence[T], number: int) -> T:
    return options[number % len(options)]


def check_books(shim: Shim) -> None:
    """Everything adds up, no law was broken, and the shim knows exactly the requests that the engine holds."""
    state = shim.state
    assert audit.check(state) == []
    assert state.law_violations == 0
    held = {
        key: r.node.node_id if r.node is not None and r.replaces is None else None for key, r in state.requests.items()
    }
    assert held == shim.requests
    assert {key for key, r in state.requests.items() if r.preempted} == set(shim.victims)
    assert {key for key, r in state.requests.items() if r.released} == set(shim.leaving)
    assert {name: app.state.value for name, app in state.applications.items()} == shim.states


def check_nothing_left(shim: Shim) -> None:
    """After a settled cycle no ask is pending that has room under its quotas and on an open node."""
    state = shim.state
    for ask in state.requests.values():
        pairs = ask.shape.pairs
        if not ask.pending or ask.reservation is not None or ask.pool is not None:
            continue
        if ask.application.state is AppState.FAILING or ask.application in state.gangs.leaving:
            continue
        if ask.group is not None and ask.group.is_unit:
            # Room for one is not room for all, which the random machine looks for: here they only have to be at rest.
            groups = ask.application.task_groups if ask.spec.placeholder else (ask.spec.task_group,)
            running = [a for a in ask.application.allocations.values() if a.spec.task_group in groups]
            assert not running, f"{ask} waits for others of its gang, and {running} run"
            continue
        if any(not queue.admits(pairs) for queue in ask.queue.lineage()) or is_kept_below(state, ask):
            continue
        required = ask.spec.required_node
        if required:
            node = state.nodes.get(required)
            refused = node is None or required in (ask.refused or {})
            assert refused or not has_room(state, node, ask), f"{ask} fits the node it requires"
        else:
            room = [n for n in state.nodes.values() if n.schedulable and has_room(state, n, ask)]
            room = [n for n in room if n.node_id not in (ask.refused or {})]  # Where it failed to start, it pauses.
            assert not room, f"{ask} fits {room}"
