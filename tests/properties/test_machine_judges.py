"""What the judges of the random machine must let pass: situations in which they once raised, made as short as can be.

That the same judges still find bugs is the part of :mod:`tests.properties.test_machine`.
"""

from __future__ import annotations

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    AttachCallbacks,
    NodeAction,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
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
          - {name: a, resources: {guaranteed: {vcore: 4m}}}
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


def _app(name: str, queue: str) -> ApplicationSpec:
    return ApplicationSpec(name, queue, DEFAULT, user="alice")
