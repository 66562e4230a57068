"""Cases about asks and allocations: which ones are accepted or refused, and how a second message with a known key
changes them."""

from __future__ import annotations

from typing import cast

from kornel.conformance import messages
from kornel.conformance.arrangements import gang_timeout
from kornel.conformance.bench import Bench
from kornel.conformance.case import case
from kornel.conformance.configs import leaf_text, queues
from kornel.conformance.entries import Entry, Kind, new, rejected, released, updated
from kornel.conformance.messages import ASK_VCORE, NODE_VCORE, allocation
from kornel.conformance.outcome import check
from kornel.si.v1 import si_pb2 as si

BIG = NODE_VCORE + 1
"""The vcores of an ask for which n1 is too small."""

ONE_VCORE_MAX = queues(leaf_text("a", maximum="{vcore: 1}"))


def placed_allocation(entry: Entry) -> si.Allocation:
    """Returns the allocation of a ``new`` entry."""
    return cast("si.Allocation", entry.message)


async def one_pending(bench: Bench, key: str = "k", vcore: int = ASK_VCORE, priority: int = 0) -> None:
    """Registers without nodes, and adds app with one ask, which has to wait."""
    await bench.reg()
    await bench.app()
    await bench.send(allocation(key, vcore, priority=priority))
    await bench.expect(updated("app", "Accepted"))


@case(73, "an ask that fits is placed: Accepted, Running, one new entry", rule="protocol.md 15")
async def place(bench: Bench) -> None:
    await bench.world()
    await bench.send(allocation("k", tags={"kubernetes.io/label/x": "y"}, priority=7))
    entry = (await bench.expect(new("k", "n1", "app"), updated("app", "Accepted"), updated("app", "Running")))[0]
    got = placed_allocation(entry)
    check(not got.allocationTags, "new carries no tags")
    check(got.priority == 0, "new carries no priority")
    check(got.partitionName == "", "new carries no partition")
    check(got.HasField("preemptionPolicy"), "new carries the preemption policy")
    check(messages.read_amounts(got.resourcePerAlloc) == {"vcore": ASK_VCORE}, "new carries what was asked for")
    await bench.expect_silence()


@case(74, "an ask without nodes waits, and the first node gets it", rule="protocol.md 8.3")
async def wait_for_node(bench: Bench) -> None:
    await one_pending(bench)
    await bench.expect_silence()
    await bench.node("n1")
    await bench.expect(updated("app", "Running"), new("k", "n1"))


@case(75, "an ask larger than any node waits and is not refused", rule="protocol.md 8.3")
async def too_large(bench: Bench) -> None:
    await bench.world()
    await bench.send(allocation("k", BIG))
    await bench.expect(updated("app", "Accepted"))
    await bench.expect_silence()
    await bench.node("n2", BIG)
    await bench.expect(updated("app", "Running"), new("k", "n2"))


@case(76, "an ask of an unknown application is refused", rule="protocol.md 8.1")
async def unknown_application(bench: Bench) -> None:
    await bench.world()
    await bench.send(allocation("k", app="nobody"))
    await bench.expect(rejected("k", "application-not-found", app="nobody"))
    await bench.expect_silence()


@case(77, "an ask for nothing is refused", rule="protocol.md 8.1")
async def nothing_asked(bench: Bench) -> None:
    await bench.world()
    await bench.send(
        allocation("k1", None), allocation("k2", resources={}), allocation("k3", resources={"vcore": 0, "memory": 0})
    )
    await bench.expect(*(rejected(key, "no-resources") for key in ("k1", "k2", "k3")))
    await bench.expect_silence()


@case(78, "an ask for a negative amount is refused", rule="protocol.md 8.1")
async def negative_ask(bench: Bench) -> None:
    await bench.world()
    await bench.send(allocation("k", resources={"vcore": 1, "memory": -1}))
    await bench.expect(rejected("k", "negative-resources"))
    await bench.expect_silence()


@case(79, "a placeholder without task group is refused", rule="protocol.md 8.1")
async def placeholder_without_group(bench: Bench) -> None:
    await bench.world()
    await bench.send(allocation("k", placeholder=True))
    await bench.expect(rejected("k", "placeholder-without-group"))
    await bench.expect_silence()


@case(80, "an ask without key is refused", rule="protocol.md 8.1")
async def no_key(bench: Bench) -> None:
    await bench.world()
    await bench.send(allocation(""))
    await bench.expect(rejected("", "invalid-key"))
    await bench.expect_silence()


