"""Defines suppositions about the present partition, for what-if questions, and their forecasts, as plain values.

Amounts are in base units, times Unix nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kornel.core.domain.resources import Resources


class SupposeAsk(NamedTuple):
    """Supposes that ``asks`` equal asks arrive, for an existing application or for a new one that names ``queue``.

    application_id  the ID of a live application; empty: a new one of ``user`` and ``groups``, placed as if it were
                    submitted. Without a user, it enters the leaf that it names, whoever may submit there
    """

    resources: Resources
    queue: str = ""
    application_id: str = ""
    asks: int = 1
    priority: int = 0
    required_node: str = ""
    allow_preempt_other: bool = True
    user: str = ""
    groups: tuple[str, ...] = ()
    unresolved: str = ""
    """Says why the groups of the user were not found; the submission would be rejected for it."""
    gang: bool = False
    """Tells whether the asks are the members of a Hard gang of a new application, which are placed together or not at
    all."""
    tags: tuple[tuple[str, str], ...] = ()


class SupposeNodeLost(NamedTuple):
    """Supposes that a node is lost, and that everything that ran there is asked for again."""

    node_id: str


class SupposeQuota(NamedTuple):
    """Supposes that a queue has another max or guarantee for the given types; ``None``: it has none."""

    queue: str
    max: Mapping[str, int | None]
    guaranteed: Mapping[str, int | None]


class SupposePriority(NamedTuple):
    """Supposes that an ask or allocation has another priority."""

    key: str
    priority: int


Supposition = SupposeAsk | SupposeNodeLost | SupposeQuota | SupposePriority


class Leaver(NamedTuple):
    """An allocation that would have to leave, with whom it concerns; the adjusted priority is the one that counts for
    the preempting queue."""

    key: str
    application_id: str
    queue: str
    node_id: str
    resources: Resources
    adjusted_priority: int
    user: str
    priority: int
    originator: bool


class Placed(NamedTuple):
    """An ask that would be placed on ``node_id`` at once. Keys of supposed asks are ``what-if-1`` and so on."""

    key: str
    application_id: str
    queue: str
    node_id: str
    user: str = ""


class Preempts(NamedTuple):
    """An ask that would find no room, and would preempt ``victims`` for room on ``node_id``, not before
    ``not_before_ns``."""

    key: str
    application_id: str
    queue: str
    node_id: str
    not_before_ns: int
    kind: str
    victims: tuple[Leaver, ...]
    user: str = ""


class Waits(NamedTuple):
    """Asks that would wait: ``asks`` equal ones, of which ``key`` is the first.

    reason      why no room was found (:class:`kornel.core.domain.reasons.Unschedulable`)
    preemption  why preemption would release nothing for them
    already     they wait now, too
    """

    key: str
    application_id: str
    queue: str
    asks: int
    reason: str
    preemption: str
    user: str = ""
    already: bool = False


class Enforced(NamedTuple):
    """A queue that would hold more than its max. ``victims`` would be released for that, not before ``not_before_ns``.

    not_before_ns ``None``: the max would not be enforced, and only further placements would stop; ``reason`` says why.
    """

    queue: str
    excess: Resources
    not_before_ns: int | None
    victims: tuple[Leaver, ...]
    unmet: Resources
    reason: str = ""


class Forecast(NamedTuple):
    """The consequences of a supposition, in the order of the decisions.

    displaced  the allocations on a lost node that would be asked for again
    position   for a changed priority, the position among all pending asks of the partition; 0: not asked for
    complete   ``False``: the search was cut short, and ``notes`` say where
    rejected   why a submission would be rejected, as the shim would hear it; the answer holds nothing else then
    """

    placed: tuple[Placed, ...] = ()
    preempts: tuple[Preempts, ...] = ()
    waits: tuple[Waits, ...] = ()
    enforced: tuple[Enforced, ...] = ()
    displaced: tuple[str, ...] = ()
    position: int = 0
    complete: bool = True
    notes: tuple[str, ...] = ()
    rejected: str = ""
