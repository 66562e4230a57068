"""Cases about the older generation of the interface (releases 1.1 to 1.5) on the same service."""

from __future__ import annotations

from typing import cast

from kornel.conformance import messages
from kornel.conformance.arrangements import GROUP
from kornel.conformance.bench import PARTITION, Bench
from kornel.conformance.case import case
from kornel.conformance.connection import RM
from kornel.conformance.entries import (
    Kind,
    Want,
    app_accepted,
    new,
    node_accepted,
    node_rejected,
    rejected_ask,
    released,
    updated,
)
from kornel.conformance.messages import ASK_VCORE, NODE_VCORE
from kornel.conformance.outcome import check
from kornel.si.v1 import si_pb2 as si

UNKNOWN_FIELD = b"\xd2\xfc\x0f\x05hello"
"""Field 32714 with a length-delimited value, which no generation of the interface has."""


def ask(key: str, vcore: int = ASK_VCORE, *, app: str = "app", count: int = 1) -> si.AllocationAsk:
    """Returns an ask of the older generation."""
    return si.AllocationAsk(
        allocationKey=key,
        applicationID=app,
        resourceAsk=messages.make_amounts({"vcore": vcore}),
        maxAllocations=count,
    )


@case(150, "an older ask is placed, and its allocation has an ID", rule="protocol.md 3.4")
async def old_ask(bench: Bench) -> None:
    await bench.world()
    await bench.send_asks(ask("k"))
    await bench.expect(updated("app", "Accepted"), updated("app", "Running"))
    placed = cast("si.Allocation", (await bench.expect(new("k", "n1")))[0].message)
    check(placed.allocationID == "k-0", f"expected allocationID k-0, got {placed.allocationID!r}")


@case(151, "refused older asks come in the older list", rule="protocol.md 3.4")
async def old_refusal(bench: Bench) -> None:
    await bench.reg()
    await bench.send_asks(ask("k", app="nobody"))
    await bench.expect(rejected_ask("k", "application-not-found"))
    await bench.expect_silence()


@case(152, "an older ask for no allocations is refused", rule="protocol.md 3.4")
async def old_ask_for_none(bench: Bench) -> None:
    await bench.world()
    await bench.send_asks(ask("k", count=0), ask("k2", count=-1))
    await bench.expect(rejected_ask("k"), rejected_ask("k2"))
    await bench.expect_silence()


@case(153, "an older ask without policy may be preempted and does not preempt", rule="protocol.md 3.5")
async def old_default_policy(bench: Bench) -> None:
    await bench.world()
    await bench.send_asks(ask("k"))
    policy = cast("si.Allocation", (await bench.expect(new("k")))[0].message).preemptionPolicy
    check(policy.allowPreemptSelf, "allowPreemptSelf is true")
    check(not policy.allowPreemptOther, "allowPreemptOther is false")


@case(154, "placeholders that waited too long are dropped in the older list", rule="protocol.md 3.4", waits_s=2)
async def old_placeholder_timeout(bench: Bench) -> None:
    await bench.reg()
    await bench.node("n1")
    gang = {"vcore": 12_000}
    await bench.send_applications(messages.application("app", gang=gang, gang_timeout_ms=1000))
    await bench.expect(app_accepted("app"))
    for key in ("p1", "p2"):
        old = ask(key, 6000)
        old.placeholder = True
        old.taskGroupName = GROUP
        await bench.send_asks(old)
    await bench.expect(updated("app", "Accepted"), new("p1", "n1"))
    await bench.clock.advance_time(2)
    await bench.expect(Want(Kind.ASK_RELEASED, "p2", "TIMEOUT"), released("p1", si.TIMEOUT))


@case(155, "a node that brings an allocation of an unknown application is refused", rule="protocol.md 3.4")
async def existing_allocation_refused(bench: Bench) -> None:
    await bench.world()
    node = messages.full_node("n2", 20_000)
    node.existingAllocations.append(messages.allocation("k", node="n2"))
    node.existingAllocations.append(messages.allocation("x", app="nobody", node="n2"))
    await bench.send_nodes(node)
    await bench.expect(node_rejected("n2", "application-not-found"))
    # The allocation that was recovered before the refusal is undone, together with its effects on the application.
    await bench.expect_silence()
    await bench.expect_counts(nodes=1, asks=0, allocations=0)
    await bench.expect_free({"n1": NODE_VCORE})
    node = messages.full_node("n2", 20_000)
    node.existingAllocations.append(messages.allocation("k", node="n2"))
    await bench.send_nodes(node)
    await bench.expect(node_accepted("n2"), new("k", "n2"))
    await bench.expect(updated("app", "Accepted"), updated("app", "Running"))


@case(156, "an older release names the allocation by its ID", rule="protocol.md 3.4")
async def old_release(bench: Bench) -> None:
    await bench.world()
    await bench.send_asks(ask("k0"), ask("k1"), ask("k2"))
    await bench.expect_set(new("k0", "n1"), new("k1", "n1"), new("k2", "n1"))
    await bench.expect(updated("app", "Accepted"), updated("app", "Running"))
    await bench.send(releases=[si.AllocationRelease(applicationID="app", allocationID="k0-0")])
    await bench.expect(released("k0"))
    await bench.send(releases=[si.AllocationRelease(applicationID="app", UUID="k1-0")])
    await bench.expect(released("k1"))
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE - ASK_VCORE})


@case(157, "unknown fields are ignored, and the rest of the message counts", rule="protocol.md 17")
async def unknown_fields(bench: Bench) -> None:
    await bench.reg()
    node = si.NodeInfo.FromString(messages.full_node("n1").SerializeToString() + UNKNOWN_FIELD)
    await bench.send_nodes(node)
    await bench.expect(node_accepted("n1"))
    request = si.ApplicationRequest(rmID=RM, new=[messages.application("app", partition=PARTITION)])
    await bench.applications.send(si.ApplicationRequest.FromString(request.SerializeToString() + UNKNOWN_FIELD))
    await bench.expect(app_accepted("app"))
    asked = si.Allocation.FromString(messages.allocation("k").SerializeToString() + UNKNOWN_FIELD)
    await bench.send(asked)
    await bench.expect(updated("app", "Accepted"), updated("app", "Running"), new("k", "n1"))
