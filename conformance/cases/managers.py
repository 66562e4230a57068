"""Cases of two RMs on one core, which must not affect each other.

A core that serves one RM at a time refuses the second registration, and these cases are skipped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import grpc

from kornel.conformance import messages
from kornel.conformance.bench import OTHER_RM, PARTITION, Bench
from kornel.conformance.case import case
from kornel.conformance.entries import rejected
from kornel.conformance.outcome import Skipped

FLOOD_MESSAGES: Final = 40
FLOOD_ASKS: Final = 500
"""The number of asks in one message of the flood."""


@asynccontextmanager
async def beside(bench: Bench) -> AsyncIterator[Bench]:
    """Yields another program that acts as another RM. It is registered and has open streams. Raises Skipped if the core
    serves only one RM."""
    async with bench.another_program(OTHER_RM) as other:
        try:
            await other.reg()
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                raise Skipped("the core serves one RM at a time") from None
            raise
        try:
            yield other
        finally:
            await bench.unregister(OTHER_RM)


@case(167, "two RMs with equal names of nodes, applications and asks do not affect each other",
      rule="protocol.md 5.1")  # fmt: skip
async def equal_names(bench: Bench) -> None:
    await bench.world()
    async with beside(bench) as other:
        await other.node("n1")
        await other.app()
        await bench.start("k", "l")
        await other.start("k", node="n1")
        await other.send(messages.allocation("x", partition=PARTITION))
        await other.expect(rejected("x", "partition-not-found"))
        await other.send(releases=[messages.release("l", partition=PARTITION)])
        await bench.release("k")
        await bench.read_until_quiet()
        await bench.expect_counts(nodes=1, asks=0, allocations=1)
        await other.expect_counts(nodes=1, asks=0, allocations=1)


@case(168, "an RM whose program is killed keeps what it has, and another one goes on", rule="protocol.md 5.1")
async def one_is_killed(bench: Bench) -> None:
    await bench.world()
    async with beside(bench) as other:
        await other.node("n1")
        await other.app()
        await other.start("k", node="n1")
        await other.close()
        await bench.start("k")
        await other.expect_counts(nodes=1, asks=0, allocations=1)
        await other.reg()
        await other.expect_counts(nodes=0, asks=0, allocations=0)
        await bench.expect_counts(nodes=1, asks=0, allocations=1)
        await bench.ask_and_place("k2")


@case(169, "an RM that sends as much as it can and reads nothing does not hold up another one", rule="protocol.md 5.1")
async def one_floods(bench: Bench) -> None:
    await bench.world()
    async with beside(bench) as other:
        await other.node("n1")
        await other.app()
        for number in range(FLOOD_MESSAGES):
            await other.send(*(messages.allocation(f"flood-{number}-{n}") for n in range(FLOOD_ASKS)))
        await bench.start("k")
        await bench.ask_and_place("k2")
        await bench.release("k")
        await bench.expect_counts(nodes=1, asks=0, allocations=1)
