"""Preemption on the one node that an ask must run on (preemption.md C).

Shares, fences and tenants do not matter, because the system cannot work without such tasks. Only the importance of each
task matters, and no task is preempted without need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.preemption_kinds import REQUIRED_NODE
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation, sum_amounts
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Vector, holds_pairs
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.gang_losses import SpareMembers
from kornel.core.preemption.plan import FreedAmounts, Need, PreemptionPlan, Refusal
from kornel.core.preemption.walk import Candidate, Effects, Walk
from kornel.core.state.records.victim_index import age_of, reluctance_of
from kornel.shared.readable_amounts import format_quantity

KIND: Final = REQUIRED_NODE.name


def plan_preemption(view: PartitionView, ask: Allocation, node: Node) -> PreemptionPlan | Refusal:
    """Returns the victims on *node* for *ask*, or why there are none. Changes nothing in *view*. The cost grows with
    the number of allocations on the node."""
    names = view.types.names
    room = _room_on(node, ask)
    short = {t: amount - room[t] for t, amount in ask.shape.pairs if amount > room[t]}
    dropped: Counter[str] = Counter()
    leaving = list_leaving(view, node)
    without = _lacks_devices(node, ask, leaving)
    types = list(short)

    def lacks(victims: Sequence[Candidate]) -> bool:
        return _lacks_devices(node, ask, [*leaving, *(victim[4] for victim in victims)])

    # The last need stands for the devices, which cannot be counted as an amount.
    walk = Walk([*short.values(), int(without)], [], lacks=lacks if without else None)
    met = walk.take_from(_list_candidates(ask, node, types, dropped))
    if not met or not walk.taken:
        freed = sum_amounts(victim[4] for victim in walk.taken)
        unmet = {t: amount - freed.get(t, 0) for t, amount in short.items() if amount > freed.get(t, 0)}
        missing = [f"{names[t]}={format_quantity(names[t], amount)}" for t, amount in unmet.items()]
        if lacks(walk.taken) and ask.shape.devices is not None:
            missing.append(ask.shape.devices.describe_request())
        kept = ", ".join(f"{count} {why}" for why, count in sorted(dropped.items()))
        detail = f"{node.node_id} lacks {', '.join(missing)}; protected: {kept or 'none'}"
        return Refusal(Outcome.NO_VICTIM_REQUIRED_NODE, detail)
    victims = [victim[4] for victim in walk.give_back()]
    return PreemptionPlan(
        KIND,
        ask,
        node,
        tuple(victims),
        view.root,
        needs=FreedAmounts({Need.NODE.value: {names[t]: amount for t, amount in short.items()}}),
        adjusted=tuple(victim.priority for victim in victims),
    )


def room_is_coming(view: PartitionView, node: Node, ask: Allocation) -> bool:
    """Tells whether *node* has room for *ask* now, or will have once all its victims have left."""
    room = _room_on(node, ask)
    if not holds_pairs(room, ask.shape.pairs):
        return False
    return not _lacks_devices(node, ask, list_leaving(view, node))


def list_leaving(view: PartitionView, node: Node) -> list[Allocation]:
    """Returns the victims on *node* that are expected to leave."""
    return [a for a in node.allocations.values() if a.preempted and a not in view.given_up]


def _lacks_devices(node: Node, ask: Allocation, leaving: Sequence[Allocation]) -> bool:
    """Tells whether *ask* would not find its devices on *node* once *leaving* have left."""
    request = ask.shape.devices
    if request is None:
        return False
    return node.devices is None or not node.devices.has_room_without(leaving, request, ask)


def _room_on(node: Node, ask: Allocation) -> Vector:
    """Returns, by type, what is free on *node* or about to be, without what is held for other asks that require it.

    All other claims rank lower, and do not count.
    """
    claims = node.claims
    if claims is None:
        return node.free
    room = [free + leaves for free, leaves in zip(node.free, claims.leaving, strict=True)]
    for reservation in claims.reservations.values():
        if reservation.ask is not ask and reservation.ask.spec.required_node:
            for t, amount in reservation.pairs:
                room[t] -= amount
    return room


def _list_candidates(ask: Allocation, node: Node, lacking: Sequence[int], dropped: Counter[str]) -> list[Candidate]:
    """Returns the allocations that may be preempted, in order; the others are counted in *dropped*. *lacking* are the
    types that the ask lacks."""
    asked = [t for t, _ in ask.shape.pairs]
    spare = SpareMembers()
    found: list[tuple[tuple[int, bool, int, int, tuple[int, ...], str], Candidate]] = []
    for allocation in node.allocations.values():
        spec = allocation.spec
        amounts = allocation.shape.amounts
        frees_devices = ask.shape.devices is not None and bool(allocation.devices)
        if spec.required_node:
            dropped["bound to the node"] += 1
        elif spec.priority > ask.priority:
            dropped["of higher priority"] += 1
        elif allocation.preempted:
            dropped["leaving as victims"] += 1
        elif not any(t in amounts for t in asked) and not frees_devices:
            dropped["without a type asked for"] += 1
        elif allocation.released:
            dropped["being released"] += 1
        elif allocation.place is AskPlace.REPLACING:
            dropped["about to replace a placeholder"] += 1  # The shim does not know yet that it has been placed.
        else:
            size = tuple(amounts.get(t, 0) for t in asked)
            # A gang that loses a member of its minimum is of no use, so these stand behind the others of their class.
            torn = not spare.may_leave(allocation)
            age = age_of(allocation)
            gains = tuple((i, amounts[t]) for i, t in enumerate(lacking) if t in amounts)
            serves = (*(i for i, _ in gains), *((len(lacking),) if frees_devices else ()))
            candidate = (spec.priority, age, 0, spec.key, allocation, Effects(gains, (), serves))
            found.append(((reluctance_of(allocation), torn, spec.priority, age, size, spec.key), candidate))
    found.sort(key=lambda entry: entry[0])
    return [candidate for _, candidate in found]
