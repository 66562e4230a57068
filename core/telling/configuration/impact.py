"""Defines the changes that a configuration would make to a running core, as plain values. Amounts are in base units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from kornel.core.domain.resources import NOTHING, Resources
from kornel.core.telling.what_if.supposition import Leaver


class QueueChangeKind(StrEnum):
    """The changes of a queue (config.md 7.5, 7.6)."""

    ADDED = "added"
    REMOVED = "removed"
    """The queue is no longer listed and is empty: the next cleaning removes it."""
    DRAINED = "drained"
    """The queue is no longer listed, but has live applications: it takes no new ones and is removed after the last
    one."""
    REACTIVATED = "reactivated"
    """The queue was draining and is listed again."""
    ADOPTED = "adopted"
    """The queue was dynamic and is listed now."""
    REPLACED = "replaced"
    """The queue was a leaf and becomes a parent, or the other way round."""
    CHANGED = "changed"


class SettingChange(NamedTuple):
    """One setting as text, before and after the change. Empty: not set."""

    name: str
    before: str
    after: str


class QueueChange(NamedTuple):
    """The change of one queue. ``applications``: the number of live ones in the queue and below."""

    partition: str
    path: str
    kind: QueueChangeKind
    applications: int
    settings: tuple[SettingChange, ...]


class PartitionChange(NamedTuple):
    """A partition that is added, is removed with everything in it, or changes its own settings."""

    partition: str
    added: bool
    removed: bool
    applications: int
    settings: tuple[SettingChange, ...]


class QuotaExcess(NamedTuple):
    """A queue that uses more of a type than its max would allow. ``already`` tells whether it is above its present max
    as well."""

    partition: str
    path: str
    type: str
    used: int
    max: int
    already: bool


class LimitExcess(NamedTuple):
    """A user or group that holds more than its limit would allow in a queue and below.

    ``type`` is empty for a limit on applications. ``already``: as in :class:`QuotaExcess`.
    """

    partition: str
    path: str
    kind: str
    name: str
    type: str
    used: int
    limit: int
    already: bool


class UnplacedApplication(NamedTuple):
    """An application that the new placement rules would reject if it were submitted again. It goes on running."""

    partition: str
    application_id: str
    queue: str
    reason: str


class QuotaEnforcement(NamedTuple):
    """A queue whose lowered max preemption would enforce after ``delay_ns``, as a trial on a copy found out.

    amounts  what it would hold above its max when its turn comes
    victims  the tasks that would have to leave
    freed    what these hold, of all types
    unmet    what would stay above the max
    reasons  why that would stay
    """

    partition: str
    path: str
    amounts: Resources
    delay_ns: int
    victims: tuple[Leaver, ...] = ()
    freed: Resources = NOTHING
    unmet: Resources = NOTHING
    reasons: tuple[str, ...] = ()


class Impact(NamedTuple):
    """All changes.

    refused  why the configuration would not be applied; then there are no changes
    untried  the queues, by partition, whose enforcement cannot be tried before their tasks are known
    """

    changed: bool
    checksum: str
    refused: tuple[str, ...] = ()
    partitions: tuple[PartitionChange, ...] = ()
    queues: tuple[QueueChange, ...] = ()
    quota_excesses: tuple[QuotaExcess, ...] = ()
    limit_excesses: tuple[LimitExcess, ...] = ()
    unplaced: tuple[UnplacedApplication, ...] = ()
    enforcements: tuple[QuotaEnforcement, ...] = ()
    untried: Mapping[str, Sequence[str]] = MappingProxyType({})
