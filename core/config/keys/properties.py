"""Queue properties: the meaning of each key, the inheritance by children, and the values of the texts.

A value that cannot be used never refuses a configuration: its default applies, and the queue that sets it gets a
warning. Rules: config.md 6.1 and 6.2, preemption.md 0.2 and D.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final

from kornel.core.config.text.fields import UINT64_MAX, Field
from kornel.core.config.text.yaml_reader import shorten_text
from kornel.core.domain.resources import Resources
from kornel.core.domain.settings import (
    DEFAULT_BACKOFF_DELAY_NS,
    DEFAULT_GANG_GATHER_NS,
    DEFAULT_PREEMPTION_DELAY_NS,
    DEFAULT_RESERVATION_TIMEOUT_NS,
    PreemptionPolicyKind,
    PreemptWithin,
    PriorityPolicy,
    QueueProperties,
    QuotaTimer,
    SortPolicy,
)
from kornel.shared.quantities import SECOND_NS, DelayTooLong, parse_delay, parse_duration, parse_quantity

SORT_POLICY: Final = "application.sort.policy"
SORT_BY_PRIORITY: Final = "application.sort.priority"
BACKOFF: Final = "application.unschedasks.backoff"
BACKOFF_DELAY: Final = "application.unschedasks.backoff.delay"
PRIORITY_POLICY: Final = "priority.policy"
PRIORITY_OFFSET: Final = "priority.offset"
PREEMPTION_POLICY: Final = "preemption.policy"
PREEMPTION_DELAY: Final = "preemption.delay"
PREEMPT_WITHIN: Final = "preemption.within"
PREEMPT_WITHIN_GAP: Final = "preemption.within.gap"
MIN_RUNTIME: Final = "preemption.min-runtime"
MIN_RUNTIME_MOST: Final = "preemption.min-runtime.most"
MAX_WAIT: Final = "preemption.max-wait"
QUOTA_DELAY: Final = "quota.preemption.delay"
QUOTA_TIMER: Final = "quota.preemption.timer"
QUOTA_MISS: Final = "quota.preemption.miss"
RESERVATION_TIMEOUT: Final = "reservation.timeout"
GANG_GATHER: Final = "gang.gather"
GANG_GRACE: Final = "gang.grace"
ORIGINATOR_MAX: Final = "originator.max"
USER_FACTOR: Final = "user-limit-factor"
USER_MINIMUM: Final = "minimum-user-limit-percent"

_SHORT_DELAY_NS: Final = 60 * SECOND_NS
_LONG_DELAY_NS: Final = 5 * 3600 * SECOND_NS

_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,30}", re.ASCII)
_UNSIGNED: Final = re.compile(r"[0-9]{1,30}", re.ASCII)
_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)


def inherited_properties(parent: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties that a child inherits, given its parent's effective ones; its own override these."""
    passed_on = dict(parent)
    if PRIORITY_POLICY in passed_on:
        passed_on[PRIORITY_POLICY] = PriorityPolicy.DEFAULT.value
    if PRIORITY_OFFSET in passed_on:
        passed_on[PRIORITY_OFFSET] = "0"
    if PREEMPTION_POLICY in passed_on:
        disabled = passed_on[PREEMPTION_POLICY].lower() == PreemptionPolicyKind.DISABLED.value
        kind = PreemptionPolicyKind.DISABLED if disabled else PreemptionPolicyKind.DEFAULT
        passed_on[PREEMPTION_POLICY] = kind.value
    return passed_on


def resolve_properties(effective: Mapping[str, str], *, leaf: bool) -> QueueProperties:
    """Returns the values in force for a queue with these *effective* texts; with defaults if a text is absent or cannot
    be used.

    ``preemption.delay``, the back-off and the limits of originators and users act on leaves only: on a parent they are
    only inherited.
    """
    values: dict[str, Any] = {key: default for key, (_, default) in _READERS.items()}
    for key, (read, _) in _READERS.items():
        if key not in effective or (not leaf and key in _LEAF_ONLY):
            continue
        try:
            values[key] = read(effective[key])
        except ValueError:
            continue
    return QueueProperties(
        sort_policy=SortPolicy(values[SORT_POLICY]),
        sort_by_priority=values[SORT_BY_PRIORITY],
        priority_policy=PriorityPolicy(values[PRIORITY_POLICY]),
        priority_offset=values[PRIORITY_OFFSET],
        preemption_policy=PreemptionPolicyKind(values[PREEMPTION_POLICY]),
        preemption_delay_ns=values[PREEMPTION_DELAY],
        preempt_within=PreemptWithin(values[PREEMPT_WITHIN]),
        preempt_within_gap=values[PREEMPT_WITHIN_GAP],
        min_runtime_ns=values[MIN_RUNTIME],
        min_runtime_most_ns=max(values[MIN_RUNTIME], values[MIN_RUNTIME_MOST]),
        max_wait_ns=values[MAX_WAIT],
        quota_preemption_delay_ns=values[QUOTA_DELAY],
        quota_preemption_timer=QuotaTimer(values[QUOTA_TIMER]),
        quota_preemption_miss=values[QUOTA_MISS],
        unschedulable_backoff=values[BACKOFF],
        unschedulable_backoff_delay_ns=values[BACKOFF_DELAY],
        reservation_timeout_ns=values[RESERVATION_TIMEOUT],
        gang_gather_ns=values[GANG_GATHER],
        gang_grace_ns=values[GANG_GRACE],
        originator_max=values[ORIGINATOR_MAX],
        user_factor=values[USER_FACTOR],
        user_minimum=values[USER_MINIMUM],
    )


