"""Turns effects of the engine that are worth keeping into records of the history, which are rows of its tables.

The laws of a decision are those that bind its kind (preemption.md A.0). Times are Unix nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import chain, compress, groupby
from operator import is_, itemgetter, not_
from sys import getsizeof
from typing import Any, Final, TypeAlias

import orjson

from kornel.core.archive.tables import TABLES
from kornel.core.archive.usage_samples import UsageSample
from kornel.core.config.text.problems import Problem
from kornel.core.domain.effects import (
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationRemoved,
    ApplicationUpdated,
    AsksRecorded,
    Effect,
    EventRecorded,
    PlacementsRecorded,
    PreemptionDecided,
    RemovalsRecorded,
    VictimRecord,
)
from kornel.core.domain.history.event_records import (
    ASK_VALUES,
    PLACEMENT_VALUES,
    RECORDS,
    REMOVAL_VALUES,
    count_events,
    select_runs,
    split_columns,
    unpack_effects,
)
from kornel.core.domain.names import cut_name
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources, amounts_of, clamp_int64
from kornel.core.preemption.registry import laws_of
from kornel.core.service.configuration.configuration_history import Version

RECORD_BYTES: Final = 128
"""The approximate memory of a record without its texts."""


Kept: TypeAlias = (
    ApplicationAccepted
    | ApplicationRejected
    | ApplicationUpdated
    | ApplicationRemoved
    | EventRecorded
    | AsksRecorded
    | PlacementsRecorded
    | RemovalsRecorded
    | PreemptionDecided
    | Version
    | UsageSample
)
Row: TypeAlias = tuple[Any, ...]
"""The columns of a record from ``at_ns`` on."""

_APPLICATIONS, _PREEMPTIONS, _EVENTS, _CONFIGURATIONS, _USAGE = range(len(TABLES))
_OLDER_PLACEMENTS, _AMOUNTS, _ASKS, _PLACEMENTS, _REMOVALS = range(len(TABLES), len(TABLES) + 5)
"""These stand in the spool in place of a table: for placements as an earlier version wrote them, for the amounts of a
frame, and for asks, placements and removals, which become events in the database."""

_UNTOLD: Final = frozenset(Outcome) - {
    Outcome.TRIGGERED,
    Outcome.NOTIFIED,
    Outcome.WITHDRAWN,
    Outcome.OBSERVED,
    Outcome.SHADOW,
    Outcome.VICTIM_STUCK,
    Outcome.UNIT_CALLED_OFF,
    Outcome.LAW_BROKEN,
    Outcome.BUDGET_SPENT,
    Outcome.COOLING_DOWN,
    Outcome.LOOP,
    Outcome.ROUND_LIMIT,
    Outcome.VICTIM_LIMIT,
}
"""The outcomes of attempts that are not kept: a waiting ask makes one every few seconds, and explanations show them."""


def worth_keeping(effects: Sequence[Effect], *, events: bool = True) -> list[Kept]:
    """Returns the records of those *effects* that belong to the history, in order. Without *events*, events are left
    out."""
    kinds = _KINDS if events else _KINDS_BUT_EVENTS
    # This takes no step of Python for each effect, because there may be hundreds of thousands.
    kept: list[Kept] = list(compress(effects, map(kinds.__contains__, map(type, effects))))  # type: ignore[arg-type]
    if PreemptionDecided in map(type, kept):
        kept = [each for each in kept if type(each) is not PreemptionDecided or _is_kept(each)]
    return kept


def count_entries(kept: Sequence[Kept]) -> int:
    """Returns the number of entries that *kept* are or stand for: an ask and a placement are one each."""
    runs = select_runs(kept)
    return len(kept) - len(runs) + sum(map(_count_entries_of, runs))


def split_entries(kept: Sequence[Kept], most: int) -> tuple[Sequence[Kept], Sequence[Kept]]:
    """Returns the first *most* entries of *kept*, and the rest."""
    for at, each in enumerate(kept):
        entries = _count_entries_of(each)
        if entries > most:
            if not most:
                return kept[:at], kept[at:]
            first, rest = _cut_run(each, 0, most), _cut_run(each, most, entries)
            return [*kept[:at], first], [rest, *kept[at + 1 :]]
        most -= entries
    return kept, ()


def take_apart(kept: Iterable[Kept]) -> Iterator[Kept]:
    """Yields *kept* entry by entry."""
    for each in kept:
        if type(each) in _WIDTHS:
            for at in range(_count_entries_of(each)):
                yield _cut_run(each, at, at + 1)
        else:
            yield each


def _count_entries_of(each: Any) -> int:
    width = _WIDTHS.get(type(each))
    return 1 if width is None else len(each.values) // width


def _cut_run(run: Any, start: int, end: int) -> Kept:
    """Returns the entries from *start* to *end* of *run*, a record of several entries."""
    width = _WIDTHS[type(run)]
    cut: Kept = run._replace(values=run.values[width * start : width * end])
    return cut


def count_bytes(kept: Sequence[Kept]) -> int:
    """Returns the approximate memory of *kept*. A text that several of them share counts for each, so the result is
    rather too large."""
    total = RECORD_BYTES * len(kept)
    for kind in set(map(type, kept)):
        group = compress(kept, map(partial(is_, kind), map(type, kept)))
        if kind in _WIDTHS:
            total += sum(map(_count_values, group))
            continue
        texts = _TEXTS.get(kind)
        if texts is not None:  # Nearly all records are of these kinds, so Python code does not run for each of them.
            total += sum(map(getsizeof, chain.from_iterable(map(texts, group))))
        else:
            total += sum(map(_count_parts, group))
    return total


def _count_values(run: Any) -> int:
    return RECORD_BYTES * (_count_entries_of(run) - 1) + sum(map(getsizeof, run.values))


def _count_parts(each: Any) -> int:
    if type(each) is Version:
        return getsizeof(each.text) + sum(getsizeof(problem.message) for problem in each.problems)
    victims: Sequence[VictimRecord] = each.victims if type(each) is PreemptionDecided else ()
    return sum(map(getsizeof, chain(each, *victims)))


def encode_batch(batch: Iterable[tuple[int, Sequence[Kept]]], first: int) -> tuple[int, bytes]:
    """Returns the number of records in *batch*, which are numbered from *first* on, and their bytes for the spool.

    *batch*: effects with their times. Raises ``orjson.JSONEncodeError`` for text that is not valid Unicode, and other
    errors for an invalid record. Nearly all records are events, and the engine waits in the meantime, so they are
    encoded in columns, without a step of Python for each. A column with a single value has that value in all rows.
    """
    groups: list[tuple[int, Sequence[Any]]] = []
    records = 0
    runs: list[tuple[int, list[int]]] = []
    known: dict[int, Resources] = {}
    for at_ns, kept in batch:
        for kind, group in groupby(_put_applications_first(kept), type):
            if kind is EventRecorded:
                columns = tuple(zip(*group, strict=True))
                records += len(columns[0])
                at, *others, message = _EVENT_COLUMNS(columns)
                groups.append((_EVENTS, (_shorten_column(at), *others, _shorten_column(message))))
                continue
            if kind in _WIDTHS:
                run: Any
                for run in group:
                    *others, amounts = split_columns(run.values, _WIDTHS[kind])
                    identities = list(map(id, amounts))
                    known.update(zip(identities, amounts, strict=True))
                    records += count_events(run)
                    runs.append((len(groups), identities))
                    groups.append((_RUNS[kind], [run.at_ns, *others]))
                continue
            rows: list[Row] = []
            if kind is ApplicationUpdated:
                rows += map(_UPDATED_COLUMNS, group)
            else:
                for each in group:
                    rows += _ROWS[kind](each, at_ns, first + records + len(rows))
            records += len(rows)
            groups.append((_TABLE_OF[kind], rows))
    if runs:
        # There are few different amounts, so each is written once, and asks and placements have its number.
        numbers = dict(zip(known, range(len(known)), strict=True))
        for place, identities in runs:
            groups[place][1].append(list(map(numbers.__getitem__, identities)))  # type: ignore[attr-defined]  # a list
        groups.insert(0, (_AMOUNTS, list(known.values())))
    return records, orjson.dumps(groups, default=amounts_of)


def _put_applications_first(kept: Sequence[Kept]) -> Iterable[Kept]:
    """Returns *kept* with the records of applications before all others. The records of each table keep their order,
    and there are fewer and longer runs of one kind: many events are about an application that changes its state."""
    of_applications = list(map(_ABOUT_APPLICATIONS.__contains__, map(type, kept)))
    if True not in of_applications:
        return kept
    return chain(compress(kept, of_applications), compress(kept, map(not_, of_applications)))


def mend_text(each: Kept) -> Kept:
    """Returns *each* with texts that can be encoded as UTF-8: halves of surrogate pairs become question marks."""
    whole: Kept = _mend_record(each)
    return whole


def _mend_record(value: Any) -> Any:
    if type(value) is str:
        return value.encode(errors="replace").decode()
    if isinstance(value, list):
        return list(map(_mend_record, value))
    if isinstance(value, tuple):
        parts = map(_mend_record, value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, Version | Problem):
        return replace(value, **{field.name: _mend_record(getattr(value, field.name)) for field in fields(value)})
    return value


def decode_batch(payload: bytes) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yields the table and the columns from ``at_ns`` on of each record that :func:`encode_batch` wrote."""
    zeros = b"\\u0000" in payload
    amounts: list[str] = []
    for table, rows in orjson.loads(payload):
        if table == _AMOUNTS:
            amounts = list(map(_write_amounts, rows))
            continue
        if table >= _OLDER_PLACEMENTS:
            for row in _EVENTS_OF[table](rows, amounts):
                yield _EVENTS, [_clean_text(value) for value in row] if zeros else row
            continue
        if table == _EVENTS:
            records = len(rows[_EVENT_OBJECTS])
            for column in (_EVENT_TIMES, _EVENT_MESSAGES):
                if len(rows[column]) == 1:
                    rows[column] *= records
            rows[_EVENT_RESOURCES] = map(_write_amounts, rows[_EVENT_RESOURCES])
        if table == _CONFIGURATIONS:
            # An older version, which wrote them to the spool, had fewer columns.
            rows = [[*row, *[""] * (_CONFIGURATION_WIDTH - len(row))] for row in rows]  # noqa: PLW2901
        for row in zip(*rows, strict=True) if table == _EVENTS else rows:
            yield table, [_clean_text(value) for value in row] if zeros else row


