"""The event history tells the whole story: whoever adds it up knows what the engine knows (protocol.md 14)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.domain.commands import AllocationSpec, AttachCallbacks, Command, RegisterManager
from kornel.core.domain.effects import Effect, EventRecorded
from kornel.core.domain.history.event_records import unpack_effects
from kornel.core.domain.history.events import STATE_DETAILS, EventChange, EventDetail, EventType
from kornel.core.state.partition_state import PartitionState
from tests.examples import mark_rest_long, scale_examples
from tests.properties.limited_shim import LimitedShim
from tests.properties.shim import RM, WIDTH, Operation, random_history

ALLOCATION_ENDS = frozenset(detail for detail in EventDetail if 500 <= detail < 600)
REQUEST_ENDS = frozenset({EventDetail.REQUEST_CANCEL, EventDetail.REQUEST_TIMEOUT})
WITH_ITS_ALLOCATION = frozenset({EventDetail.ALLOC_TIMEOUT, EventDetail.ALLOC_NODEREMOVED})
"""Ends of an allocation after which nothing is said of its request."""


class Story:
    """What the events say when they are added up."""

    def __init__(self) -> None:
        self.requests: set[tuple[str, str]] = set()
        self.allocations: set[tuple[str, str]] = set()
        self.on_nodes: set[tuple[str, str]] = set()
        self.reservations: set[tuple[str, str]] = set()
        self.nodes: set[str] = set()
        self.queues: set[str] = set()
        self.in_queues: set[tuple[str, str]] = set()
        self.links: set[tuple[str, str]] = set()
        self.states: dict[str, EventDetail] = {}
        self.usage: Counter[tuple[str, str, str]] = Counter()
        self._replaced = ""

    def hear(self, event: EventRecorded) -> None:
        match event.type, event.detail:
            case EventType.APP, EventDetail.APP_REQUEST:
                self._keep(self.requests, event)
            case EventType.APP, EventDetail.APP_ALLOC:
                self._keep(self.allocations, event)
                self._swap(event.reference_id)
                # A recovered allocation never was an ask.
                self.requests.add((event.object_id, event.reference_id))
            case EventType.APP, detail if detail in REQUEST_ENDS:
                self.requests.remove((event.object_id, event.reference_id))
            case EventType.APP, detail if detail in ALLOCATION_ENDS:
                self.allocations.remove((event.object_id, event.reference_id))
                self._replaced = event.reference_id if detail == EventDetail.ALLOC_REPLACED else ""
                if detail in WITH_ITS_ALLOCATION:
                    self.requests.remove((event.object_id, event.reference_id))
            case EventType.APP, detail if detail in STATE_DETAILS.values():
                self.states[event.object_id] = EventDetail(detail)
            case EventType.APP, EventDetail.NONE:
                del self.states[event.object_id]
            case EventType.NODE, EventDetail.NODE_ALLOC:
                self._keep(self.on_nodes, event)
            case EventType.NODE, EventDetail.NODE_RESERVATION:
                self._keep(self.reservations, event)
            case EventType.NODE, EventDetail.NONE:
                self.nodes.add(event.object_id)
            case EventType.NODE, EventDetail.NODE_DECOMISSION:
                self.nodes.remove(event.object_id)
            case EventType.QUEUE, EventDetail.QUEUE_APP:
                self._keep(self.in_queues, event)
            case EventType.QUEUE, EventDetail.NONE | EventDetail.QUEUE_DYNAMIC:
                act = self.queues.add if event.change == EventChange.ADD else self.queues.remove
                act(event.object_id)
            case EventType.USERGROUP, EventDetail.UG_APP_LINK:
                act_on = self.links.remove if event.change == EventChange.REMOVE else self.links.add
                act_on((event.object_id, event.reference_id))
            case EventType.USERGROUP, EventDetail.UG_USER_RESOURCE:
                sign = 1 if event.change == EventChange.ADD else -1
                for name, amount in (event.resources or {}).items():
                    self.usage[event.object_id, event.reference_id, name] += sign * amount

    def _swap(self, key: str) -> None:
        """A placeholder gave its place to *key*: on one node, nothing is said of the node."""
        for node_id in [node_id for node_id, load in self.on_nodes if load == self._replaced]:
            self.on_nodes.remove((node_id, self._replaced))
            self.on_nodes.add((node_id, key))
        self._replaced = ""

    def _keep(self, known: set[tuple[str, str]], event: EventRecorded) -> None:
        what = event.object_id, event.reference_id
        if event.change == EventChange.ADD:
            assert what not in known, f"{event} is told twice"
            known.add(what)
        else:
            known.remove(what)

    def check(self, state: PartitionState) -> None:
        """Everything agrees with the engine."""
        applications = state.applications.values()
        assert self.requests == {(a.spec.application_id, a.spec.key) for a in state.requests.values()}
        held = [(application, a) for application in applications for a in application.allocations.values()]
        assert self.allocations == {(application.application_id, a.spec.key) for application, a in held}
        loads = [(node.node_id, key) for node in state.nodes.values() for key in (*node.allocations, *node.foreign)]
        assert self.on_nodes == set(loads)
        assert self.reservations == {(r.node.node_id, r.ask.spec.key) for r in state.reservations.values()}
        assert self.nodes == set(state.nodes)
        assert self.queues == set(state.queues)
        assert self.in_queues == {(a.queue.path, a.application_id) for a in applications}
        assert self.links == {(a.limit_group, a.application_id) for a in applications if a.limit_group is not None}
        living = {name: detail for name, detail in self.states.items() if name in state.applications}
        assert living == {a.application_id: STATE_DETAILS[a.state] for a in applications}
        usage: Counter[tuple[str, str, str]] = Counter()
        for application, allocation in held:
            for name, amount in allocation.shape.resources.items():
                usage[application.user, application.queue.path, name] += amount
        assert {k: v for k, v in self.usage.items() if v} == {k: v for k, v in usage.items() if v}


class Listening(LimitedShim):
    """Wants to hear everything from the start; ``told`` are the answers as they would be without."""

    def __init__(self, variant: int, *, events: bool = True, gangs: bool = False) -> None:
        self._events = events
        self.story = Story()
        self.told: list[str] = []
        super().__init__(variant, gangs=gangs)

    def _spec(self, key: str, application_id: str, numbers: list[int], node_id: str = "") -> AllocationSpec:
        return super()._spec(key, application_id, numbers, node_id)._replace(legacy=False)

    def _send(self, command: Command) -> None:
        super()._send(command)
        if isinstance(command, RegisterManager) and self._events:
            # A registration with somebody attached already: what it builds is told too.
            super()._send(AttachCallbacks(RM, events=True))
            super()._send(command)

    def _hear(self, cause: str, effects: Sequence[Effect]) -> None:
        super()._hear(cause, effects)
        for effect in unpack_effects(effects):
            if isinstance(effect, EventRecorded):
                assert self._events
                assert effect.at_ns == self.now_ns
                self.story.hear(effect)
            else:
                self.told.append(repr(effect))


def play(shim: Listening, history: Sequence[Operation]) -> None:
    for operation in history:
        shim.perform(operation)
        shim.settle()


@settings(max_examples=scale_examples(40), deadline=None)
@given(
    st.integers(0, 500),
    st.booleans(),
    st.lists(st.tuples(*[st.integers(0, 9_999)] * WIDTH), min_size=10, max_size=60),
)
def test_the_story_adds_up_to_the_state(variant: int, gangs: bool, history: list[Operation]) -> None:
    """Requests, allocations, loads, reservations, queues, groups and usage: nothing is missed or told twice."""
    shim = Listening(variant, gangs=gangs)
    for operation in history:
        shim.perform(operation)
        shim.story.check(shim.state)


@pytest.mark.parametrize("seed", mark_rest_long(range(8)))
def test_listening_changes_no_decision(seed: int) -> None:
    """With and without somebody who wants events, everything else is answered alike."""
    history = list(random_history(seed, 200))
    told: list[list[str]] = []
    for events in (True, False):
        shim = Listening(seed, events=events, gangs=seed % 2 == 1)
        play(shim, history)
        told.append(shim.told)
    assert told[0] == told[1]


def test_nothing_is_recorded_while_nobody_listens() -> None:
    """No event, and nothing kept of one, in a history that is full of reasons for some."""
    shim = Listening(3, events=False, gangs=True)
    play(shim, list(random_history(3, 300)))
    assert not any("EventRecorded" in line for line in shim.log)
    assert not shim.state.recording
    assert all(request.recorded is None for request in shim.state.requests.values())
