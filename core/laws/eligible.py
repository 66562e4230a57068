"""Judges who may leave: some allocations leave for nobody, whatever the kind (preemption.md A.1 no. 3), and others not
before they have run for a while (L)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.settings import PreemptionPolicyKind
from kornel.core.laws.verdict import Law, Violation, path_of
from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue
from kornel.core.model.run_times import read_min_runtime

_PROTECTED: Final = PreemptionPolicyKind.DISABLED
_REPLACING: Final = AskPlace.REPLACING
"""Kept as constants, because reading a member from its class costs as much as a call, and ten thousand victims are
checked at once."""


def check_victims(
    victims: Iterable[Allocation], *, shields: bool = True, replacing: bool = True, bound: bool = True
) -> Iterator[Violation]:
    """Yields *victims* that no plan may contain. Their application is judged by law 3.

    *shields* tells whether queues protect what they hold by their policy, *replacing* whether tasks that take the place
    of a placeholder are protected, *bound* whether those that must run on their node are.
    """
    seen: set[str] = set()
    for victim in victims:
        named, spec = victim.key in seen, victim.spec
        protected = shields and victim.application.queue.properties.preemption_policy is _PROTECTED
        replaces = replacing and victim.place is _REPLACING
        seen.add(victim.key)
        if not (
            named or protected or replaces or (bound and spec.required_node) or victim.node is None or victim.released
            or victim.preempted
        ):  # fmt: skip
            continue
        faults = {
            "named twice": named,
            "not placed": victim.node is None,
            "in a queue protected from preemption": protected,
            "bound to its required node": bound and bool(spec.required_node),
            "being released": victim.released,
            "taking the place of a placeholder": replaces,
            "already a victim": victim.preempted,
        }
        for fault, present in faults.items():
            if present:
                yield Violation(Law.ELIGIBLE, f"{victim.key} is {fault}")


def check_run_times(now_ns: int, victims: Iterable[Allocation], ask: Allocation) -> Iterator[Violation]:
    """Yields *victims* of *ask* that have not run for their minimum run time by *now_ns*, unless it has waited for so
    long that this does not matter."""
    waits = ask.application.queue.properties
    if not waits.max_wait_ns or now_ns - ask.created_ns < waits.preemption_delay_ns + waits.max_wait_ns:
        yield from list_young(now_ns, victims, ask.application.queue)


def list_young(now_ns: int, victims: Iterable[Allocation], taker: Queue) -> Iterator[Violation]:
    """Yields *victims* that have not run for their minimum run time by *now_ns*. *taker*: the leaf of the ask that they
    leave for, or the queue whose max is enforced."""
    path = path_of(taker)
    for victim in victims:
        application, spec = victim.application, victim.spec
        guard = application.queue
        for queue in path_of(guard):
            if queue in path:
                break
            guard = queue
        least_ns, most_ns = guard.properties.min_runtime_ns, guard.properties.min_runtime_most_ns
        if not most_ns:
            continue
        began_ns = victim.bound_ns
        if application.leaves_whole and spec.task_group:
            if not application.whole_ns:
                continue
            began_ns = application.whole_ns
        stated_ns = read_min_runtime(spec.tags)
        ran_ns, long_enough_ns = now_ns - began_ns, least_ns if stated_ns is None else min(stated_ns, most_ns)
        if ran_ns < long_enough_ns:
            detail = f"{victim.key} has run for {ran_ns / 10**9:g} s of {long_enough_ns / 10**9:g} s ({guard.path})"
            yield Violation(Law.RUN_TIME, detail)
