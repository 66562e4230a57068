"""Orders the applications of a leaf. Rule: scheduling.md 5.2."""

from __future__ import annotations

from typing import Any, Final

from kornel.core.domain.settings import SortPolicy
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.shapes import Pairs

_FAIR: Final = SortPolicy.FAIR


def usage_shares(application: Application, without: Pairs = ()) -> tuple[float, ...]:
    """Returns the shares that the real allocations of *application*, less the amounts *without*, have in the guarantee
    of its leaf, the largest first, without zeros.

    A type without a guarantee contributes its raw amount, so that the type with the largest numbers dominates
    (scheduling.md 2.5). Comparing the tuples gives the same result as the rule for lists of shares.
    """
    guaranteed, real = application.queue.guaranteed, application.real
    if without:
        real = real.copy()
        for t, amount in without:
            real[t] -= amount
    if not guaranteed:
        return tuple(sorted(map(float, filter(None, real)), reverse=True))
    shares = [amount / guaranteed[t] if t in guaranteed else float(amount) for t, amount in enumerate(real) if amount]
    shares.sort(reverse=True)
    return tuple(shares)


def application_turn_key(application: Application, rank: float | None = None, without: Pairs = ()) -> tuple[Any, ...]:
    """Returns the sort key of *application* among those of its leaf that have asks left to try, by its rank (or by
    *rank*) and the policy of the leaf, as if it did not hold the amounts *without*; the smallest comes first."""
    properties = application.queue.properties
    rank = -(application.rank if rank is None else rank) if properties.sort_by_priority else 0
    if properties.sort_policy is _FAIR:
        return (rank, usage_shares(application, without), application.submitted_ns, application.application_id)
    return (rank, application.submitted_ns, application.application_id)


def ask_turn_key(ask: Allocation) -> tuple[Any, ...]:
    """Returns the sort key of a pending *ask* among all of its leaf (scheduling.md 5.2, 5.3). What it is charged on a
    node while the shim is asked does not count against it."""
    charged = ask.shape.pairs if ask.held_on is not None and not ask.spec.placeholder else ()
    return (*application_turn_key(ask.application, ask.turn_priority, charged), *ask.order)


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
