"""One engine and the shim that judges it: every call is written down, its answers judged, the books compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from kornel.core.config.text.problems import ConfigError
from kornel.core.domain.commands import (
    ApplicationRef,
    Command,
    CommandRefused,
    NodeAction,
    NodeSpec,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.effects import (
    Allocated,
    AllocationRejected,
    ApplicationRejected,
    ApplicationUpdated,
    Effect,
    NodeRejected,
    PreemptionDecided,
    Released,
)
from kornel.core.engine.engine import Engine
from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.state.partition_state import PartitionState
from tests.properties.lending import may_use, repairs_gang, stands_for
from tests.properties.machine import books, gangs, plans, waiting
from tests.properties.machine.contract import Contract
from tests.properties.machine.journal import APPLY, CYCLE, END, PREEMPT, Call
from tests.properties.machine.quotas import counted, quotas, swapping
from tests.properties.machine.shim_view import Known
from tests.properties.machine.view import ContractBroken

SECOND: Final = 10**9
RM: Final = "rm"
MOST_DECISIONS: Final = 500_000
"""No settling takes more. There are fewer than a hundred names of asks, each tried a few times; but the search for one
gang may take 20,000 steps (preemption.md B.11), a few at a time, each time at the cost of 200 decisions."""
_FEW_DAYS_NS: Final = 100 * 3600 * SECOND


class _Before(NamedTuple):
    """What the engine alone knows before a call."""

    holders: dict[str, list[Reservation]]
    amounts: dict[str, dict[str, dict[str, int]]]
    in_flight: frozenset[str]
    counted: dict[str, frozenset[str]]
    swaps: dict[str, dict[str, frozenset[str]]]
    saved: dict[str, Allocation]
    """The asks for which room is saved, and nobody leaves, each with the one by whose importance this is judged."""
    repairing: frozenset[str]
    """The asks that repair a gang."""


class World:
    """``calls``: everything done so far. ``seen`` counts answers by kind and token, state, type or outcome."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.contract = Contract()
        self.now_ns = 1_000_000 * SECOND
        self.calls: list[Call] = []
        self.seen: dict[str, int] = {}
        self._in_vain = 0.0
        """Above 0: something was left to do after the last slice. Above 1: there have been too many such slices."""
        self._plans = plans.Plans()
        self._leaving: gangs.Gangs = {}
        """The gangs that preemption has chosen as a whole and that are on their way out."""
        self.effects: list[str] | None = None
        """Answers as text, for whoever wants to compare them; ``None``: they are not kept."""

    def send(self, command: Command) -> None:
        self.play(Call(APPLY, self.now_ns, command))

    def cycle(self, budget: int) -> bool:
        """One slice. Whether there is more to do."""
        return self.play(Call(CYCLE, self.now_ns, budget=budget))

    def preempt(self) -> None:
        self.play(Call(PREEMPT, self.now_ns))

    def end(self) -> None:
        self.play(Call(END, self.now_ns))

    def settle(self, budget: int = 1000) -> None:
        """Slices until there is nothing left to decide now, and then nobody may be waiting for nothing."""
        unsettled = True
        while unsettled:
            self.cycle(budget)
            unsettled = self._in_vain > 0

    def play(self, call: Call) -> bool:
        """Do *call*, judge the answers and compare the books. Whether a slice left something to do."""
        self.calls.append(call)
        if call.kind != CYCLE or call.now_ns > self.now_ns:
            self._in_vain = 0
        self.now_ns = max(self.now_ns, call.now_ns)
        more = False
        if call.kind == END:
            self._end()
        elif call.kind == APPLY:
            self._apply(call.command)
        else:
            more = self._decide(call)
        self._check(settled=call.kind == CYCLE and call.budget > 0 and not more)
        if call.kind == CYCLE and call.budget > 0:
            self._lose_patience(call.budget, more)
        return more

    def _lose_patience(self, budget: int, more: bool) -> None:
        """Slices in a row come to an end; judged here, so that a replay finds it too."""
        wakeup = self.engine.next_wakeup_ns()
        if not more and (wakeup is None or wakeup > self.now_ns):
            self._in_vain = 0
            return
        self._in_vain += 1 / (20 + MOST_DECISIONS // budget)
        if self._in_vain > 1:
            raise ContractBroken("endless", f"the last slices, of {budget} decisions, came to no end")

    def states(self) -> list[PartitionState]:
        """All partitions the shim knows of."""
        found: list[PartitionState] = []
        for name in self.contract.partitions:
            state = self.engine.partition(name)
            if state is None:
                raise ContractBroken("partitions", f"the engine has no {name}")
            found.append(state)
        return found

    def _decide(self, call: Call) -> bool:
        before, more = self._before(), False
        held = plans.lacks_of(self.states())
        if call.kind == PREEMPT:
            effects = self.engine.preempt(self.now_ns)
        else:
            result = self.engine.cycle(self.now_ns, call.budget)
            effects, more = result.effects, result.more
        self._count(effects)
        plans.judge_held(held, self.states())
        self._plans.hear(effects, self.states())
        gangs.judge_losses(self.states(), effects)
        gangs.judge_successors(self._leaving, self.states(), effects)
        self._leaving = gangs.gangs_leaving(self._leaving, self.states(), effects)
        self.contract.hear_decisions(effects, self.now_ns, self._known(before))
        return more

    def _apply(self, command: Command | None) -> None:
        assert command is not None, "a call of this kind has a command"
        before = self._before()
        try:
            effects = self.engine.apply(command, self.now_ns)
        except (CommandRefused, ConfigError) as refused:
            self._note(f"refused:{type(refused).__name__}")
            self.contract.refused(command, self.now_ns)
            return
        self._count(effects)
        self._plans.note_command(command)
        self.contract.hear(command, effects, self.now_ns, self._known(before))
        self._plans.hear(effects, self.states())
        gangs.judge_losses(self.states(), effects)
        self._leaving = gangs.gangs_leaving(self._leaving, self.states(), effects)

    def _before(self) -> _Before:
        partitions = [state for name in self.contract.partitions if (state := self.engine.partition(name))]
        return _Before(
            {node.node_id: list(node.reservations.values()) for s in partitions for node in s.nodes.values()},
            {
                node.node_id: {r.ask.key: dict(r.ask.shape.resources) for r in node.reservations.values()}
                for s in partitions
                for node in s.nodes.values()
            },
            frozenset(name for s in partitions for name, r in s.requests.items() if r.replaces is not None),
            {s.name: counted(s) for s in partitions},
            {s.name: swapping(s) for s in partitions},
            {r.ask.key: stands_for(s, r.ask) for s in partitions for r in s.reservations.values() if r.comes_last},
            frozenset(name for s in partitions for name, ask in s.requests.items() if repairs_gang(ask)),
        )

    def _known(self, before: _Before) -> Known:
        after = self._before()
        names = {node: frozenset(r.ask.key for r in held) for node, held in before.holders.items()}
        still = {
            node: {r.ask.key: dict(r.ask.shape.resources) for r in held if r in after.holders.get(node, ())}
            for node, held in before.holders.items()
        }

        saved = after.saved | before.saved  # A firm claim may have become a saved one within the call.

        def lends(holder: str, name: str) -> bool:
            for state in self.states():
                placed = state.requests.get(name)
                if holder in saved and placed is not None and saved[holder].application.queue.path in state.queues:
                    return may_use(state, placed, saved[holder], before=False, repaired=name in before.repairing)
            return False

        def quota() -> Callable[[Allocated, bool], str | None]:
            contract = self.contract
            by_partition = {
                state.name: quotas(
                    state,
                    contract.partitions[state.name],
                    contract.config,
                    before.counted[state.name],
                    before.swaps[state.name],
                )
                for state in self.states()
            }

            def take(effect: Allocated, agreed: bool) -> str | None:
                spec = effect.spec
                return by_partition[spec.partition].take(spec.application_id, effect.resources, agreed=agreed)

            return take

        return Known(names, before.amounts, still, lends, before.in_flight, quota)

    def _check(self, *, settled: bool) -> None:
        if self.engine.rm_id != self.contract.rm_id:
            raise ContractBroken("manager", f"{self.engine.rm_id!r} is registered, not {self.contract.rm_id!r}")
        states = self.states()
        for state, view in zip(states, self.contract.partitions.values(), strict=True):
            books.check(state, view)
            waiting.check_questions(state, self.contract.questions.values())
            if settled:
                waiting.check_nobody_forgotten(state, view, self.contract.config)
        if settled and (overdue := self.contract.overdue()):
            raise ContractBroken("expiry", f"not reported: {overdue}")

    def _end(self) -> None:
        for state in self.states():
            books.check_nothing_left(state)
        self.now_ns += _FEW_DAYS_NS
        while True:
            result = self.engine.cycle(self.now_ns, 1000)
            self.contract.hear_decisions(result.effects, self.now_ns, self._known(self._before()))
            if not result.more:
                break
        for state in self.states():
            books.check_nothing_remembered(state)

    def remove_everything(self) -> None:
        """What a shim does that goes away properly; afterwards nothing may be left."""
        rm_id = self.contract.rm_id
        for name, partition in list(self.contract.partitions.items()):
            for application_id in list(partition.applications):
                self.send(UpdateApplications(rm_id, remove=(ApplicationRef(application_id, name),)))
            for key in list(partition.foreign):
                self.send(UpdateAllocations(rm_id, releases=(ReleaseSpec(name, "", key),)))
            for node_id in list(partition.nodes):
                self.send(UpdateNodes(rm_id, (NodeSpec(node_id, NodeAction.DECOMISSION, name),)))
        self.settle()
        self.end()

    def _note(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1
        if self.effects is not None:
            self.effects.append(what)

    def _count(self, effects: list[Effect]) -> None:
        for effect in effects:
            kind = type(effect).__name__
            if isinstance(effect, NodeRejected | ApplicationRejected | AllocationRejected):
                kind = f"{kind}:{effect.reason.partition(':')[0]}"
            elif isinstance(effect, Released):
                kind = f"{kind}:{TerminationType(effect.termination).name}"
            elif isinstance(effect, ApplicationUpdated):
                kind = f"{kind}:{effect.state}"
            elif isinstance(effect, PreemptionDecided):
                kind = f"{kind}:{effect.outcome}"
            self.seen[kind] = self.seen.get(kind, 0) + 1
        if self.effects is not None:
            self.effects += map(repr, effects)
