"""What of the engine's effects is worth keeping, as rows of the history's tables.

Laws of a decision: those that its kind has to obey (preemption.md A.0). Times: Unix nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson

from core.archive.tables import TABLES
from core.domain.effects import (
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationUpdated,
    Effect,
    EventRecorded,
    PreemptionDecided,
    VictimRecord,
)
from core.domain.reasons import Outcome
from core.domain.resources import Resources, clamp
from core.service.configuration_history import Version

Kept: TypeAlias = (
    ApplicationAccepted | ApplicationRejected | ApplicationUpdated | EventRecorded | PreemptionDecided | Version
)
Row: TypeAlias = tuple[Any, ...]
"""Number of the table, then its columns from ``at_ns`` on."""

_APPLICATIONS, _PREEMPTIONS, _EVENTS, _CONFIGURATIONS = range(len(TABLES))

LAWS: Final = {
    "guarantee": "1 2 3 4 5 6 7",
    "required-node": "1 6",
    "quota": "1 2 5",
    "monitor": "1 2 4 5 6 7",
}
"""Which laws bind which kind; other kinds take nobody's room."""

_UNTOLD: Final = frozenset(Outcome) - {
    Outcome.TRIGGERED,
    Outcome.NOTIFIED,
    Outcome.WITHDRAWN,
    Outcome.OBSERVED,
    Outcome.SHADOW,
    Outcome.VICTIM_STUCK,
    Outcome.LAW_BROKEN,
    Outcome.BUDGET_SPENT,
    Outcome.COOLING_DOWN,
    Outcome.LOOP,
}
"""How attempts end that nobody felt: an ask that waits makes one every few seconds, and Explain tells of them."""


def worth_keeping(effects: Iterable[Effect]) -> list[Kept]:
    """Those of *effects* that belong to the history, in order."""
    kept: list[Kept] = []
    for effect in effects:
        if type(effect) not in _ROWS:
            continue
        if type(effect) is PreemptionDecided and not effect.victims and effect.outcome in _UNTOLD:
            continue
        kept.append(effect)  # type: ignore[arg-type]  # _ROWS has exactly these types
    return kept


def rows_of(kept: Kept, at_ns: int, seq: int) -> list[Row]:
    """*kept* as rows, at least one. *at_ns*: when it was seen; *seq*: number that the first row will have."""
    return _ROWS[type(kept)](kept, at_ns, seq)


def encoded(rows: list[Row]) -> bytes:
    """*rows* for the spool. Raises ``orjson.JSONEncodeError`` for text that is no Unicode."""
    return orjson.dumps(rows)


def decoded(payload: bytes) -> list[list[Any]]:
    """What :func:`encoded` was given, without the zero characters that databases do not take."""
    rows: list[list[Any]] = orjson.loads(payload)
    if b"\\u0000" in payload:
        return [[_clean(value) for value in row] for row in rows]
    return rows


def _clean(value: Any) -> Any:
    return value.replace("\x00", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value


def _accepted(effect: ApplicationAccepted, at_ns: int, _seq: int) -> list[Row]:
    return [
        (
            _APPLICATIONS, at_ns, effect.partition, effect.application_id, effect.queue, effect.user, "New", at_ns, "",
        )
    ]  # fmt: skip


def _rejected(effect: ApplicationRejected, at_ns: int, _seq: int) -> list[Row]:
    return [
        (
            _APPLICATIONS, at_ns, effect.partition, effect.application_id, effect.queue, effect.user, "Rejected", at_ns,
            effect.reason,
        )
    ]  # fmt: skip


def _updated(effect: ApplicationUpdated, _at_ns: int, _seq: int) -> list[Row]:
    return [
        (
            _APPLICATIONS, effect.at_ns, effect.partition, effect.application_id, effect.queue, effect.user,
            str(effect.state), effect.submitted_ns, effect.message,
        )
    ]  # fmt: skip


def _decided(effect: PreemptionDecided, _at_ns: int, seq: int) -> list[Row]:
    shared = (
        _PREEMPTIONS, effect.at_ns, effect.partition, seq, effect.kind, LAWS.get(effect.kind, ""), str(effect.outcome),
        effect.detail, effect.key, effect.application_id, effect.queue, effect.node_id,
    )  # fmt: skip
    if not effect.victims:
        return [(*shared, "", "", "", "", "", 0)]
    return [(*shared, *_victim(victim)) for victim in effect.victims]


def _victim(victim: VictimRecord) -> tuple[str, str, str, str, str, int]:
    return (
        victim.key,
        victim.application_id,
        victim.queue,
        victim.node_id,
        _amounts(victim.resources),
        clamp(victim.adjusted_priority),
    )


def _recorded(effect: EventRecorded, _at_ns: int, _seq: int) -> list[Row]:
    return [
        (
            _EVENTS, effect.at_ns, int(effect.type), int(effect.change), int(effect.detail), effect.object_id,
            effect.reference_id, "" if effect.resources is None else _amounts(effect.resources), effect.message,
        )
    ]  # fmt: skip


def _configured(version: Version, _at_ns: int, _seq: int) -> list[Row]:
    problems = [
        {
            "severity": str(problem.severity),
            "line": problem.line,
            "column": problem.column,
            "path": problem.path,
            "message": problem.message,
            "expected": problem.expected,
        }
        for problem in version.problems
    ]
    return [
        (
            _CONFIGURATIONS, version.at_ns, version.number, str(version.origin), version.rm_id, version.checksum,
            version.applied, version.reason, orjson.dumps(problems).decode(), version.text,
        )
    ]  # fmt: skip


@lru_cache(4_096)
def _amounts(resources: Resources) -> str:
    return orjson.dumps(
        {name: clamp(amount) for name, amount in resources.items()}, option=orjson.OPT_SORT_KEYS
    ).decode()


_ROWS: Final[dict[type, Callable[[Any, int, int], list[Row]]]] = {
    ApplicationAccepted: _accepted,
    ApplicationRejected: _rejected,
    ApplicationUpdated: _updated,
    PreemptionDecided: _decided,
    EventRecorded: _recorded,
    Version: _configured,
}
