"""Snapshots of a whole engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kornel.core.engine.engine import Engine
from kornel.core.snapshot.kept import Kept
from kornel.core.snapshot.reading import SnapshotUnreadable, read_objects
from kornel.core.snapshot.schema import SCHEMA
from kornel.core.snapshot.writing import write_objects
from kornel.v1 import snapshot_pb2 as pb

ENGINE: Final = Kept(
    Engine,
    "rm_id manager checksum configuration extra_config unrouted"
    " _options _outbox _partitions _operator_drains _callbacks _keeps_events",
    # Parts that are built or read in advance are hints, and parts that are still to be freed decide nothing.
    wiring="_handlers _observer _prepared _built _remains",
)
"""The fields of an engine. It is no row of the tables, because the caller that restores it supplies the engine."""


def has_work_under_way(engine: Engine) -> bool:
    """Tells whether *engine* has work that continues from slice to slice, so that no snapshot can be taken until it is
    done."""
    for name in engine.partition_names():
        state = engine.partition(name)
        assert state is not None, "it is one of its partitions"
        steps = (state.fair_terms_steps, state.cleaning, state.notices.steps, state.enforcement.run)
        searches = [attempt.search for attempt in state.gangs.attempts.values()]
        if any(work is not None for work in (*steps, *searches, state.reserving.line)):
            return True
    return False


def write_engine(engine: Engine, *besides: object) -> pb.SnapshotState:
    """Returns a snapshot of *engine*, which must be between two calls, and of the objects *besides*, which may refer to
    parts of it.

    Raises :class:`kornel.core.snapshot.writing.WorkUnderWay` and
    :class:`kornel.core.snapshot.writing.UnknownState`.
    """
    return write_objects(SCHEMA, ({name: getattr(engine, name) for name in ENGINE.fields}, *besides))


def restore_engine(engine: Engine, state: pb.SnapshotState) -> Sequence[Any]:
    """Gives *engine*, which has to be new, the state in *state*. Returns the objects that were written with it.

    Raises :class:`kornel.core.snapshot.reading.SnapshotUnreadable`; *engine* is then as good as new.
    """
    fields, *besides = read_objects(SCHEMA, state)
    if lacking := [name for name in ENGINE.fields if name not in fields]:
        raise SnapshotUnreadable(f"Engine has no {lacking[0]}")
    for name in ENGINE.fields:
        setattr(engine, name, fields[name])
    for partition in fields["_partitions"].values():
        partition.follow_types()
    return besides


def move_engine(source: Engine, target: Engine) -> None:
    """Moves the state of *source*, which must not be used any more, to *target*, which has to be new."""
    for name in ENGINE.fields:
        setattr(target, name, getattr(source, name))
