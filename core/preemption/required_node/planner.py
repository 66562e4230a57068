"""Preemption on the one node that an ask must run on (preemption.md C).

Shares, fences and tenants do not matter, because the system cannot work without such tasks. Only the importance of each
task matters, and no task is preempted without need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.readable_amounts import format_quantity
from kornel.core.domain.reasons import Outcome
from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Vector
from kornel.core.policies.view import PartitionView
from kornel.core.preemption.plan import FreedAmounts, Need, PreemptionPlan, Refusal
from kornel.core.preemption.victim_index import age_of, reluctance_of

KIND: Final = "required-node"

_Candidate = tuple[int, int, int, tuple[int, ...], str, Allocation]


def plan_preemption(view: PartitionView, ask: Allocation, node: Node) -> PreemptionPlan | Refusal:
    """Returns the victims on *node* for *ask*, or why there are none. Changes nothing in *view*. The cost grows with
    the number of allocations on the node."""
    names = view.types.names
    room = _room_on(node, ask)
    short = {t: amount - room[t] for t, amount in ask.shape.pairs if amount > room[t]}
    dropped: Counter[str] = Counter()
    victims: list[Allocation] = []
    unmet, leaving = dict(short), _list_leaving(view, node)
    without = _lacks_devices(node, ask, leaving)
    for *_, candidate in _list_candidates(ask, node, dropped):
        if not unmet and not without:
            break
        # They are chosen by rank alone, so some may become needless once later ones are chosen; those are spared below.
        if any(t in unmet for t, _ in candidate.shape.pairs) or (without and candidate.devices):
            victims.append(candidate)
            _take_victim(unmet, candidate)
            without = without and _lacks_devices(node, ask, [*leaving, *victims])
    if unmet or without or not victims:
        lacks = [f"{names[t]}={format_quantity(names[t], amount)}" for t, amount in unmet.items()]
        if without and ask.shape.devices is not None:
            lacks.append(ask.shape.devices.describe_request())
        kept = ", ".join(f"{count} {why}" for why, count in sorted(dropped.items()))
        detail = f"{node.node_id} lacks {', '.join(lacks)}; protected: {kept or 'none'}"
        return Refusal(Outcome.NO_VICTIM_REQUIRED_NODE, detail)
    _prune_victims(victims, short, lambda rest: not _lacks_devices(node, ask, [*leaving, *rest]))
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
    if any(room[t] < amount for t, amount in ask.shape.pairs):
        return False
    return not _lacks_devices(node, ask, _list_leaving(view, node))


def _list_leaving(view: PartitionView, node: Node) -> list[Allocation]:
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


def _list_candidates(ask: Allocation, node: Node, dropped: Counter[str]) -> list[_Candidate]:
    """Returns the allocations that may be preempted, in order; the others are counted in *dropped*."""
    asked = [t for t, _ in ask.shape.pairs]
    found: list[_Candidate] = []
    for allocation in node.allocations.values():
        spec = allocation.spec
        amounts = dict(allocation.shape.pairs)
        if spec.required_node:
            dropped["bound to the node"] += 1
        elif spec.priority > ask.priority:
            dropped["of higher priority"] += 1
        elif allocation.preempted:
            dropped["leaving as victims"] += 1
        elif not any(t in amounts for t in asked) and not (ask.shape.devices is not None and allocation.devices):
            dropped["without a type asked for"] += 1
        elif allocation.released:
            dropped["being released"] += 1
        elif allocation.place is AskPlace.REPLACING:
            dropped["about to replace a placeholder"] += 1  # The shim does not know yet that it has been placed.
        else:
            size = tuple(amounts.get(t, 0) for t in asked)
            found.append(
                (reluctance_of(allocation), spec.priority, age_of(allocation), size, spec.key, allocation)
            )  # fmt: skip
    # The allocation itself is left out of the key, because it cannot be compared.
    found.sort(key=lambda candidate: candidate[:5])
    return found


def _take_victim(unmet: dict[int, int], victim: Allocation) -> None:
    for t, amount in victim.shape.pairs:
        if t in unmet:
            unmet[t] -= amount
            if unmet[t] <= 0:
                del unmet[t]


def _prune_victims(
    victims: list[Allocation], short: dict[int, int], leaves_devices: Callable[[Sequence[Allocation]], bool]
) -> None:
    """Spare the victims that are needed neither for amounts nor for devices, beginning with the most protected one."""
    slack = {t: -amount for t, amount in short.items()}
    for victim in victims:
        for t, amount in victim.shape.pairs:
            if t in slack:
                slack[t] += amount
    for victim in reversed(victims.copy()):
        amounts = dict(victim.shape.pairs)
        if all(amounts.get(t, 0) <= over for t, over in slack.items()) and leaves_devices(
            [other for other in victims if other is not victim]
        ):
            victims.remove(victim)
            for t in slack:
                slack[t] -= amounts.get(t, 0)
