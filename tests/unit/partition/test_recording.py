"""Who has to want events for any to be recorded, and that nothing is kept while nobody does."""

from __future__ import annotations

import pytest

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    AttachCallbacks,
    DetachCallbacks,
    NodeAction,
    NodeSpec,
    RegisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.effects import Effect, EventRecorded
from kornel.core.domain.events import EventChange, EventType
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.model.callbacks import Callbacks
from kornel.core.state.history.event_log import EventLog

CONFIG = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]"
PARTITION = "[rm-1]default"
OFF, ON = (("event.trackingEnabled", "false"),), (("event.trackingEnabled", "true"),)


@pytest.fixture
def engine() -> Engine:
    """rm-1 is registered; nobody is attached."""
    engine = Engine()
    engine.apply(RegisterManager("rm-1", CONFIG), 1)
    return engine


def records(engine: Engine, node_id: str) -> bool:
    """Whether a new node is worth an event, and the partition thinks so too."""
    node = NodeSpec(node_id, NodeAction.CREATE, PARTITION, capacity=Resources({"vcore": 1000}))
    effects = engine.apply(UpdateNodes("rm-1", (node,)), 2)
    state = engine.partition(PARTITION)
    assert state is not None
    recorded = any(isinstance(effect, EventRecorded) for effect in effects)
    assert recorded is state.recording
    return recorded


def test_only_those_who_want_events_make_the_engine_record(engine: Engine) -> None:
    """13: a shim that is attached for other things hears none; after detaching nobody does."""
    assert not records(engine, "n1")
    engine.apply(AttachCallbacks("rm-1", predicates=True, scheduling_states=True), 2)
    assert not records(engine, "n2")
    engine.apply(AttachCallbacks("rm-1", events=True), 2)
    assert records(engine, "n3")
    engine.apply(DetachCallbacks("rm-1"), 2)
    assert not records(engine, "n4")


def test_tracking_switches_recording_off_and_on(engine: Engine) -> None:
    """`event.trackingEnabled` holds at once, with the text in force as with another one."""
    engine.apply(AttachCallbacks("rm-1", events=True), 2)
    engine.apply(UpdateConfiguration("rm-1", CONFIG, extra_config=OFF), 2)
    assert not records(engine, "n1")
    engine.apply(UpdateConfiguration("rm-1", CONFIG.replace("name: a}", "name: b}"), extra_config=ON), 2)
    assert records(engine, "n2")
    engine.apply(RegisterManager("rm-1", CONFIG, extra_config=OFF), 2)
    assert not records(engine, "n1")
    engine.apply(RegisterManager("rm-1", CONFIG), 2)
    assert records(engine, "n1")


def test_a_partition_that_comes_later_is_recorded_too(engine: Engine) -> None:
    """A partition that a configuration adds is told of from its first queue on."""
    engine.apply(AttachCallbacks("rm-1", events=True), 2)
    other = CONFIG[:-1] + ", {name: gpu, queues: [{name: root, queues: [{name: g}]}]}]"
    effects = engine.apply(UpdateConfiguration("rm-1", other), 2)
    told = [effect.object_id for effect in effects if isinstance(effect, EventRecorded)]
    assert told == ["root", "root.g"]


def test_nothing_is_kept_of_an_ask_while_nobody_listens(engine: Engine) -> None:
    """An ask over its quota remembers what was said of it only if something was."""
    small = NodeSpec("n1", NodeAction.CREATE, PARTITION, capacity=Resources({"vcore": 1000}))
    engine.apply(UpdateNodes("rm-1", (small,)), 2)
    engine.apply(UpdateApplications("rm-1", (ApplicationSpec("app", "root.a", PARTITION, user="ann"),)), 2)
    asks = tuple(AllocationSpec(key, "app", PARTITION, Resources({"vcore": 800})) for key in ("k1", "k2"))
    engine.apply(UpdateAllocations("rm-1", asks), 2)
    engine.cycle(2, 100)
    state = engine.partition(PARTITION)
    assert state is not None
    assert [request.recorded for request in state.requests.values()] == [None, None]


@pytest.mark.parametrize(("length", "end"), [(1_024, "ßßßß"), (1_025, "ß...")])
def test_a_long_event_message_is_cut(length: int, end: str) -> None:
    """14: more than 1024 characters, whatever their bytes, are cut to 1021 and three dots."""
    effects: list[Effect] = []
    log = EventLog(effects, Callbacks())
    log.add(EventType.REQUEST, "k", EventChange.NONE, message="ß" * length)
    (event,) = effects
    assert isinstance(event, EventRecorded)
    assert len(event.message) == 1_024
    assert event.message.endswith(end)