def _unpack_older_placements(columns: Sequence[Any], _: Sequence[str]) -> Iterator[Row]:
    """Yields the rows of events that placements stand for, as an earlier version wrote them."""
    ats, *others, amounts = columns
    if len(ats) == 1:
        ats *= len(amounts)
    for at_ns, *placement in zip(ats, *others, map(_write_amounts, amounts), strict=True):
        yield from map(_EVENT_COLUMNS, unpack_effects([PlacementsRecorded(at_ns, placement)]))


def _unpack_run(
    kind: type[AsksRecorded | PlacementsRecorded | RemovalsRecorded], columns: Sequence[Any], amounts: Sequence[str]
) -> Iterator[Row]:
    """Returns the rows of events about asks or placements."""
    at_ns, *others, numbers = columns
    values = list(chain.from_iterable(zip(*others, map(amounts.__getitem__, numbers), strict=True)))
    return map(_EVENT_COLUMNS, unpack_effects([kind(at_ns, values)]))


def _shorten_column(column: Row) -> Row:
    """Returns *column* as a single value if all are equal. Most slices have one time and no messages, so this saves two
    thirds of the bytes."""
    return column[:1] if column.count(column[0]) == len(column) else column


def _is_kept(decision: PreemptionDecided) -> bool:
    return bool(decision.victims) or decision.outcome not in _UNTOLD