@case(81, "a waiting ask sent again counts once", rule="protocol.md 8.1")
async def ask_twice(bench: Bench) -> None:
    await one_pending(bench)
    await bench.send(allocation("k"))
    await bench.expect_silence()
    await bench.expect_pending("root.a", ASK_VCORE)
    await bench.node("n1")
    await bench.expect(updated("app", "Running"), new("k", "n1"))
    await bench.expect_silence()


@case(82, "a waiting ask may change its size", rule="protocol.md 8.2")
async def resize_ask(bench: Bench) -> None:
    await one_pending(bench)
    await bench.send(allocation("k", 3000))
    await bench.expect_silence()
    await bench.expect_pending("root.a", 3000)
    await bench.node("n1", 2999)
    await bench.expect_silence()
    await bench.node("n2", 3000)
    entry = (await bench.expect(new("k", "n2"), updated("app", "Running")))[0]
    check(
        messages.read_amounts(placed_allocation(entry).resourcePerAlloc) == {"vcore": 3000}, "new carries the new size"
    )


@case(83, "a waiting ask sent again has its new priority", rule="protocol.md 8.2")
async def change_priority(bench: Bench) -> None:
    await one_pending(bench, priority=5)
    await bench.send(allocation("later", priority=1))
    await bench.send(allocation("later", priority=9))
    await bench.expect_silence()
    await bench.node("n1", ASK_VCORE)
    await bench.expect(updated("app", "Running"), new("later", "n1"))
    await bench.expect_silence()


@case(84, "an allocation that shrinks gives room back on node and queue", rule="protocol.md 8.2")
async def resize_allocation(bench: Bench) -> None:
    await bench.world(ONE_VCORE_MAX)
    await bench.start("k")
    await bench.send(allocation("half", 500))
    await bench.expect_silence()
    await bench.send(allocation("k", 500, node="n1"))
    await bench.expect(new("half", "n1"))
    await bench.expect_silence()
    await bench.expect_used("root.a", 1000)
    await bench.expect_user(1000)
    await bench.expect_free({"n1": NODE_VCORE - 1000})


@case(85, "an allocation may grow above the max of its queue; new asks wait", rule="protocol.md 8.2")
async def grow_above_max(bench: Bench) -> None:
    await bench.world(ONE_VCORE_MAX)
    await bench.start("k")
    await bench.send(allocation("k", 2000, node="n1"))
    await bench.expect_silence()
    await bench.expect_used("root.a", 2000)
    await bench.send(allocation("more", 1))
    await bench.expect_silence()
    await bench.release("k")
    await bench.expect(released("k"), new("more", "n1"))


@case(86, "an allocation does not move", rule="protocol.md 8.2")
async def move(bench: Bench) -> None:
    await bench.world()
    await bench.start("k")
    await bench.node("n2")
    await bench.send(allocation("k", node="n2"))
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE - ASK_VCORE, "n2": NODE_VCORE})


@case(87, "an allocation sent as ask stays allocated", rule="protocol.md 8.2")
async def unplace(bench: Bench) -> None:
    await bench.world()
    await bench.start("k")
    await bench.send(allocation("k"))
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE - ASK_VCORE})
    await bench.expect_counts(nodes=1, asks=0, allocations=1)


@case(88, "a recovered allocation is confirmed: Accepted, Running, new", rule="protocol.md 8.1")
async def recover(bench: Bench) -> None:
    await bench.world()
    await bench.send(allocation("k", node="n1"))
    await bench.expect(updated("app", "Accepted"), updated("app", "Running"), new("k", "n1", "app"))
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE - ASK_VCORE})


@case(89, "an allocation recovered twice is confirmed once", rule="protocol.md 12")
async def recover_twice(bench: Bench) -> None:
    await recover(bench)
    await bench.send(allocation("k", node="n1"))
    await bench.expect_silence()


@case(90, "an allocation on an unknown node is refused", rule="protocol.md 8.1")
async def recover_on_unknown_node(bench: Bench) -> None:
    await bench.world()
    await bench.send(allocation("k", node="n9"))
    await bench.expect(rejected("k", "node-not-found"))
    await bench.expect_silence()


@case(91, "a recovered allocation is taken on a full node", rule="protocol.md 8.1")
async def recover_on_full_node(bench: Bench) -> None:
    await bench.world()
    await bench.start("a", vcore=NODE_VCORE)
    await bench.send(allocation("k", node="n1"))
    await bench.expect(new("k", "n1"))
    await bench.release("a")
    await bench.expect(released("a"))
    await bench.expect_free({"n1": NODE_VCORE - ASK_VCORE})


