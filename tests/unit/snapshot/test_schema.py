"""The tables name every class, field and shared object of an engine's state."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from functools import partial

import pytest

from kornel.core.domain.commands import RegisterManager
from kornel.core.engine.engine import Engine
from kornel.core.model.allocations import NO_VICTIMS
from kornel.core.preemption.monitor.selection.settings import MonitorSettings
from kornel.core.snapshot.engines import ENGINE, has_work_under_way, restore_engine, write_engine
from kornel.core.snapshot.kept import Kept, Schema, declared_fields
from kornel.core.snapshot.reading import SnapshotUnreadable, read_objects
from kornel.core.snapshot.schema import SCHEMA
from kornel.core.snapshot.writing import FIXED, FoundObjects, UnknownState, WorkUnderWay, check_fields, write_objects
from tests.properties.machine import driver
from tests.properties.machine.world import World
from tests.properties.test_snapshots import RUNS

SHARED_VALUES = {
    "kornel.core.domain.access.NOBODY", "kornel.core.domain.settings.DEFAULT_GOVERNOR",
    "kornel.core.policies.gang_nodes.NONE_REFUSED", "kornel.core.state.records.governor_books.CLUSTER",
    "kornel.core.preemption.quota.shares.NONE_STAYING", "kornel.core.domain.preemption_kinds.NAMES",
}  # fmt: skip
"""Objects of modules that are values only: nobody asks whether something is one of them, so copies do as well."""


def _fields_of(cls: type) -> frozenset[str]:
    """Returns the fields that every object of *cls* has, as far as the class says."""
    if issubclass(cls, tuple):
        return frozenset(cls._fields)  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(cls):
        return frozenset(field.name for field in dataclasses.fields(cls))
    slots = {name for kind in cls.__mro__ for name in kind.__dict__.get("__slots__", ())}
    return frozenset(slots)


@pytest.mark.parametrize("row", SCHEMA.rows.values(), ids=lambda row: row.known_as)
def test_rows_name_each_field_once(row: Kept) -> None:
    """A field stands in one column of its row, and all that the class declares are there."""
    named = [*row.fields, *row.derived, *row.wiring.split(), *row.under_way.split()]
    assert len(named) == len(set(named))
    declared = _fields_of(row.cls)
    assert not declared or declared == set(named)
    assert set(row.defaults) <= set(row.fields)


def test_the_engine_names_each_field() -> None:
    """An engine has no field that its row does not name."""
    assert declared_fields(Engine()) == ENGINE.name_fields()


def _shared_objects() -> dict[int, str]:
    """Returns, by identity, what modules of the core keep that might stand in the state."""
    found: dict[int, str] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("kornel.core."):
            for attribute, value in vars(module).items():
                known = type(value) in (dict, list, set, frozenset, tuple) or type(value) in SCHEMA.rows
                if known and not any(value is fixed for fixed in FIXED):
                    found.setdefault(id(value), f"{name}.{attribute}")
    return found


def _objects_of(engine: Engine) -> Iterator[object]:
    found = FoundObjects(SCHEMA)
    found.collect(getattr(engine, name) for name in ENGINE.fields)
    for parts in (*found.records.values(), *found.values.values(), *found.lists.values(), *found.maps.values()):
        yield from parts
    yield from found.sets
    yield from found.deques


def test_objects_of_modules_are_known_by_name() -> None:
    """What all who have nothing share is the same object afterwards, where that could be asked for."""
    shared, met = _shared_objects(), set[str]()
    assert id(NO_VICTIMS) in shared

    class Watched(Engine):
        """Looks at its state now and then."""

        calls = 0

        def next_wakeup_ns(self) -> int | None:
            self.calls += 1
            if self.calls % 20 == 0 and not has_work_under_way(self):
                met.update(shared[id(part)] for part in _objects_of(self) if id(part) in shared)
            return super().next_wakeup_ns()

    for seed in RUNS[:2]:
        world = World()
        world.engine = Watched()
        driver.episode(f"determinism/{seed}", 300, world)
    assert met <= SHARED_VALUES


def _small_engine() -> Engine:
    engine = Engine()
    engine.apply(RegisterManager("rm"), 1)
    return engine


def test_what_no_table_names_is_refused() -> None:
    """A class that nobody thought of is not left out in silence."""

    class Newcomer:
        """Something new."""

    engine = _small_engine()
    engine.extra_config = {"a": "b", "new": Newcomer()}  # type: ignore[dict-item]
    with pytest.raises(UnknownState, match=r"Newcomer, in dict, is not in core/snapshot/schema\.py"):
        write_engine(engine)


def test_fields_that_no_row_names_are_refused() -> None:
    """A new field of a class without slots is found on a live object."""
    engine = _small_engine()
    state = engine.partition("[rm]default")
    assert state is not None
    check_fields(SCHEMA, state)
    state.governor.newly = 3  # type: ignore[attr-defined]
    with pytest.raises(UnknownState, match=r"GovernorBooks .* not named: \['newly'\]"):
        check_fields(SCHEMA, state.governor)


def test_closures_are_refused() -> None:
    """A timer is a call of a function that the tables name; a function within another one cannot be found again."""
    engine = _small_engine()
    state = engine.partition("[rm]default")
    assert state is not None
    state.run_at(5, lambda _: None)
    with pytest.raises(UnknownState, match=r"function .*<lambda>, in tuple, is not in"):
        write_engine(engine)


def test_work_under_way_is_no_state() -> None:
    """While something goes on from slice to slice there is no snapshot."""
    engine = _small_engine()
    state = engine.partition("[rm]default")
    assert state is not None
    assert not has_work_under_way(engine)
    state.cleaning = iter(())
    assert has_work_under_way(engine)
    with pytest.raises(WorkUnderWay, match=r"PartitionState\.cleaning"):
        write_engine(engine)


class _Thing:
    """A record of which there are two versions."""

    def __init__(self) -> None:
        self.kept = [1, 2]
        self.gone = "yes"
        self.new = 0


def _schema(*rows: Kept, version: int = 1) -> Schema:
    return Schema(version, rows, (), (dict,), {}, {"print": print})


def test_fields_come_and_go_between_versions() -> None:
    """A file of an earlier version is read with defaults for what it lacks, and without what is no more."""
    before = _schema(Kept(_Thing, "kept gone"))
    after = _schema(Kept(_Thing, "kept new", defaults={"new": 7}), version=2)
    (read,) = read_objects(after, write_objects(before, [_Thing()]))
    assert (read.kept, read.new, hasattr(read, "gone")) == ([1, 2], 7, False)
    with pytest.raises(SnapshotUnreadable, match="_Thing has no new"):
        read_objects(_schema(Kept(_Thing, "kept new")), write_objects(before, [_Thing()]))


def test_an_engine_whose_fields_have_come_since_is_refused() -> None:
    """Such as one of an earlier version without any partition, in which nothing else has changed."""
    fields = {name: getattr(Engine(), name) for name in ENGINE.fields if name != "_options"}
    with pytest.raises(SnapshotUnreadable, match="Engine has no _options"):
        restore_engine(Engine(), write_objects(SCHEMA, ({**fields, "_reservation_percent": 5},)))


def test_files_of_later_versions_are_refused() -> None:
    """What a later version wrote may mean something that this one does not know."""
    written = write_objects(_schema(Kept(_Thing, "kept gone new"), version=3), [_Thing()])
    with pytest.raises(SnapshotUnreadable, match="its tables are version 3, this core knows 2"):
        read_objects(_schema(Kept(_Thing, "kept gone new"), version=2), written)


def test_only_what_the_tables_name_is_made() -> None:
    """Neither a class nor a function comes into being because a file names it."""
    written = write_objects(_schema(Kept(_Thing, "kept gone new")), [_Thing(), partial(print, 1)])
    with pytest.raises(SnapshotUnreadable, match="class _Thing is unknown"):
        read_objects(Schema(1, (), (), (dict,), {}, {"print": print}), written)
    with pytest.raises(SnapshotUnreadable, match="print is unknown"):
        read_objects(Schema(1, (Kept(_Thing, "kept gone new"),), (), (dict,), {}, {}), written)


@pytest.mark.parametrize(
    "value",
    [
        2**70, -(2**63), [1, 2**64], 0.0, -0.0, [0.5, -0.0], (1, "a", None, 2.5), "\ud800", {"a": 1, 2: [None]},
        frozenset({1, "x"}), [True, 1, 1.0], [[], [[]]], {}, (), ((),), [(), (1,), (1, 2)],
    ],
)  # fmt: skip
def test_values_come_back_as_they_were(value: object) -> None:
    """Integers of any size, both zeros, texts of any kind, and containers in containers."""
    (read,) = read_objects(_schema(), write_objects(_schema(), [[value]]))
    assert repr(read) == repr([value])


def test_the_settings_of_a_monitor_come_back() -> None:
    """A core whose monitor is on makes snapshots, too."""
    engine = Engine()
    config = "{partitions: [{name: default, preemption: {monitor: {enabled: true}}, queues: [{name: root}]}]}"
    engine.apply(RegisterManager("rm", config), 0)
    engine.cycle(1, 1)
    engine.preempt(2)
    again = Engine()
    written = write_engine(engine)
    assert restore_engine(again, written) == []
    state = again.partition("[rm]default")
    assert state is not None
    assert state.notices.settings == MonitorSettings()
    assert write_engine(again) == written


def test_who_shares_an_object_shares_it_again() -> None:
    """Two references to one list are two references to one list."""
    one: list[object] = []
    one.append(one)
    (read,) = read_objects(_schema(), write_objects(_schema(), [[one, one, (one,)]]))
    assert read[0] is read[1] is read[2][0] is read[0][0]
