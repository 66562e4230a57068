"""Orders the applications of a leaf. Rule: scheduling.md 5.2."""

from __future__ import annotations

from typing import Any, Final

from kornel.core.domain.settings import SortPolicy
from kornel.core.model.applications import Application

_FAIR: Final = SortPolicy.FAIR


def usage_shares(application: Application) -> tuple[float, ...]:
    """Returns the shares that the real allocations of *application* have in the guarantee of its leaf, the largest
    first, without zeros.

    A type without a guarantee contributes its raw amount, so that the type with the largest numbers dominates
    (scheduling.md 2.5). Comparing the tuples gives the same result as the rule for lists of shares.
    """
    guaranteed = application.queue.guaranteed
    if not guaranteed:
        return tuple(sorted(map(float, filter(None, application.real)), reverse=True))
    shares = [
        amount / guaranteed[t] if t in guaranteed else float(amount)
        for t, amount in enumerate(application.real)
        if amount
    ]
    shares.sort(reverse=True)
    return tuple(shares)


def application_turn_key(application: Application, rank: float | None = None) -> tuple[Any, ...]:
    """Returns the sort key of *application* among those of its leaf that have asks left to try, by its rank (or by
    *rank*) and the policy of the leaf; the smallest comes first."""
    properties = application.queue.properties
    rank = -(application.rank if rank is None else rank) if properties.sort_by_priority else 0
    if properties.sort_policy is _FAIR:
        return (rank, usage_shares(application), application.submitted_ns, application.application_id)
    return (rank, application.submitted_ns, application.application_id)


def newcomer_key(application: Application) -> tuple[Any, ...]:
    """Returns the sort key of *application* among those of a ``stateaware`` leaf that may start: like
    :func:`application_key`, with the priorities of asks that save room, which lend none."""
    _, *policy = application_turn_key(application)
    priority = max([application.priority, *(ask.spec.priority for ask in application.savers)])
    return (-priority if application.queue.properties.sort_by_priority else 0, *policy)


def application_key(application: Application) -> tuple[Any, ...]:
    """Returns the sort key of *application* among those of its leaf that wait or hold room, by the priority that it
    shows instead of its rank."""
    _, *policy = application_turn_key(application)
    return (-application.priority if application.queue.properties.sort_by_priority else 0, *policy)
