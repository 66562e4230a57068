"""Cases in which another program takes over a running core: for the same RM, and for another one."""

from __future__ import annotations

import grpc

from kornel.conformance import messages
from kornel.conformance.bench import OTHER_RM, Bench
from kornel.conformance.callback_peer import Answers
from kornel.conformance.case import case
from kornel.conformance.entries import app_accepted, updated
from kornel.conformance.messages import NODE_VCORE
from kornel.conformance.outcome import check


@case(158, "another program takes over by registering the same RM, and begins afresh", rule="protocol.md 5.2")
async def same_rm(bench: Bench) -> None:
    await bench.world()
    await bench.start("k1", "k2")
    async with bench.another_program() as successor:
        await successor.reg()
        await successor.expect_counts(nodes=0, asks=0, allocations=0)
        # The same names may be used again, and the earlier allocations take no room.
        await successor.node("n1")
        await successor.app()
        await successor.expect_free({"n1": NODE_VCORE})
        await successor.start("k1", node="n1")
        await successor.release("k1")
        await successor.expect(updated("app", "Completing"))
        await successor.read_until_quiet()
        await bench.expect_nothing_unread()


@case(159, "once an RM is unregistered another one may register", rule="protocol.md 5.1")
async def another_rm(bench: Bench) -> None:
    await bench.world()
    await bench.start("k1", "k2")
    async with bench.another_program(OTHER_RM) as successor:
        await bench.unregister()
        for stream in (bench.nodes, bench.applications, bench.allocations):
            await bench.expect_end(stream, grpc.StatusCode.FAILED_PRECONDITION)
        await bench.expect_nothing_unread()
        await bench.expect_refusal(bench.unregister(), grpc.StatusCode.FAILED_PRECONDITION)
        await successor.reg()
        try:
            await successor.expect_counts(nodes=0, asks=0, allocations=0)
            await successor.node("n1")
            await successor.app()
            await successor.expect_free({"n1": NODE_VCORE})
            await successor.start("k1", node="n1")
            await successor.ask_and_place("k2")
        finally:
            await successor.unregister()


@case(
    164, "a registration from another session ends the streams and callbacks of the older one", rule="protocol.md 5.1"
)
async def superseded(bench: Bench) -> None:
    await bench.world()
    peer = await bench.attach_peer(Answers(predicates=lambda _: {}))
    async with bench.another_program() as successor:
        await successor.reg()
        for stream in (bench.nodes, bench.applications, bench.allocations):
            await bench.expect_end(stream, grpc.StatusCode.ABORTED)
        code, details = await peer.wait_for_end()
        check(code is grpc.StatusCode.ABORTED, f"expected the callbacks to end with ABORTED, got {code.name}")
        check(details.startswith("superseded"), f"expected the details to begin with superseded, got {details!r}")
        await successor.node("n1")
        await successor.app()
        await successor.start("k", node="n1")


@case(165, "what the older session sends late is refused, and takes no name from the younger", rule="protocol.md 5.1")
async def sent_late(bench: Bench) -> None:
    await bench.world()
    async with bench.another_program() as successor:
        await successor.reg()
        await bench.expect_end(bench.applications, grpc.StatusCode.ABORTED)
        late = bench.open_applications()
        await bench.send_applications(messages.application("late"))
        await bench.expect_end(late, grpc.StatusCode.ABORTED)
        await bench.expect_refusal(bench.unregister(), grpc.StatusCode.ABORTED)
        await successor.send_applications(messages.application("late"))
        await successor.expect(app_accepted("late"))


@case(166, "who wants to wait registers only when the older session has had no stream for so long",
      rule="protocol.md 5.1", waits_s=3)  # fmt: skip
async def lease(bench: Bench) -> None:
    await bench.world()
    async with bench.another_program() as successor:
        waiting = (("kornel-lease", "wait=2"),)
        refused = await bench.expect_refusal(successor.register(metadata=waiting), grpc.StatusCode.FAILED_PRECONDITION)
        trailing = dict(refused.trailing_metadata() or ())
        check(
            "kornel-retry-after-ms" in trailing, f"expected when to try again in the trailing metadata, got {trailing}"
        )
        await bench.start("k")
        await bench.close()
        await bench.clock.advance_time(3)
        await successor.register(metadata=waiting)
        await successor.open_streams()
        await successor.node("n1")
