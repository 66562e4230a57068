"""Who has to want events for any to be recorded, and that nothing is kept while nobody does."""

from __future__ import annotations

import pytest

from kornel.core.domain.commands import AttachCallbacks, DetachCallbacks, RegisterManager, UpdateConfiguration
from kornel.core.domain.effects import Effect, EventRecorded
from kornel.core.domain.history.events import EventChange, EventType
from kornel.core.model.callbacks import Callbacks
from kornel.core.state.history.event_log import EventLog
from kornel.core.state.history.events import MOST_RECORDED
from tests.driven_core import DrivenCore

CONFIG = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]"
OFF, ON = (("event.trackingEnabled", "false"),), (("event.trackingEnabled", "true"),)


@pytest.fixture
def core() -> DrivenCore:
    """rm-1 is registered; nobody is attached."""
    return DrivenCore(CONFIG, rm_id="rm-1")


def records(core: DrivenCore, node_id: str) -> bool:
    """Whether a new node is worth an event, and the partition thinks so too."""
    recorded = any(isinstance(effect, EventRecorded) for effect in core.node(node_id, {"vcore": 1000}))
    assert recorded is core.state.recording
    return recorded


def test_only_those_who_want_events_make_the_engine_record(core: DrivenCore) -> None:
    """13: a shim that is attached for other things hears none; after detaching nobody does."""
    assert not records(core, "n1")
    core.apply(AttachCallbacks("rm-1", predicates=True, scheduling_states=True))
    assert not records(core, "n2")
    core.apply(AttachCallbacks("rm-1", events=True))
    assert records(core, "n3")
    core.apply(DetachCallbacks("rm-1"))
    assert not records(core, "n4")


def test_tracking_switches_recording_off_and_on(core: DrivenCore) -> None:
    """`event.trackingEnabled` holds at once, with the text in force as with another one."""
    core.apply(AttachCallbacks("rm-1", events=True))
    core.apply(UpdateConfiguration("rm-1", CONFIG, extra_config=OFF))
    assert not records(core, "n1")
    core.apply(UpdateConfiguration("rm-1", CONFIG.replace("name: a}", "name: b}"), extra_config=ON))
    assert records(core, "n2")
    core.apply(RegisterManager("rm-1", CONFIG, extra_config=OFF))
    assert not records(core, "n1")
    core.apply(RegisterManager("rm-1", CONFIG))
    assert records(core, "n1")


def test_a_partition_that_comes_later_is_recorded_too(core: DrivenCore) -> None:
    """A partition that a configuration adds is told of from its first queue on."""
    core.apply(AttachCallbacks("rm-1", events=True))
    other = CONFIG[:-1] + ", {name: gpu, queues: [{name: root, queues: [{name: g}]}]}]"
    effects = core.apply(UpdateConfiguration("rm-1", other))
    told = [effect.object_id for effect in effects if isinstance(effect, EventRecorded)]
    assert told == ["root", "root.g"]


def test_nothing_is_kept_of_an_ask_while_nobody_listens(core: DrivenCore) -> None:
    """An ask over its quota remembers what was said of it only if something was."""
    core.node("n1", {"vcore": 1000})
    core.application("app", "root.a")
    core.submit("app", ["k1", "k2"], {"vcore": 800})
    core.cycle()
    assert [request.recorded for request in core.state.requests.values()] == [None, None]


def test_of_many_asks_of_an_application_that_waits_for_a_slot_the_first_ones_say_so(core: DrivenCore) -> None:
    """A shim gets no more events at a time, and one for each of 100,000 asks would push all others out of the ring."""
    core.apply(UpdateConfiguration("rm-1", CONFIG.replace("{name: a}", "{name: a, maxapplications: 1}")))
    core.apply(AttachCallbacks("rm-1", events=True))
    core.node("n1", {"vcore": 1000})
    for name in ("runs", "waits"):
        core.application(name, "root.a")
    core.submit("runs", ["first"], {"vcore": 1})
    core.submit("waits", [f"k{number}" for number in range(MOST_RECORDED - 1)], {"vcore": 1})
    told = [*core.cycle(), *core.submit("waits", ["l0", "l1", "l2"], {"vcore": 1})]
    events = [each for each in told if isinstance(each, EventRecorded) and "waits for a slot" in each.message]
    assert [each.object_id for each in events] == [*(f"k{number}" for number in range(MOST_RECORDED - 1)), "l0"]


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
