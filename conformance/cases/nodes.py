"""Cases about nodes: there are seven actions, and only the creation is answered."""

from __future__ import annotations

from kornel.conformance import messages
from kornel.conformance.arrangements import victim_and_preemptor
from kornel.conformance.bench import Bench
from kornel.conformance.callback_peer import Answers
from kornel.conformance.case import case
from kornel.conformance.entries import new, node_accepted, node_rejected, released, updated
from kornel.conformance.messages import NODE_MEMORY, NODE_VCORE
from kornel.conformance.outcome import check
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2


@case(26, "a created node is accepted and its capacity counts", rule="protocol.md 7")
async def create(bench: Bench) -> None:
    await bench.reg()
    await bench.node("n1")
    await bench.expect_total({"vcore": NODE_VCORE, "memory": NODE_MEMORY})
    await bench.expect_free({"n1": NODE_VCORE})


@case(27, "a node created draining takes nothing until it is opened", rule="protocol.md 7.1")
async def create_draining(bench: Bench) -> None:
    await bench.reg()
    await bench.send_nodes(messages.node_info("n1", si.NodeInfo.CREATE_DRAIN, {"vcore": NODE_VCORE}))
    await bench.expect(node_accepted("n1"))
    await bench.app()
    await bench.send(messages.allocation("k"))
    await bench.expect(updated("app", "Accepted"))
    await bench.expect_silence()
    await bench.node_action("n1", si.NodeInfo.DRAIN_TO_SCHEDULABLE)
    await bench.expect(updated("app", "Running"), new("k", "n1"))


@case(28, "a node that exists is refused and stays as it is", rule="protocol.md 7")
async def create_twice(bench: Bench) -> None:
    await bench.reg()
    await bench.node("n1")
    await bench.send_nodes(messages.full_node("n1", 3000))
    await bench.expect(node_rejected("n1", "node-exists"))
    await bench.expect_total({"vcore": NODE_VCORE, "memory": NODE_MEMORY})
    await bench.expect_free({"n1": NODE_VCORE})


@case(29, "all creations of one request are answered in one response", rule="protocol.md 7")
async def one_response(bench: Bench) -> None:
    await bench.reg()
    await bench.send_nodes(*(messages.full_node(node) for node in ("n1", "n1", "n2")))
    answers = await bench.expect(node_accepted("n1"), node_accepted("n2"), node_rejected("n1", "node-exists"))
    check(len({answer.batch for answer in answers}) == 1, "the three answers are in one message")
    await bench.expect_silence()


@case(30, "a node without resource is accepted and has room for nothing", rule="protocol.md 7")
async def no_resource(bench: Bench) -> None:
    await bench.reg()
    await bench.send_nodes(messages.node_info("n1"))
    await bench.expect(node_accepted("n1"))
    await bench.expect_total({})
    await bench.app()
    await bench.send(messages.allocation("k"))
    await bench.expect(updated("app", "Accepted"))
    await bench.expect_silence()
    await bench.node("n2")
    await bench.expect(updated("app", "Running"), new("k", "n2"))


@case(31, "a type of amount 0 is no part of the capacity", rule="protocol.md 7")
async def zero_type(bench: Bench) -> None:
    await bench.reg()
    await bench.send_nodes(messages.node_info("n1", capacity={"vcore": 1000, "gpu": 0}))
    await bench.expect(node_accepted("n1"))
    await bench.expect_total({"vcore": 1000})
    await bench.app()
    await bench.send(messages.allocation("k", resources={"vcore": 1000, "gpu": 1}))
    await bench.expect(updated("app", "Accepted"))
    await bench.expect_silence()


@case(32, "a node with a negative amount is refused", rule="protocol.md 16 DB-14")
async def negative_capacity(bench: Bench) -> None:
    await bench.reg()
    await bench.send_nodes(messages.full_node("n1", memory=-1))
    await bench.expect(node_rejected("n1", "invalid-resource"))
    await bench.node("n1")


@case(33, "a new capacity is not answered, and counts", rule="protocol.md 7.1")
async def update(bench: Bench) -> None:
    await bench.reg()
    await bench.node("n1")
    await bench.send_nodes(messages.node_info("n1", si.NodeInfo.UPDATE, {"vcore": 20_000}))
    await bench.expect_silence()
    await bench.expect_total({"vcore": 20_000})
    await bench.expect_free({"n1": 20_000})