def _write_amounts(amounts: dict[str, int] | None) -> str:
    if amounts is None:
        return ""
    return orjson.dumps(
        {name: clamp_int64(amount) for name, amount in amounts.items()}, option=orjson.OPT_SORT_KEYS
    ).decode()


def _clean_text(value: Any) -> Any:
    return value.replace("\x00", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value


def _accepted_row(effect: ApplicationAccepted, at_ns: int, _seq: int) -> list[Row]:
    return [
        (
            at_ns, effect.partition, effect.application_id, effect.queue, effect.user, "New", at_ns, "",
        )
    ]  # fmt: skip


def _rejected_row(effect: ApplicationRejected, at_ns: int, _seq: int) -> list[Row]:
    return [
        (
            at_ns, cut_name(effect.partition), cut_name(effect.application_id), cut_name(effect.queue),
            cut_name(effect.user), "Rejected", at_ns,
            effect.reason,
        )
    ]  # fmt: skip


def _removed_row(effect: ApplicationRemoved, _at_ns: int, _seq: int) -> list[Row]:
    return [
        (
            effect.at_ns, effect.partition, effect.application_id, effect.queue, effect.user, "Removed",
            effect.submitted_ns, f"removed by its resource manager while {effect.state}",
        )
    ]  # fmt: skip


def _decided_row(effect: PreemptionDecided, _at_ns: int, seq: int) -> list[Row]:
    shared = (
        effect.at_ns, effect.partition, seq, effect.kind, laws_of(effect.kind), str(effect.outcome),
        effect.detail, effect.key, effect.application_id, effect.queue, effect.node_id,
    )  # fmt: skip
    if not effect.victims:
        return [(*shared, "", "", "", "", "", 0)]
    return [(*shared, *_victim_row(victim)) for victim in effect.victims]


def _victim_row(victim: VictimRecord) -> tuple[str, str, str, str, str, int]:
    return (
        victim.key,
        victim.application_id,
        victim.queue,
        victim.node_id,
        _write_amounts(victim.resources.as_dict()),
        clamp_int64(victim.adjusted_priority),
    )


def _configured_row(version: Version, _at_ns: int, _seq: int) -> list[Row]:
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
            version.at_ns, version.number, str(version.origin), version.rm_id, version.checksum,
            version.applied, version.reason, orjson.dumps(problems).decode(), version.text,
            version.principal, version.note,
        )
    ]  # fmt: skip


