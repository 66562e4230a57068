"""What the judges of the random machine must let pass: situations in which they once raised, made as short as can be.

That the same judges still find bugs is the part of :mod:`tests.properties.test_machine`.
"""

from __future__ import annotations

from kornel.core.domain.commands import (
    AllocationSpec,
    AnswerCallbacks,
    ApplicationSpec,
    AttachCallbacks,
    NodeAction,
    NodeSpec,
    PredicatesAnswer,
    RegisterManager,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.devices import DeviceRequest
from kornel.core.domain.effects import PredicatesAsked
from tests.properties.machine.cluster import DEFAULT, size
from tests.properties.machine.world import RM, SECOND, World

CONFIGURATION = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        properties: {preemption.delay: 1s}
        queues:
          - {name: a, resources: {guaranteed: {vcore: 9m}}}
          - {name: v}
"""


def test_room_that_the_shim_itself_takes_is_not_held_twice() -> None:
    """While the shim is asked about a preemptor on its node it places something else there, and then does not answer:
    the preemptor gets its claim back on a node that holds less than is claimed by then."""
    world = World()
    world.send(RegisterManager(RM, CONFIGURATION))
    world.send(UpdateNodes(RM, (NodeSpec("n1", NodeAction.CREATE, DEFAULT, capacity=size(4, 9)),)))
    world.send(UpdateApplications(RM, (_app("v", "root.v"), _app("a", "root.a"))))
    victims = tuple(AllocationSpec(key, "v", DEFAULT, size(2, 1), node_id="n1") for key in ("v1", "v2"))
    world.send(UpdateAllocations(RM, victims))
    ask = AllocationSpec("k", "a", DEFAULT, size(4, 1), allow_preempt_other=True)
    world.send(UpdateAllocations(RM, (ask,)))
    world.now_ns += 60 * SECOND
    world.settle()
    world.send(AttachCallbacks(RM, predicates=True, timeout_ns=SECOND))
    gone = tuple(ReleaseSpec(DEFAULT, "v", key, TerminationType.PREEMPTED_BY_SCHEDULER) for key in ("v1", "v2"))
    world.send(UpdateAllocations(RM, releases=gone))
    world.settle()
    assert [q.key for q in world.contract.questions.values() if isinstance(q, PredicatesAsked)] == ["k"]
    world.send(UpdateAllocations(RM, (AllocationSpec("x", "v", DEFAULT, size(3, 1), node_id="n1"),)))
    world.now_ns += 2 * SECOND
    world.settle()
    state = world.engine.partition(DEFAULT)
    assert state is not None
    assert {key: reservation.node.node_id for key, reservation in state.reservations.items()} == {"k": "n1"}


def test_an_ask_that_grows_beyond_what_one_with_a_required_node_leaves_holds_nothing() -> None:
    """It is armed again at once, and keeps nothing when the ask that comes first has taken its room."""
    world = World()
    world.send(RegisterManager(RM, CONFIGURATION))
    world.send(UpdateNodes(RM, (NodeSpec("n1", NodeAction.CREATE, DEFAULT, capacity=size(6, 9)),)))
    world.send(UpdateApplications(RM, (_app("v", "root.v"), _app("a", "root.a"))))
    world.send(UpdateAllocations(RM, (AllocationSpec("v1", "v", DEFAULT, size(5, 1), node_id="n1"),)))
    world.now_ns += 60 * SECOND
    world.send(UpdateAllocations(RM, (AllocationSpec("d", "a", DEFAULT, size(4, 1), required_node="n1"),)))
    world.settle()
    ask = AllocationSpec("k", "a", DEFAULT, size(2, 1), allow_preempt_other=True)
    world.send(UpdateAllocations(RM, (ask,)))
    world.now_ns += 60 * SECOND
    world.settle()
    world.send(UpdateAllocations(RM, (ask._replace(resources=size(3, 1)),)))
    state = world.engine.partition(DEFAULT)
    assert state is not None
    assert {key: reservation.rank for key, reservation in state.reservations.items()} == {"d": 0}
    gone = ReleaseSpec(DEFAULT, "v", "v1", TerminationType.PREEMPTED_BY_SCHEDULER)
    world.send(UpdateAllocations(RM, releases=(gone,)))
    world.settle()
    assert not state.reservations


def test_answers_about_one_key_may_be_used_in_another_order() -> None:
    """Three members of a gang share a key. The second one is refused where it was to run, and takes the place of the
    third, which takes its place: each has an answer that allows that, though no question says for which of them."""
    world = World()
    world.send(RegisterManager(RM, CONFIGURATION))
    nodes = tuple(NodeSpec(name, NodeAction.CREATE, DEFAULT, capacity=size(2, 2)) for name in ("n1", "n2", "n3"))
    world.send(UpdateNodes(RM, nodes))
    world.send(AttachCallbacks(RM, predicates=True, timeout_ns=60 * SECOND))
    gang = ApplicationSpec("g", "root.a", DEFAULT, user="alice", placeholder_ask=size(6, 3), gang_style="Hard")
    world.send(UpdateApplications(RM, (gang,)))
    member = AllocationSpec(
        "k", "g", DEFAULT, size(2, 1), task_group="group", placeholder=True, legacy=True, max_allocations=3
    )
    world.send(UpdateAllocations(RM, (member,)))
    world.settle()
    asked = [question for question in world.contract.questions.values() if isinstance(question, PredicatesAsked)]
    assert [question.node_ids[0] for question in asked] == ["n1", "n2", "n3"]
    first, second, third = (question.question for question in asked)
    refused = PredicatesAnswer(second, (("n1", "taint"), ("n2", "taint")))
    world.send(AnswerCallbacks(RM, (PredicatesAnswer(first), PredicatesAnswer(third))))
    world.send(AnswerCallbacks(RM, (refused,)))
    running = {request.name: request.node for request in world.contract.partitions[DEFAULT].requests.values()}
    assert list(running.values()) == ["n1", "n3", "n2"]


def test_a_gang_waits_for_devices_that_another_holder_has() -> None:
    """An ask saves the devices of a node and gets them, which a member of a gang wants too: the gang saves nothing
    there, and lacks them when there are amounts for all members."""
    world = World()
    world.send(RegisterManager(RM, CONFIGURATION))
    devices = (("kornel.devices", '[{"id":"d1"},{"id":"d2"}]'),)
    world.send(UpdateNodes(RM, (NodeSpec("n1", NodeAction.CREATE, DEFAULT, devices, size(6, 9)),)))
    gang = ApplicationSpec("g", "root.v", DEFAULT, user="alice", placeholder_ask=size(4, 2), gang_style="Hard")
    world.send(UpdateApplications(RM, (gang, _app("v", "root.v"))))
    both = DeviceRequest(2)
    first = AllocationSpec("v1", "v", DEFAULT, size(2, 1), node_id="n1")
    world.send(UpdateAllocations(RM, (first, first._replace(key="v2", devices=both))))
    member = AllocationSpec("g1", "g", DEFAULT, size(2, 1), task_group="group", placeholder=True)
    ask = AllocationSpec("k", "v", DEFAULT, size(2, 1), priority=1, devices=both)
    world.send(UpdateAllocations(RM, (member, member._replace(key="g2", devices=both), ask)))
    for _ in range(2):
        world.now_ns += 60 * SECOND
        world.settle()
    state = world.engine.partition(DEFAULT)
    assert state is not None
    assert set(state.reservations) == {"k"}
    for gone in ("v2", "v1"):
        world.send(UpdateAllocations(RM, releases=(ReleaseSpec(DEFAULT, "v", gone, TerminationType.STOPPED_BY_RM),)))
        world.settle()
    assert set(state.reservations) == {"g1", "g2"}


def _app(name: str, queue: str) -> ApplicationSpec:
    return ApplicationSpec(name, queue, DEFAULT, user="alice")
