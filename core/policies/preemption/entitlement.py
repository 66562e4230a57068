"""Whether an ask's queue is owed anything: law 4, and the swap inside a shared guarantee (preemption.md A)."""

from __future__ import annotations

from dataclasses import dataclass

from core.domain.reasons import Outcome
from core.domain.settings import GuaranteeMode
from core.model.allocations import Allocation
from core.model.queues import Queue
from core.policies.preemption.fences import projected
from core.policies.preemption.plan import Refusal


@dataclass(frozen=True, slots=True)
class Entitlement:
    """By type index: the queue whose guarantee the ask calls on (``E_t``), and what has to be freed inside it."""

    queues: dict[int, Queue]
    swaps: dict[int, int]
    """``D_ent``, > 0: the guarantee is already spent, so victims inside ``E_t`` must make room for the ask."""


UNENTITLED = frozenset({Outcome.NO_GUARANTEE, Outcome.ASK_EXCEEDS_GUARANTEE, Outcome.NOT_UNDER_GUARANTEE})
"""What :func:`entitlement` refuses with."""

Numbers = tuple[GuaranteeMode | int | None, ...]


def numbers(ask: Allocation, mode: GuaranteeMode) -> Numbers:
    """All that :func:`entitlement` depends on for an ask of this size in this leaf: same numbers, same answer."""
    found: list[GuaranteeMode | int | None] = [mode]
    for queue in ask.queue.lineage():
        if queue.guaranteed:
            for t, _ in ask.shape.pairs:
                found += (queue.guaranteed.get(t), projected(queue, t))
        else:
            found.append(None)
    return tuple(found)


def entitlement(ask: Allocation, mode: GuaranteeMode, names: list[str]) -> Entitlement | Refusal:
    """What the guarantees on the ask's path say about it; *names* are the type names, for the refusal."""
    lineage = ask.queue.lineage()
    queues: dict[int, Queue] = {}
    swaps: dict[int, int] = {}
    for t, amount in ask.shape.pairs:
        queue = next((ancestor for ancestor in lineage if t in ancestor.guaranteed), None)
        if queue is None:
            continue
        queues[t] = queue
        guaranteed = queue.guaranteed[t]
        held = projected(queue, t)
        if amount > guaranteed:
            detail = f"{names[t]}: asked {amount}, guaranteed {guaranteed} in {queue.path}"
            return Refusal(Outcome.ASK_EXCEEDS_GUARANTEE, detail)
        under = held < guaranteed if mode is GuaranteeMode.REACH else held + amount <= guaranteed
        if not under:
            swaps[t] = held + amount - guaranteed
    if not queues:
        return Refusal(Outcome.NO_GUARANTEE, f"no guarantee for any asked type from {ask.queue.path} up")
    for t in swaps:
        if queues[t] is ask.queue:
            # Victims inside E_t could only be those of the ask's own leaf, and those are not taken.
            guaranteed = ask.queue.guaranteed[t]
            detail = (
                f"{names[t]}: {projected(ask.queue, t)} used or claimed of {guaranteed} guaranteed in {ask.queue.path}"
            )
            return Refusal(Outcome.NOT_UNDER_GUARANTEE, detail)
    return Entitlement(queues, swaps)
