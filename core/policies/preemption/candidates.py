"""Who may go for an ask: every allocation below the fence that no law and no state protects (preemption.md B.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from core.model.allocations import Allocation
from core.model.nodes import Node
from core.model.queues import Queue
from core.policies.preemption.order import CLASSES, Candidate, reluctance
from core.policies.preemption.terms import LeafTerms, Terms


class Candidates:
    """Candidates by class and node, unsorted, and how many each filter kept back."""

    __slots__ = ("by_class", "dropped")

    def __init__(self) -> None:
        self.by_class: tuple[dict[Node, list[Candidate]], ...] = tuple({} for _ in CLASSES)
        self.dropped: Counter[str] = Counter()

    def any(self) -> bool:
        return any(self.by_class)


def gather(ask: Allocation, fence: Queue, terms: Terms) -> Candidates:
    """All candidates for *ask* below *fence*."""
    found = Candidates()
    for leaf in _leaves(fence):
        if leaf is ask.queue:
            continue
        leaf_terms = terms.of(leaf)
        if isinstance(leaf_terms, str):
            found.dropped[leaf_terms] += sum(len(app.allocations) for app in leaf.applications.values())
        else:
            _gather_leaf(ask, leaf_terms, terms, found)
    return found


def outside(ask: Allocation, fence: Queue, root: Queue) -> int:
    """How many allocations law 7 protects: those beyond the fence."""
    inside = {id(leaf) for leaf in _leaves(fence)}
    return sum(
        len(app.allocations)
        for leaf in _leaves(root)
        if id(leaf) not in inside and leaf is not ask.queue
        for app in leaf.applications.values()
    )


def _leaves(top: Queue) -> Iterator[Queue]:
    """The leaves below *top* that use anything; in no order that matters."""
    stack = [top]
    while stack:
        queue = stack.pop()
        if queue.leaf:
            if queue.applications:
                yield queue
        elif any(queue.used):
            stack.extend(queue.children.values())


def _gather_leaf(ask: Allocation, leaf_terms: LeafTerms, terms: Terms, found: Candidates) -> None:
    """Sort the allocations of one leaf into candidates and dropped. The hot loop: one look-up and few tests each."""
    kinds = leaf_terms.kinds
    highest = leaf_terms.highest
    fixed, offset = leaf_terms.adjusted
    plain = found.by_class[0]
    dropped = found.dropped
    own_application = ask.application.application_id
    for application in leaf_terms.leaf.applications.values():
        if application.application_id == own_application:
            dropped["law 3"] += len(application.allocations)
            continue
        earlier = application.preempted_count
        for allocation in application.allocations.values():
            kind = kinds.get(allocation.shape)
            if kind is None:
                first_look = terms.kind(leaf_terms, allocation.shape)
                if isinstance(first_look, str):
                    dropped[first_look] += 1
                    continue
                kind = first_look
            spec = allocation.spec
            priority = spec.priority
            if highest is not None and priority > highest:
                dropped["law 6"] += 1
                continue
            if allocation.preempted or allocation.released or spec.required_node:
                dropped[_state_filter(allocation)] += 1
                continue
            node = allocation.node
            if node is None:
                continue
            if spec.allow_preempt_self and not spec.originator:
                buckets = plain
            else:
                buckets = found.by_class[reluctance(allocation)]
            adjusted = (priority if fixed is None else fixed) + offset
            candidate = (adjusted, -allocation.created_ns, earlier, spec.key, allocation, kind)
            bucket = buckets.get(node)
            if bucket is None:
                buckets[node] = [candidate]
            else:
                bucket.append(candidate)


def _state_filter(allocation: Allocation) -> str:
    if allocation.preempted:
        return "preempted"
    return "released" if allocation.released else "required node"
