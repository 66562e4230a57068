"""Cases about registration and configuration: which programs may use the core, and with which queues."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from kornel.conformance import configs, messages
from kornel.conformance.bench import OTHER_RM, PARTITION, Bench
from kornel.conformance.callback_peer import EVENT_PUSH_S, Answers
from kornel.conformance.case import case
from kornel.conformance.connection import RM
from kornel.conformance.entries import app_accepted, app_rejected, new, node_accepted, node_rejected, rejected, updated
from kornel.conformance.outcome import Skipped, check
from kornel.si.v1 import si_pb2 as si

PROBLEMS_KEY = "kornel-problems-bin"


@case(1, "a registration with a valid configuration makes the partition", rule="protocol.md 5.1")
async def valid_registration(bench: Bench) -> None:
    await bench.start_fresh()
    response = await bench.register()
    check(response == si.RegisterResourceManagerResponse(), "the response has no fields")
    await bench.open_streams()
    await bench.send_nodes(messages.node_info("n1", capacity={}, attributes={messages.PARTITION_ATTRIBUTE: PARTITION}))
    await bench.expect(node_accepted("n1"))


@case(2, "an empty configuration is the default one: a queue per namespace tag", rule="protocol.md 5.3")
async def empty_configuration(bench: Bench) -> None:
    await bench.start_fresh()
    await bench.register("")
    await bench.open_streams()
    await bench.send_applications(
        messages.application("tagged", "", tags={"namespace": "dev"}), messages.application("plain", "")
    )
    await bench.expect(app_accepted("tagged"), app_rejected("plain", "no-queue"))
    await bench.expect_queue("root.dev", present=True)


@case(3, "a configuration with an unknown key is refused, and the next registration succeeds", rule="protocol.md 5.1")
async def unknown_key(bench: Bench) -> None:
    await bench.start_fresh()
    await bench.expect_refusal(bench.register(configs.UNKNOWN_KEY), grpc.StatusCode.INVALID_ARGUMENT)
    await bench.register()
    await bench.open_streams()


@case(4, "a root queue with limits is refused", rule="protocol.md 5.1")
async def root_limits(bench: Bench) -> None:
    await bench.start_fresh()
    await bench.expect_refusal(bench.register(configs.ROOT_WITH_LIMITS), grpc.StatusCode.INVALID_ARGUMENT)


@case(5, "a registration without rmID is refused", rule="protocol.md 5.1")
async def no_rm_id(bench: Bench) -> None:
    await bench.start_fresh()
    await bench.expect_refusal(bench.register(rm=""), grpc.StatusCode.INVALID_ARGUMENT)


@case(6, "a second RM is served beside the first one, or refused, and leaves it alone", rule="protocol.md 5.1")
async def second_rm(bench: Bench) -> None:
    await bench.world()
    await bench.start("k")
    async with serving_another(bench):
        await bench.expect_silence()
        await bench.expect_counts(nodes=1, asks=0, allocations=1)
        await bench.ask_and_place("k2")


@asynccontextmanager
async def serving_another(bench: Bench) -> AsyncIterator[None]:
    """Registers another RM if the core takes one, and removes it in the end."""
    try:
        await bench.register(rm=OTHER_RM)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
            raise
        yield
    else:
        try:
            yield
        finally:
            await bench.unregister(OTHER_RM)


@case(7, "registering again starts afresh, without a word about what was there", rule="protocol.md 5.2")
async def registered_again(bench: Bench) -> None:
    await bench.world()
    await bench.start("k1", "k2")
    await bench.reg()
    await bench.expect_silence()
    await bench.expect_counts(nodes=0, asks=0, allocations=0)
    await bench.send(messages.allocation("k1"), messages.make_foreign("f", 1000, "n1"))
    await bench.expect(rejected("k1", "application-not-found"), rejected("f", "node-not-found"))


@case(8, "after registering again the same node and application are new", rule="protocol.md 5.2")
async def reported_again(bench: Bench) -> None:
    await bench.world()
    await bench.start("k1", "k2")
    await bench.reg()
    await bench.node("n1")
    await bench.app()
    await bench.expect_free({"n1": messages.NODE_VCORE})
    await bench.start("k1", "k2")


@case(9, "registering again takes the usage of users back to zero", rule="protocol.md 5.2")
async def user_usage_cleared(bench: Bench) -> None:
    await bench.world(configs.USER_LIMIT)
    await bench.start("k1", "k2")
    await bench.send(messages.allocation("k3"))
    # If this is placed, the limit by which the case measures usage is not in force.
    await bench.expect_silence()
    await bench.expect_user(2 * messages.ASK_VCORE)
    await bench.world(configs.USER_LIMIT)
    await bench.expect_user(0)
    await bench.start("k1", "k2")


@case(10, "a failed registration takes the old one away", rule="protocol.md 5.1")
async def failed_again(bench: Bench) -> None:
    await bench.world()
    await bench.expect_refusal(bench.register(configs.UNKNOWN_KEY), grpc.StatusCode.INVALID_ARGUMENT)
    stream = bench.open_nodes()
    await stream.send(si.NodeRequest(rmID=RM, nodes=[messages.full_node("n2")]))
    await bench.expect_end(stream, grpc.StatusCode.FAILED_PRECONDITION)


@case(
    11,
    "a stream of an RM that is not registered ends FAILED_PRECONDITION, and nothing is stored",
    rule="protocol.md 1.1",
)
async def unknown_rm(bench: Bench) -> None:
    await bench.start_fresh()
    nodes, applications, allocations = (
        bench.open_nodes(),
        bench.open_applications(),
        bench.open_allocations(),
    )
    await nodes.send(si.NodeRequest(rmID=RM, nodes=[messages.full_node("n1")]))
    await applications.send(si.ApplicationRequest(rmID=RM, new=[messages.application("app")]))
    await allocations.send(si.AllocationRequest(rmID=RM, allocations=[messages.allocation("k")]))
    for stream in (nodes, applications, allocations):
        await bench.expect_end(stream, grpc.StatusCode.FAILED_PRECONDITION)
    await bench.reg()
    await bench.expect_silence()
    await bench.expect_counts(nodes=0, asks=0, allocations=0)


@case(
    12, "a second rmID on one stream ends it INVALID_ARGUMENT, what came before stays applied", rule="protocol.md 1.1"
)
async def second_rm_on_stream(bench: Bench) -> None:
    await bench.reg()
    await bench.node("n1")
    stream = bench.nodes
    await stream.send(si.NodeRequest(rmID=OTHER_RM, nodes=[messages.full_node("n2")]))
    await bench.expect_end(stream, grpc.StatusCode.INVALID_ARGUMENT)
    await bench.open_nodes().send(si.NodeRequest(rmID=RM))
    await bench.send_nodes(messages.full_node("n1"), messages.full_node("n2"))
    await bench.expect(node_accepted("n2"), node_rejected("n1", "node-exists"))


@case(13, "responses wait for a stream and are delivered in order", rule="protocol.md 1.1")
async def queued_responses(bench: Bench) -> None:
    await bench.world()
    stream = bench.applications
    await stream.half_close()
    await bench.expect_end(stream, grpc.StatusCode.OK)
    await bench.send(messages.allocation("k"))
    await bench.expect(new("k", "n1"))
    await bench.release("k")
    await bench.open_applications().send(si.ApplicationRequest(rmID=RM))
    await bench.expect(updated("app", "Accepted"), updated("app", "Running"), updated("app", "Completing"))


@case(14, "of two allocation streams the newer one hears of an allocation, once", rule="protocol.md 1.1")
async def newer_stream_hears(bench: Bench) -> None:
    await bench.world()
    older = bench.allocations
    newer = bench.open_allocations()
    await newer.send(si.AllocationRequest(rmID=RM))
    # The newer stream gets the answer to the fence only once it is bound.
    await bench.expect_silence()
    await older.send(si.AllocationRequest(rmID=RM, allocations=[messages.allocation("k")]))
    await bench.expect(updated("app", "Accepted"), updated("app", "Running"), new("k", "n1"))
    await bench.expect_silence()
    check(not len(older.inbox), "the older stream hears nothing more")


@case(15, "the configuration in force, sent again, changes no queue but extra settings", rule="protocol.md 5.4")
async def same_configuration(bench: Bench) -> None:
    await bench.world()
    await bench.start("k")
    answer = await bench.update_configuration(configs.BASIC, extra={"event.requestCapacity": "1"})
    check(not answer.changed, "nothing of the queues changed")
    await bench.expect_silence()
    await bench.ask_and_place("k2")
    await expect_events_at_most(bench, 1)


async def expect_events_at_most(bench: Bench, capacity: int) -> None:
    """If the core reports events, expect *capacity* events from an interval in which more happens."""
    if bench.clock.patience_s < EVENT_PUSH_S:
        bench.notes.append(f"not looked at: the events of {EVENT_PUSH_S:g} s")
        return
    try:
        peer = await bench.attach_peer(Answers(events=True))
    except Skipped as why:
        bench.notes.append(f"not looked at: the capacity for events, {why}")
        return
    await bench.ask_and_place("k3")
    await bench.clock.advance_time(EVENT_PUSH_S)
    await peer.wait_until(lambda: peer.events, "an event of what happened to k3")
    check(len(peer.events) == capacity, f"expected {capacity} events in an interval, got {len(peer.events)}")


@case(16, "a queue taken out takes no more applications, and goes when it is empty", rule="protocol.md 5.4", waits_s=11)
async def removed_queue(bench: Bench) -> None:
    await bench.world(configs.TWO_LEAVES)
    await bench.start("k")
    await bench.update_configuration(configs.WITHOUT_A)
    await bench.expect_silence()
    await bench.ask_and_place("k2")
    await bench.send_applications(messages.application("late"))
    await bench.expect(app_rejected("late", "no-queue"))
    await bench.expect_queue("root.a", present=True)
    await bench.send_applications(remove=["app"])
    await bench.expect(updated("app", "Completing"))
    await bench.clock.advance_time(11)
    await bench.expect_queue("root.a", present=False)


@case(17, "an invalid update is refused, and the old queues stay in force", rule="protocol.md 5.4")
async def invalid_update(bench: Bench) -> None:
    await bench.world()
    await bench.start("k")
    error = await bench.expect_refusal(
        bench.update_configuration(configs.UNKNOWN_KEY), grpc.StatusCode.INVALID_ARGUMENT
    )
    trailing = dict(error.trailing_metadata() or ())
    check(PROBLEMS_KEY in trailing, f"the problems come along as {PROBLEMS_KEY}")
    await bench.expect_silence()
    await bench.ask_and_place("k2")
    await bench.send_applications(messages.application("app2"))
    await bench.expect(app_accepted("app2"))


@case(18, "an update before any registration is refused", rule="protocol.md 5.4")
async def update_unregistered(bench: Bench) -> None:
    await bench.start_fresh()
    await bench.expect_refusal(bench.update_configuration(configs.BASIC), grpc.StatusCode.FAILED_PRECONDITION)


@case(19, "an update by another RM is refused and changes nothing", rule="protocol.md 16 DB-16")
async def update_by_other(bench: Bench) -> None:
    await bench.world(configs.TWO_LEAVES)
    await bench.expect_refusal(
        bench.update_configuration(configs.WITHOUT_A, rm=OTHER_RM), grpc.StatusCode.FAILED_PRECONDITION
    )
    await bench.start("k")
    await bench.send_applications(messages.application("app2"))
    await bench.expect(app_accepted("app2"))
