"""The sentences of the event history. Each is understandable by itself, because shims show them to people as events of
pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kornel.core.model.users import Account
from kornel.shared.readable_amounts import format_count, format_quantities

if TYPE_CHECKING:
    from kornel.core.model.allocations import Allocation, Reservation
    from kornel.core.model.applications import Application
    from kornel.core.model.queues import Queue
    from kornel.core.model.shapes import Pairs, ResourceTypes, Vector
    from kornel.core.model.task_groups import GroupMembers

_NS_PER_S: Final = 10**9


def describe_full_queue(types: ResourceTypes, ask: Allocation, queue: Queue) -> str:
    """Returns the text that *ask* does not fit under the max of *queue*, with what is left there of each scarce
    type."""
    left = _describe_left(types, ask.shape.pairs, queue.used, queue.max)
    left = left or "the rest of its max is promised to requests that preempted"
    return f"Request for {ask.shape.write_amounts()} does not fit in queue {queue.path}: {left}"


def describe_used_limit(types: ResourceTypes, ask: Allocation, account: Account) -> str:
    """Returns the text that *ask* does not fit in the limit of *account*, with what is left of each scarce type."""
    left = _describe_left(types, ask.shape.pairs, account.used, account.max)
    return f"Request for {ask.shape.write_amounts()} does not fit in the limit of {account}: {left}"


def _describe_left(types: ResourceTypes, pairs: Pairs, used: Vector, most: Mapping[int, int]) -> str:
    short = [t for t, amount in pairs if t in most and used[t] + amount > most[t]]
    if not short:
        return ""
    left = format_quantities(types.to_resources({t: max(0, most[t] - used[t]) for t in short}))
    return f"of max {format_quantities(types.to_resources({t: most[t] for t in short}))}, {left} is free"


def describe_room_in_queue(ask: Allocation) -> str:
    """Returns the text that *ask* fits under the max of its queue, and of the queues above, again."""
    return f"Request for {ask.shape.write_amounts()} fits in queue {ask.queue.path} again"


def describe_room_in_limits(ask: Allocation) -> str:
    """Returns the text that *ask* fits under the limits of its user and group again."""
    return f"Request for {ask.shape.write_amounts()} fits in the limits of user {ask.application.user} again"


def describe_gate(application: Application, gate: Queue | Account) -> str:
    """Returns the text that *application* waits until fewer applications run, or for its turn, because of *gate*."""
    waits = f"Application {application.application_id} waits for"
    if isinstance(gate, Account):
        count = format_count(gate.count_applications(), "application holds", "applications hold")
        return f"{waits} a slot: {count} something, and the limit of {gate} allows {gate.max_applications}"
    if gate.open():
        return f"{waits} its turn: in queue {gate.path}, one new application at a time may start"
    count = format_count(gate.running + len(gate.allocating), "application runs or is", "applications run or are")
    return f"{waits} a slot: in queue {gate.path}, {count} starting, and {gate.max_applications} may"


def describe_shortfall(member: Allocation, members: GroupMembers) -> str:
    """Returns the text that *members*, of the task group of *member*, run below their minimum."""
    return (
        f"Gang {member.application.application_id} runs {members.describe_number()} members of {member.spec.task_group}"
    )


def describe_repair(member: Allocation) -> str:
    """Returns the text that the task group of *member* runs with its minimum again."""
    return f"Gang {member.application.application_id} runs all members that {member.spec.task_group} needs again"


def describe_refusals(reasons: Iterable[str]) -> str:
    """Returns the text that the resource manager refused nodes, with *reasons*, one for each node."""
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    nodes = "1 node" if sum(counts.values()) == 1 else f"{sum(counts.values())} nodes"
    listed = "; ".join(f"{reason} ({count}x)" for reason, count in sorted(counts.items()))
    return f"The resource manager refused {nodes}: {listed}"


def describe_taken_room(claim: Reservation) -> str:
    """Returns the text that others have taken the room that *claim* holds, and how often that has happened to its
    ask."""
    node = claim.node
    came = sum(load.since_ns >= claim.made_ns for load in node.foreign_loads.values())
    who = f"{format_count(came, 'foreign pod')} that came there since" if came else "others"
    times = format_count(claim.ask.rearms + 1, "time")
    return f"Room that preemption made on node {node.node_id} was taken by {who}; that has happened {times}"


def describe_excess(types: ResourceTypes, queue: Queue) -> str:
    """Returns the text that *queue* is above its max, with the amounts of the types in question."""
    over = [t for t, most in queue.max.items() if queue.used[t] > most]
    held = format_quantities(types.to_resources({t: queue.used[t] for t in over}))
    most = format_quantities(types.to_resources({t: queue.max[t] for t in over}))
    return f"queue {queue.path} holds {held}, more than its max of {most}"


def describe_timer(queue: Queue, start_ns: int | None, now_ns: int, *, moved: bool) -> str:
    """Returns the text that preemption for the max of *queue* starts at *start_ns*; if that is ``None``, the text says
    that it is called off."""
    if start_ns is None:
        return f"Preemption for the max of queue {queue.path} is called off"
    moved_on = "now starts" if moved else "starts"
    return f"Preemption for the max of queue {queue.path} {moved_on} in {max(0, start_ns - now_ns) / _NS_PER_S:g} s"
