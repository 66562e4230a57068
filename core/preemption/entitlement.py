"""Determines what the queue of an ask entitles it to: whether it may preempt (law 4, and swaps inside a shared
guarantee, preemption.md A), and the fence outside which it may not take victims.

Fences work in one direction, and a full queue is a fence as well (law 7, preemption.md B.2).
"""

from __future__ import annotations

from dataclasses import dataclass

from kornel.core.domain.reasons import Outcome
from kornel.core.domain.settings import GuaranteeMode, PreemptionPolicyKind
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.policies.guarantees import Guarantee, HeldBy, list_guarantees, project_usage
from kornel.core.preemption.plan import Refusal
from kornel.shared.readable_amounts import format_quantity


@dataclass(frozen=True, slots=True)
class Entitlement:
    """The queues whose guarantees entitle the ask (``E_t``), by type index, and what has to be freed inside them."""

    queues: dict[int, Queue]
    swaps: dict[int, int]
    """The amounts ``D_ent``, above 0 and at most what is asked for: because the guarantee is used up, victims inside
    ``E_t`` have to free them."""


def find_entitlement(
    ask: Allocation,
    mode: GuaranteeMode,
    names: list[str],
    held_by: HeldBy = project_usage,
) -> Entitlement | Refusal:
    """Returns the entitlement of *ask* by the guarantees on its path, or why it has none; *names* are the type names,
    for the refusal. *held_by* returns what a queue holds of a type.

    If a guarantee is used up, an ask can only be placed as a swap: victims inside the guarantee have to make room. An
    ask whose leaf has no guarantee of its own may swap only if the guarantee is not exceeded; otherwise every small ask
    would have to correct the overuse of others. A leaf that is below a guarantee of its own only has to free what it
    asks for.
    """
    leaf_is_owed = any(t in ask.queue.guaranteed for t, _ in ask.shape.pairs)
    queues: dict[int, Queue] = {}
    swaps: dict[int, int] = {}
    spent: Guarantee | None = None
    for found in list_guarantees(ask, held_by):
        t, amount, queue, guaranteed, held = found
        queues[t] = queue
        if amount > guaranteed:
            asked, most = format_quantity(names[t], amount), format_quantity(names[t], guaranteed)
            detail = f"{names[t]}: asked {asked}, guaranteed {most} in {queue.path}"
            return Refusal(Outcome.ASK_EXCEEDS_GUARANTEE, detail)
        if found.has_room(mode):
            continue
        swaps[t] = min(amount, held + amount - guaranteed)
        if spent is None and (queue is ask.queue or (held > guaranteed and not leaf_is_owed)):
            spent = found
    if not queues:
        return Refusal(Outcome.NO_GUARANTEE, f"no guarantee for any asked type from {ask.queue.path} up")
    if spent is not None:
        name = names[spent.t]
        all_of_it, taken = format_quantity(name, spent.most), format_quantity(name, spent.held)
        detail = f"{name}: {taken} used or claimed of {all_of_it} guaranteed in {spent.queue.path}"
        return Refusal(Outcome.NOT_UNDER_GUARANTEE, detail)
    return Entitlement(queues, swaps)


def fence_root(ask: Allocation) -> Queue:
    """Returns the lowest queue on the path of *ask* that contains all victims it may take; if that is its own leaf, it
    may take none.

    It is the root, a queue with the policy ``fence``, or a queue that the ask would raise above its effective max for a
    type it asks for, so that only a victim inside can help. A queue that just reaches its max is no fence.
    """
    overfull = _overfull_queues(ask)
    for queue in ask.queue.lineage():
        if queue.properties.preemption_policy is PreemptionPolicyKind.FENCE or queue in overfull:
            return queue
        if queue.parent is None:
            return queue
    raise AssertionError("a lineage ends at the root")


def _overfull_queues(ask: Allocation) -> set[Queue]:
    """Returns the queues on the path of *ask* that it would raise above the least max between them and the root.

    The max of the root is the size of the cluster, which limits room and is no fence. A queue that is above its max
    already may gain as much as it loses, so its present usage counts as its max.
    """
    least: dict[int, int] = {}
    found: set[Queue] = set()
    for queue in reversed(ask.queue.lineage()[:-1]):
        for t, amount in ask.shape.pairs:
            own = queue.max.get(t)
            if own is not None:
                own = max(own, project_usage(queue, t))
                if own < least.get(t, own + 1):
                    least[t] = own
            if t in least and project_usage(queue, t) + amount > least[t]:
                found.add(queue)
    return found