@case(92, "a recovered allocation is taken above the max of its queue", rule="protocol.md 8.1")
async def recover_above_max(bench: Bench) -> None:
    await bench.world(ONE_VCORE_MAX)
    await bench.start("a")
    await bench.send(allocation("k", node="n1"))
    await bench.expect(new("k", "n1"))
    await bench.expect_used("root.a", 2 * ASK_VCORE)


@case(93, "a waiting ask that the RM places is confirmed and waits no more", rule="protocol.md 8.1")
async def place_from_outside(bench: Bench) -> None:
    await one_pending(bench, vcore=BIG)
    await bench.node("n1")
    await bench.send(allocation("k", BIG, node="n1"))
    await bench.expect(updated("app", "Running"), new("k", "n1"))
    await bench.expect_pending("root.a", 0)
    await bench.expect_free({"n1": -1})


@case(94, "a recovered allocation is taken on a draining node", rule="protocol.md 8.1")
async def recover_on_draining_node(bench: Bench) -> None:
    await bench.world()
    await bench.node_action("n1", si.NodeInfo.DRAIN_NODE)
    await bench.expect_silence()
    await bench.send(allocation("k", node="n1"))
    await bench.expect(updated("app", "Accepted"), updated("app", "Running"), new("k", "n1"))


@case(95, "a bad entry does not affect others, and refusals come last", rule="protocol.md 8")
async def mixed_request(bench: Bench) -> None:
    await bench.world()
    await bench.send(allocation("k2", node="n9"), allocation("k1", node="n1"), allocation("k3", BIG))
    await bench.expect(new("k1", "n1"), rejected("k2", "node-not-found"))
    await bench.expect(updated("app", "Accepted"), updated("app", "Running"))
    await bench.expect_silence()
    await bench.node("n2", BIG)
    await bench.expect(new("k3", "n2"))


@case(96, "a failing application may not send asks", rule="protocol.md 16 DB-6", waits_s=2)
async def ask_while_failing(bench: Bench) -> None:
    await gang_timeout(bench, style="Hard")
    await bench.expect(updated("app", "Failing"), released("p1", si.TIMEOUT), released("p2", si.TIMEOUT))
    await bench.send(allocation("k"))
    await bench.expect(rejected("k", "application-state"))


@case(97, "an ask for one node waits for that node", rule="protocol.md 4.4")
async def required_node(bench: Bench) -> None:
    await bench.world()
    await bench.send(allocation("k", tags={messages.REQUIRED_NODE_TAG: "n9"}))
    await bench.expect(updated("app", "Accepted"))
    await bench.expect_silence()
    await bench.node("n9")
    await bench.expect(updated("app", "Running"), new("k", "n9"))


@case(98, "without a policy an allocation may be preempted and does not preempt", rule="protocol.md 3.5")
async def default_policy(bench: Bench) -> None:
    await bench.world()
    got = placed_allocation((await bench.start("k"))[0]).preemptionPolicy
    check(got.allowPreemptSelf, "allowPreemptSelf is true")
    check(not got.allowPreemptOther, "allowPreemptOther is false")
    await bench.send(allocation("k2", policy=(False, False)))
    got = placed_allocation((await bench.expect(new("k2")))[0]).preemptionPolicy
    check(not got.allowPreemptSelf and not got.allowPreemptOther, "an empty policy says false to both")


@case(99, "a key belongs to one application", rule="protocol.md 16 DB-15")
async def key_in_use(bench: Bench) -> None:
    await bench.world()
    await bench.start("k")
    await bench.app("app2")
    await bench.send(allocation("k", app="app2"))
    await bench.expect(rejected("k", "key-in-use", app="app2"))
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE - ASK_VCORE})


@case(100, "one request that asks and withdraws adds first", rule="protocol.md 8")
async def ask_and_withdraw(bench: Bench) -> None:
    await bench.world()
    await bench.send(allocation("k"), releases=[messages.release("k")])
    await bench.expect(updated("app", "Accepted"))
    seen = [entry for entry in await bench.read_until_quiet() if entry.kind in (Kind.NEW, Kind.RELEASED)]
    kinds = [entry.kind for entry in seen]
    check(kinds in ([], [Kind.NEW, Kind.RELEASED]), f"expected no new, or new and released, got {kinds}")
    await bench.expect_counts(nodes=1, asks=0, allocations=0)
    await bench.expect_free({"n1": NODE_VCORE})