class NotOffered(ValueError):
    """Raised for a value that is not offered yet, which refuses the configuration: no other stands in for it."""


class Resolver:
    """Resolves properties as :func:`resolve_properties` does, for many queues. Queues with equal properties get the
    same object."""

    def __init__(self) -> None:
        self._known: dict[tuple[bool, tuple[tuple[str, str], ...]], QueueProperties] = {}

    def __call__(self, effective: Mapping[str, str], *, leaf: bool) -> QueueProperties:
        key = leaf, tuple(effective.items())
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = resolve_properties(effective, leaf=leaf)
        return found


def check_properties(properties: Mapping[str, tuple[str, Field]]) -> None:
    """Warns of each of a queue's own *properties* that will not have its expected effect.

    The only errors are a number of seconds above 2^31-1 for the quota delay, and a way to preempt within a queue that
    this version does not have.
    """
    for key, (text, field) in properties.items():
        if key not in _READERS:
            field.warning(f"property {shorten_text(key)} has no meaning here; it is kept and inherited")
            continue
        read, default = _READERS[key]
        try:
            value = read(text)
        except (DelayTooLong, NotOffered) as error:
            field.error(str(error))
        except ValueError as error:
            field.warning(f"{error}; {_describe_problem(key, default)} is used instead")
        else:
            _advise_on_key(key, text, value, field)


def quota_delay_ns(text: str) -> int:
    """Returns the delay in nanoseconds; 0, which is off, for text that is not a delay above 0."""
    try:
        return max(0, parse_delay(text))
    except ValueError:
        return 0


def is_bare_delay(text: str) -> bool:
    """Tells whether *text* is a delay above 0 in seconds without their unit, which only the quota delay may be."""
    return _UNSIGNED.fullmatch(text) is not None and quota_delay_ns(text) > 0


def is_at_once(text: str) -> bool:
    """Tells whether *text* is a ``preemption.delay`` of 0."""
    try:
        return parse_duration(text) == 0
    except ValueError:
        return False


def _advise_on_key(key: str, text: str, value: str | int | bool, field: Field) -> None:
    if key == QUOTA_DELAY and 0 < int(value) < _SHORT_DELAY_NS:
        field.warning(f"a delay of {shorten_text(text)} leaves applications no time to shrink", "60s or more")
    elif key == QUOTA_DELAY and int(value) > _LONG_DELAY_NS:
        field.warning(
            f"a delay of {shorten_text(text)} keeps a lowered maximum from being enforced for long", "5h or less"
        )


def _describe_problem(key: str, default: Any) -> str:
    if default is None:
        return "no limit"
    if key == SORT_BY_PRIORITY:
        return "enabled"
    if key in (PREEMPTION_DELAY, BACKOFF_DELAY, RESERVATION_TIMEOUT, GANG_GATHER):
        return f"{int(default) // SECOND_NS}s"
    if key == MIN_RUNTIME_MOST:
        return f"the time of {MIN_RUNTIME}"
    return "0 (off)" if key in (QUOTA_DELAY, BACKOFF, GANG_GRACE, MIN_RUNTIME, MAX_WAIT) else str(default)


def _sort_policy(text: str) -> str:
    if not text:
        return SortPolicy.FIFO.value
    known = text in set(SortPolicy)
    return SortPolicy(text).value if known else _refuse_value(text, "fifo, fair or stateaware, in lower case")


def _read_enabled(text: str) -> bool:
    if text.lower() not in ("enabled", "disabled"):
        _refuse_value(text, "enabled or disabled")
    return text.lower() == "enabled"


def _one_of(*choices: str) -> Callable[[str], str]:
    """Returns a reader of one of the choices in any case; empty text stands for the first one."""

    def read(text: str) -> str:
        lower = text.lower() or choices[0]
        return lower if lower in choices else _refuse_value(text, f"one of {', '.join(choices)}")

    return read


def _read_within(text: str) -> str:
    if text.lower() == "fair":
        raise NotOffered(f"{PREEMPT_WITHIN} fair is not offered by this version, which has none and priority")
    return _one_of(*PreemptWithin)(text)


def _read_gap(text: str) -> int:
    if _UNSIGNED.fullmatch(text) and 1 <= int(text) < 2**32:
        return int(text)
    raise ValueError(f"{shorten_text(text)} is not a whole number from 1 to 2^32-1")