@case(34, "a capacity below what is allocated evicts nothing and places nothing more", rule="protocol.md 7.1")
async def shrink(bench: Bench) -> None:
    await bench.world()
    await bench.start("k", vcore=8000)
    await bench.send_nodes(messages.node_info("n1", si.NodeInfo.UPDATE, {"vcore": 5000}))
    await bench.expect_silence()
    await bench.expect_free({"n1": -3000})
    await bench.send_nodes(messages.node_info("n1", si.NodeInfo.UPDATE, {"vcore": 8001}))
    await bench.expect_free({"n1": 1})


@case(35, "an update without capacity changes nothing", rule="protocol.md 4.2")
async def update_attributes(bench: Bench) -> None:
    await bench.reg()
    await bench.node("n1")
    await bench.send_nodes(messages.node_info("n1", si.NodeInfo.UPDATE, attributes={"si/instance-type": "other"}))
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE})


@case(36, "draining twice has the same effect as draining once", rule="protocol.md 7")
async def drain_twice(bench: Bench) -> None:
    await bench.world()
    await bench.node_action("n1", si.NodeInfo.DRAIN_NODE)
    await bench.node_action("n1", si.NodeInfo.DRAIN_NODE)
    await bench.expect_silence()
    await bench.send(messages.allocation("k"))
    await bench.expect(updated("app", "Accepted"))
    await bench.expect_silence()
    await bench.node_action("n1", si.NodeInfo.DRAIN_TO_SCHEDULABLE)
    await bench.expect(updated("app", "Running"), new("k", "n1"))


@case(37, "opening an open node does nothing", rule="protocol.md 7")
async def open_twice(bench: Bench) -> None:
    await bench.world()
    await bench.node_action("n1", si.NodeInfo.DRAIN_TO_SCHEDULABLE)
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE})


@case(38, "unknown actions are ignored", rule="protocol.md 7")
async def unknown_actions(bench: Bench) -> None:
    await bench.world()
    for action in (0, 99):
        await bench.send_nodes(messages.node_info("n1", si.NodeInfo.ActionFromRM.ValueType(action), {"vcore": 1}))
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE})


@case(39, "a removed node releases all its allocations in one message", rule="protocol.md 7.2")
async def decommission(bench: Bench) -> None:
    await bench.world()
    await bench.app("app2")
    await bench.start("a")
    await bench.start("b", app="app2")
    await bench.node_action("n1", si.NodeInfo.DECOMISSION)
    gone = await bench.expect_set(released("a", app="app"), released("b", app="app2"))
    check(gone[0].batch == gone[1].batch, "both are in one message")
    await bench.expect_set(updated("app", "Completing"), updated("app2", "Completing"))
    await bench.expect_silence()
    await bench.expect_total({})


@case(40, "an empty node is removed without an answer and can come back", rule="protocol.md 7.2")
async def decommission_empty(bench: Bench) -> None:
    await bench.reg()
    await bench.node("n1")
    await bench.node_action("n1", si.NodeInfo.DECOMISSION)
    await bench.expect_silence()
    await bench.node("n1")
    await bench.expect_free({"n1": NODE_VCORE})


@case(41, "actions on an unknown node are ignored", rule="protocol.md 7")
async def unknown_node(bench: Bench) -> None:
    await bench.reg()
    await bench.send_nodes(
        messages.node_info("n9", si.NodeInfo.UPDATE, {"vcore": 1}),
        *(
            messages.node_info("n9", action)
            for action in (
                si.NodeInfo.DRAIN_NODE,
                si.NodeInfo.DRAIN_TO_SCHEDULABLE,
                si.NodeInfo.DECOMISSION,
            )
        ),
    )
    await bench.expect_silence()
    await bench.node("n9")


@case(42, "an ask that waited for a node that is removed is placed on another one", rule="protocol.md 7.2")
async def reserved_node_goes(bench: Bench) -> None:
    await victim_and_preemptor(bench)
    await bench.node_action("n1", si.NodeInfo.DECOMISSION)
    await bench.expect(updated("b1", "Completing"), released("v"))
    await bench.expect_silence()
    await bench.node("n2", 5000)
    await bench.expect(updated("app", "Running"), new("k", "n2"))


