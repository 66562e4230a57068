"""Notes why an ask was not placed, for people who ask (scheduling.md 17). Texts are constant, so that they add up."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kornel.core.domain.reasons import Outcome, Unschedulable
from kornel.core.model.allocations import Allocation
from kornel.core.model.failures import FailureLog

TEXTS: Final[Mapping[Unschedulable, str]] = MappingProxyType(
    {
        Unschedulable.USER_QUOTA: "Not enough user quota",
        Unschedulable.QUEUE_QUOTA: "Not enough queue quota",
        Unschedulable.NO_FITTING_NODE: "No node has enough room",
        Unschedulable.REQUIRED_NODE: "The required node is unknown or has no room",
    }
)
"""What is said for each reason; the shim's own words stand for those it refused."""

_PREEMPTION: Final[Mapping[Outcome, str]] = MappingProxyType(
    {
        Outcome.ATTEMPTS_EXHAUSTED: "preempt-attempts",
        Outcome.ASK_MAY_NOT_PREEMPT: "preempt-precondition",
        Outcome.ALREADY_TRIGGERED: "preempt-precondition",
        Outcome.REQUIRED_NODE: "preempt-precondition",
        Outcome.TOO_YOUNG: "preempt-precondition",
        Outcome.NO_GUARANTEE: "preempt-guarantee",
        Outcome.ASK_EXCEEDS_GUARANTEE: "preempt-guarantee",
        Outcome.NOT_UNDER_GUARANTEE: "preempt-guarantee",
        Outcome.VICTIM_RELEASED: "preempt-victim-gone",
        Outcome.FENCED_AT_LEAF: "preempt-no-help",
        Outcome.NO_CANDIDATES: "preempt-no-help",
        Outcome.NO_NODE: "preempt-no-help",
        Outcome.PREDICATE_REFUSED: "preempt-no-help",
        Outcome.BUDGET_SPENT: "preempt-paused",
        Outcome.COOLING_DOWN: "preempt-paused",
        Outcome.LOOP: "preempt-paused",
        Outcome.ROUND_LIMIT: "preempt-paused",
        Outcome.VICTIM_LIMIT: "preempt-paused",
        Outcome.POLICY_OFF: "preempt-precondition",
        Outcome.SHADOW: "preempt-shadow",
        Outcome.USER_QUOTA: "preempt-user-quota",
        Outcome.NO_VICTIM_REQUIRED_NODE: "required-node-no-victim",
    }
)


def note(ask: Allocation, message: str, now_ns: int) -> None:
    """*ask* was tried and not placed because of *message*."""
    if ask.failures is None:
        ask.failures = FailureLog()
    ask.failures.note(message, now_ns)


def note_unplaced(ask: Allocation, reason: Unschedulable, now_ns: int) -> None:
    """The cycle found no place for *ask*."""
    text = TEXTS.get(reason)
    if text is not None:
        note(ask, text, now_ns)


def note_preemption(ask: Allocation, outcome: Outcome, now_ns: int) -> None:
    """An attempt to preempt for *ask* came to nothing."""
    token = _PREEMPTION.get(outcome)
    if token is not None:
        note(ask, f"{token}: {outcome}", now_ns)
