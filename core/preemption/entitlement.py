"""Determines whether the queue of an ask is entitled to preempt: law 4, and swaps inside a shared guarantee
(preemption.md A)."""

from __future__ import annotations

from dataclasses import dataclass

from kornel.core.domain.reasons import Outcome
from kornel.core.domain.settings import GuaranteeMode
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