async def replacing_elsewhere(bench: Bench) -> None:
    """Makes r on n2 replace placeholder p on n1, because the RM does not want r on n1."""
    await bench.reg()
    peer = await bench.attach_peer(Answers(predicates=lambda question: _refuse_key(question, "r", "n1")))
    await bench.node("n1", 1000)
    await bench.app()
    await bench.send(messages.allocation("p", group="g", placeholder=True))
    await bench.expect(updated("app", "Accepted"), new("p", "n1"))
    await bench.node("n2", 1000)
    await bench.send(messages.allocation("r", group="g"))
    await bench.expect(released("p", si.PLACEHOLDER_REPLACED))
    await bench.expect_silence()
    asked = [
        (list(question.node_ids), question.allocate) for question in peer.questions if question.allocation_key == "r"
    ]
    check((["n1"], False) in asked, f"expected to be asked whether r may replace p on n1, got {asked}")
    # The placeholder still runs, and the replacement already takes room on its node.
    await bench.expect_free({"n1": 0, "n2": 0})


def _refuse_key(question: callback_pb2.PredicatesQuestion, key: str, node: str) -> dict[str, str]:
    """Refuses only *key* on *node*."""
    return {node: "not there"} if question.allocation_key == key and node in question.node_ids else {}


@case(
    43,
    "a placeholder is lost with its node while its replacement is on another node: the replacement is placed",
    rule="protocol.md 7.2",
)
async def replaced_placeholder_goes(bench: Bench) -> None:
    await replacing_elsewhere(bench)
    await bench.node_action("n1", si.NodeInfo.DECOMISSION)
    await bench.expect(released("p"), new("r", "n2"), updated("app", "Running"))
    await bench.expect_silence()
    await bench.expect_free({"n2": 0})


@case(
    44, "a placeholder and its replacement are lost with their node: the latter is an ask again", rule="protocol.md 7.2"
)
async def replacement_node_goes(bench: Bench) -> None:
    await bench.reg()
    await bench.node("n1", 1000)
    await bench.app()
    await bench.send(messages.allocation("p", group="g", placeholder=True))
    await bench.expect(updated("app", "Accepted"), new("p", "n1"))
    await bench.send(messages.allocation("r", group="g"))
    await bench.expect(released("p", si.PLACEHOLDER_REPLACED))
    await bench.node_action("n1", si.NodeInfo.DECOMISSION)
    await bench.expect(released("p"))
    await bench.expect_silence()
    await bench.node("n2", 1000)
    await bench.expect(updated("app", "Running"), new("r", "n2"))


@case(
    45,
    "a replacement is lost with its node: it is an ask again, and its placeholder may still be confirmed",
    rule="protocol.md 10.4",
)
async def replacement_goes(bench: Bench) -> None:
    await replacing_elsewhere(bench)
    await bench.node_action("n2", si.NodeInfo.DECOMISSION)
    await bench.expect_silence()
    await bench.expect_counts(nodes=1, asks=1, allocations=1)
    await bench.release("p", si.PLACEHOLDER_REPLACED)
    await bench.expect_silence()
    await bench.expect_free({"n1": 1000})
    await bench.node("n3", 1000)
    await bench.expect(updated("app", "Running"), new("r", "n3"))


@case(46, "foreign load of a removed node is forgotten with it", rule="protocol.md 16 DB-8")
async def foreign_node_returns(bench: Bench) -> None:
    await bench.world()
    await bench.send(messages.make_foreign("f", 2000, "n1"))
    await bench.expect_silence()
    await bench.node_action("n1", si.NodeInfo.DECOMISSION)
    await bench.node("n1")
    await bench.expect_free({"n1": NODE_VCORE})
    await bench.send(messages.make_foreign("f", 2000, "n1"))
    await bench.expect_free({"n1": NODE_VCORE - 2000})


@case(47, "the key of an allocation lost with its node can be asked for again", rule="protocol.md 16 DB-7")
async def key_returns(bench: Bench) -> None:
    await bench.world()
    await bench.start("k")
    await bench.node_action("n1", si.NodeInfo.DECOMISSION)
    await bench.expect(updated("app", "Completing"), released("k"))
    await bench.node("n2")
    await bench.send(messages.allocation("k"))
    await bench.expect(updated("app", "Running"), new("k", "n2"))
