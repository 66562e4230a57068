"""The order of a leaf's applications. Rule: scheduling.md 5.2."""

from __future__ import annotations

from typing import Any, Final

from kornel.core.domain.settings import SortPolicy
from kornel.core.model.applications import Application

_FAIR: Final = SortPolicy.FAIR


def usage_shares(application: Application) -> tuple[float, ...]:
    """Returns the shares of what the application really holds against its leaf's guarantee, largest first, zeros left
    out.

    A type without guarantee contributes its raw amount, so that the type with the biggest numbers dominates
    (scheduling.md 2.5). Tuples compare as the rule compares share lists.
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


def application_key(application: Application) -> tuple[Any, ...]:
    """Returns the sort key within the leaf, smallest first; the policy of the leaf decides."""
    properties = application.queue.properties
    priority = -application.priority if properties.sort_by_priority else 0
    if properties.sort_policy is _FAIR:
        return (priority, usage_shares(application), application.submitted_ns, application.application_id)
    return (priority, application.submitted_ns, application.application_id)