def _read_offset(text: str) -> int:
    if _INTEGER.fullmatch(text) and -(2**31) <= int(text) < 2**31:
        return int(text)
    raise ValueError(f"{shorten_text(text)} is not a whole number of 32 bits")


def _read_percent(text: str) -> int:
    if _UNSIGNED.fullmatch(text) and int(text) <= 100:
        return int(text)
    raise ValueError(f"{shorten_text(text)} is not a whole percentage from 0 to 100")


def read_originator_max(text: str) -> Fraction | Resources:
    """Returns a part of the max of a queue, given as a percentage, or amounts, given as under ``resources``. Raises
    ``ValueError`` for any other text."""
    if text.endswith("%"):
        percent = text.removesuffix("%").strip()
        if _DECIMAL.fullmatch(percent) and Fraction(percent) <= 100:
            return Fraction(percent) / 100
        raise ValueError(f"{shorten_text(text)} is not a percentage from 0% to 100%")
    bare = text.strip().removeprefix("{").removesuffix("}")
    amounts: dict[str, int] = {}
    for part in bare.split(","):
        name, colon, amount = (each.strip() for each in part.rpartition(":"))
        if not colon or not name or name in amounts:
            raise ValueError(f"{shorten_text(text)} is neither a percentage such as 20% nor amounts such as vcore: 4")
        amounts[name] = parse_quantity(name, amount)
    return Resources(amounts)


def _read_factor(text: str) -> Fraction | None:
    if text == "-1":
        return None
    if _DECIMAL.fullmatch(text) and Fraction(text) > 0:
        return Fraction(text)
    raise ValueError(f"{shorten_text(text)} is not a number above 0, or -1 for none")


def _read_count(text: str) -> int:
    if _UNSIGNED.fullmatch(text) and int(text) <= UINT64_MAX:
        return int(text)
    raise ValueError(f"{shorten_text(text)} is not a whole number from 0 to 2^64-1")


def _read_delay(text: str) -> int:
    delay = parse_duration(text)
    if delay <= 0:
        raise ValueError(f"duration {shorten_text(text)} is not above 0")
    return delay


def _read_age(text: str) -> int:
    """Returns an age in nanoseconds; 0 is at once."""
    delay = parse_duration(text)
    if delay < 0:
        raise ValueError(f"duration {shorten_text(text)} is below 0")
    return delay


def _quota_delay(text: str) -> int:
    delay = parse_delay(text)
    if delay < 0:
        raise ValueError(f"duration {shorten_text(text)} is below 0")
    return delay


def _refuse_value(text: str, expected: str) -> str:
    raise ValueError(f"{shorten_text(text)} is not {expected}")


_READERS: Final[Mapping[str, tuple[Callable[[str], Any], Any]]] = {
    SORT_POLICY: (_sort_policy, SortPolicy.FIFO.value),
    SORT_BY_PRIORITY: (_read_enabled, True),
    PRIORITY_POLICY: (_one_of("default", "fence"), PriorityPolicy.DEFAULT.value),
    PRIORITY_OFFSET: (_read_offset, 0),
    PREEMPTION_POLICY: (_one_of("default", "fence", "disabled"), PreemptionPolicyKind.DEFAULT.value),
    PREEMPTION_DELAY: (_read_age, DEFAULT_PREEMPTION_DELAY_NS),
    PREEMPT_WITHIN: (_read_within, PreemptWithin.NONE.value),
    PREEMPT_WITHIN_GAP: (_read_gap, 1),
    MIN_RUNTIME: (_read_age, 0),
    MIN_RUNTIME_MOST: (_read_age, 0),
    MAX_WAIT: (_read_age, 0),
    QUOTA_DELAY: (_quota_delay, 0),
    QUOTA_TIMER: (_one_of("reset", "adjust"), QuotaTimer.RESET.value),
    QUOTA_MISS: (_read_percent, 0),
    BACKOFF: (_read_count, 0),
    BACKOFF_DELAY: (_read_delay, DEFAULT_BACKOFF_DELAY_NS),
    RESERVATION_TIMEOUT: (_read_delay, DEFAULT_RESERVATION_TIMEOUT_NS),
    GANG_GATHER: (_read_age, DEFAULT_GANG_GATHER_NS),
    GANG_GRACE: (_read_age, 0),
    ORIGINATOR_MAX: (read_originator_max, None),
    USER_FACTOR: (_read_factor, None),
    USER_MINIMUM: (_read_percent, 100),
}
"""The reader of each known property, which raises ValueError, and its default."""

KEYS: Final = tuple(_READERS)
"""The properties that have a meaning."""
_LEAF_ONLY: Final = frozenset(
    {
        PREEMPTION_DELAY, PREEMPT_WITHIN, PREEMPT_WITHIN_GAP, BACKOFF, BACKOFF_DELAY, RESERVATION_TIMEOUT, GANG_GATHER,
        GANG_GRACE, ORIGINATOR_MAX, USER_FACTOR, USER_MINIMUM,
    }
)  # fmt: skip
