"""The plans of gangs that preempt as a unit: which change of the world may end one, and that no room is held twice.

Written from the words of the rule (preemption.md B.11). A plan is known from the decisions that announce its victims,
until its gang runs or the plan is called off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kornel.core.domain.commands import (
    AnswerCallbacks,
    AttachCallbacks,
    Command,
    DetachCallbacks,
    NodeAction,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.effects import Allocated, ApplicationUpdated, Effect, PreemptionDecided
from kornel.core.domain.reasons import Outcome
from kornel.core.model.nodes import Node
from kornel.core.state.partition_state import PartitionState
from tests.properties.held_room import lacking
from tests.properties.machine.view import ContractBroken

Owner = tuple[str, str]
"""A partition and an application."""

_HARMLESS: Final = frozenset({NodeAction.DRAIN_TO_SCHEDULABLE, NodeAction.CREATE, NodeAction.CREATE_DRAIN})
"""What may happen to other nodes; on a node of a plan, a creation is refused."""


@dataclass
class Plan:
    """A plan under way."""

    members: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    victims: set[str] = field(default_factory=set)
    changed: str = ""
    """What has changed since it was made; empty: nothing that concerns it."""


class Plans:
    """The plans under way, by owner."""

    def __init__(self) -> None:
        self._open: dict[Owner, Plan] = {}

    def note_command(self, command: Command) -> None:
        """Notes what *command*, which was accepted, changes for the plans."""
        match command:
            case UpdateNodes(_, nodes):
                for spec in nodes:
                    if spec.action not in _HARMLESS:
                        self._note(f"node {spec.node_id}", nodes={spec.node_id})
            case UpdateApplications(_, _, removed):
                for gone in removed:
                    self._note(f"application {gone.application_id} was removed", owner=gone.application_id)
            case UpdateAllocations(_, entries, asks_gone, releases):
                for entry in entries:
                    placed = bool(entry.node_id or entry.foreign)
                    self._note(f"entry {entry.key}", owner=entry.application_id, everywhere=placed)
                for withdrawn in asks_gone:
                    self._note(f"ask {withdrawn.key} was withdrawn", owner=withdrawn.application_id)
                for release in releases:
                    self._note(f"release {release.key}", owner=release.application_id)
            case AnswerCallbacks() | AttachCallbacks() | DetachCallbacks():
                self._note("the shim was asked", everywhere=True)
            case _:
                self._note(type(command).__name__, everywhere=True)

    def hear(self, effects: Sequence[Effect], states: Iterable[PartitionState]) -> None:
        """Takes in what the core has decided, and judges plans that were called off.

        Asks that must run on a node come before plans for gangs (H).
        """
        states = list(states)
        for state in states:
            first = [ask for ask in state.requests.values() if ask.spec.required_node]
            self._note("an ask must run there", nodes={ask.spec.required_node for ask in first})
        for effect in effects:
            match effect:
                case PreemptionDecided(kind="guarantee", outcome=Outcome.TRIGGERED) if (
                    " of a gang get" in effect.detail
                ):
                    plan = self._open.setdefault((effect.partition, effect.application_id), Plan())
                    plan.members.add(effect.key)
                    plan.nodes.add(effect.node_id)
                    plan.victims.update(victim.key for victim in effect.victims)
                case PreemptionDecided(outcome=Outcome.UNIT_CALLED_OFF):
                    self._judge_end(effect)
                case PreemptionDecided(outcome=Outcome.VICTIM_STUCK):
                    self._note("a victim is stuck", everywhere=True)
                case PreemptionDecided(kind="required-node", outcome=Outcome.TRIGGERED):
                    self._note("an ask requires a node", nodes={effect.node_id})
                case ApplicationUpdated(application_id=name):
                    self._note(f"application {name} is {effect.state}", owner=name)
                case Allocated(spec=spec) if spec.task_group:
                    self._open.pop((spec.partition, spec.application_id), None)
        for state in states:
            holding = {unit_id.application.application_id for unit_id in state.gangs.holds}
            for owner in [o for o in self._open if o[0] == state.name and o[1] not in holding]:
                del self._open[owner]
            for unit_id, hold in state.gangs.holds.items():
                plan = self._open.get((state.name, unit_id.application.application_id))
                if plan is not None:
                    plan.nodes.update(a.reservation.node.node_id for a in hold.members if a.reservation is not None)

    def _judge_end(self, decision: PreemptionDecided) -> None:
        plan = self._open.pop((decision.partition, decision.application_id), None)
        if plan is not None and plan.victims and not plan.changed:
            raise ContractBroken("plan given up", f"{decision}, and nothing has changed for {plan}")
        if not decision.detail.partition(";")[0]:
            raise ContractBroken("plan given up", f"{decision} does not say why")

    def _note(self, what: str, *, owner: str = "", nodes: Iterable[str] = (), everywhere: bool = False) -> None:
        for (_, application_id), plan in self._open.items():
            if everywhere or application_id == owner or not plan.nodes.isdisjoint(nodes):
                plan.changed = plan.changed or what


Lacks = Mapping[Node, Sequence[int]]


def lacks_of(states: Iterable[PartitionState]) -> tuple[Lacks, int]:
    """Returns how much more preemptors hold on each node, beside asks that must run there, than is free there or
    leaving, and how many victims are stuck."""
    found: dict[Node, Sequence[int]] = {}
    stuck = 0
    for state in states:
        stuck += len(state.stuck)
        for node in state.nodes.values():
            holders = [r.ask for r in node.reservations.values() if r.rank == 1]
            if holders:
                # What is held while the shim is asked is not free any more. If it lacks then, since the shim has placed
                # more there than there is room for, it lacks just as much once the shim is not asked any more. So does
                # what an ask that must run there has taken, which comes first.
                first = [r.ask for r in node.reservations.values() if r.rank <= 1 and r.ask.held_on is not node]
                held = {t for ask in holders for t, amount in ask.shape.pairs if amount}
                found[node] = [amount if t in held else 0 for t, amount in enumerate(lacking(state, node, first))]
    return found, stuck


def judge_held(before: tuple[Lacks, int], states: Iterable[PartitionState]) -> None:
    """Raises if the core has held room for preemptors that others hold, or has given such room away."""
    after, stuck = lacks_of(states)
    if stuck != before[1]:
        return
    for node, lack in after.items():
        known = before[0].get(node, ())
        grown = [t for t, amount in enumerate(lack) if amount > (known[t] if t < len(known) else 0)]
        if grown:
            held = {r.ask.key: dict(r.ask.shape.resources) for r in node.reservations.values()}
            raise ContractBroken("held twice", f"{node}: {held} of {node.free}, lacks {lack}, before {list(known)}")
