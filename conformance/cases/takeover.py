"""Cases in which another program takes over a running core: for the same RM, and for another one."""

from __future__ import annotations

import grpc

from kornel.conformance.bench import OTHER_RM, Bench
from kornel.conformance.case import case
from kornel.conformance.entries import updated
from kornel.conformance.messages import NODE_VCORE


@case(158, "another program takes over by registering the same RM, and begins afresh", rule="protocol.md 5.2")
async def same_rm(bench: Bench) -> None:
    await bench.world()
    await bench.start("k1", "k2")
    async with bench.another_program() as successor:
        await successor.reg()
        await successor.expect_counts(nodes=0, asks=0, allocations=0)
        # The same names are new names, and what was there takes no room.
        await successor.node("n1")
        await successor.app()
        await successor.expect_free({"n1": NODE_VCORE})
        await successor.start("k1", node="n1")
        await successor.release("k1")
        await successor.expect(updated("app", "Completing"))
        await successor.read_until_quiet()
        await bench.hears_nothing()


@case(159, "once an RM is unregistered another one may register", rule="protocol.md 5.1")
async def another_rm(bench: Bench) -> None:
    await bench.world()
    await bench.start("k1", "k2")
    async with bench.another_program(OTHER_RM) as successor:
        await bench.expect_refusal(successor.register(), grpc.StatusCode.FAILED_PRECONDITION)
        await bench.unregister()
        for stream in (bench.nodes, bench.applications, bench.allocations):
            await bench.expect_end(stream, grpc.StatusCode.FAILED_PRECONDITION)
        await bench.hears_nothing()
        await bench.expect_refusal(bench.unregister(), grpc.StatusCode.FAILED_PRECONDITION)
        await successor.reg()
        try:
            await successor.expect_counts(nodes=0, asks=0, allocations=0)
            await successor.node("n1")
            await successor.app()
            await successor.expect_free({"n1": NODE_VCORE})
            await successor.start("k1", node="n1")
            await bench.expect_refusal(bench.register(), grpc.StatusCode.FAILED_PRECONDITION)
            await successor.ask_and_place("k2")
        finally:
            await successor.unregister()