def _usage_row(sample: UsageSample, _at_ns: int, _seq: int) -> list[Row]:
    return [tuple(sample)]


_ROWS: Final[dict[type, Callable[[Any, int, int], list[Row]]]] = {
    ApplicationAccepted: _accepted_row,
    ApplicationRejected: _rejected_row,
    ApplicationRemoved: _removed_row,
    PreemptionDecided: _decided_row,
    Version: _configured_row,
    UsageSample: _usage_row,
}
_TABLE_OF: Final[dict[type, int]] = {
    ApplicationAccepted: _APPLICATIONS,
    ApplicationRejected: _APPLICATIONS,
    ApplicationUpdated: _APPLICATIONS,
    ApplicationRemoved: _APPLICATIONS,
    PreemptionDecided: _PREEMPTIONS,
    Version: _CONFIGURATIONS,
    UsageSample: _USAGE,
}
_EVENT_COLUMNS: Final[Callable[[Any], Row]] = itemgetter(
    *map(EventRecorded._fields.index, ("at_ns", "type", "change", "detail", "object_id", "reference_id")),
    *map(EventRecorded._fields.index, ("resources", "message")),
)
_UPDATED_COLUMNS: Final[Callable[[Any], Row]] = itemgetter(
    *map(ApplicationUpdated._fields.index, ("at_ns", "partition", "application_id", "queue", "user", "state")),
    *map(ApplicationUpdated._fields.index, ("submitted_ns", "message")),
)
_ABOUT_APPLICATIONS: Final = frozenset(kind for kind, table in _TABLE_OF.items() if table == _APPLICATIONS)
_TEXTS: Final[dict[type, Callable[[Any], Row]]] = {
    ApplicationAccepted: tuple,
    ApplicationUpdated: itemgetter(*map(ApplicationUpdated._fields.index, ("application_id", "message"))),
    EventRecorded: itemgetter(*map(EventRecorded._fields.index, ("object_id", "reference_id", "message"))),
}
_CONFIGURATION_WIDTH: Final = 11
"""The number of columns of a configuration from ``at_ns`` on."""
_EVENT_TIMES, _EVENT_OBJECTS, _EVENT_RESOURCES, _EVENT_MESSAGES = 0, 4, 6, 7
_KINDS_BUT_EVENTS: Final = frozenset(_TABLE_OF)
_KINDS: Final = _KINDS_BUT_EVENTS | RECORDS
_RUNS: Final[dict[type, int]] = {AsksRecorded: _ASKS, PlacementsRecorded: _PLACEMENTS, RemovalsRecorded: _REMOVALS}
_WIDTHS: Final[dict[type, int]] = {
    AsksRecorded: ASK_VALUES,
    PlacementsRecorded: PLACEMENT_VALUES,
    RemovalsRecorded: REMOVAL_VALUES,
}
"""The number of values of an entry, in effects that stand for several."""
_EVENTS_OF: Final[dict[int, Callable[[Sequence[Any], Sequence[str]], Iterator[Row]]]] = {
    _OLDER_PLACEMENTS: _unpack_older_placements,
    _ASKS: partial(_unpack_run, AsksRecorded),
    _PLACEMENTS: partial(_unpack_run, PlacementsRecorded),
    _REMOVALS: partial(_unpack_run, RemovalsRecorded),
}
