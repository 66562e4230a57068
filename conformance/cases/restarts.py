"""Cases in which the core is killed and started again with the same journal, for shims that count entries and shims
that do not."""

from __future__ import annotations

from uuid import uuid4

from kornel.conformance import messages
from kornel.conformance.bench import Bench
from kornel.conformance.case import case
from kornel.conformance.cases.managers import beside
from kornel.conformance.connection import FENCE, RESUME_KEY
from kornel.conformance.entries import Kind, new
from kornel.conformance.outcome import Skipped, check
from kornel.si.v1 import si_pb2 as si


@case(171, "after a kill a shim that says nothing of it opens its streams, and misses nothing", rule="protocol.md 12")
async def killed_in_between(bench: Bench) -> None:
    await bench.world()
    placed = await bench.start("k1", "k2")
    placed.append(await bench.ask_and_place("k3"))
    await bench.restart_core()
    await bind_streams(bench)
    # The entries that it may have missed come once more, and nothing else.
    nodes = {entry.key: entry.detail for entry in placed}
    for entry in await bench.read_until_quiet():
        if entry.kind is Kind.NEW:
            check(entry.detail == nodes.get(entry.key), f"expected {entry.key} where it was, got {entry}")
        else:
            before = entry.key in ("n1", "app") or entry.key.startswith(FENCE)
            check(before, f"expected nothing that was not said before, got {entry}")
    await bench.expect_counts(nodes=1, asks=0, allocations=3)
    await bench.ask_and_place("k4")
    await bench.expect_silence()


@case(172, "after a kill a shim that says what it has received gets each decision once, and learns what was applied",
      rule="protocol.md 12")  # fmt: skip
async def resumed_after_kill(bench: Bench) -> None:
    session = ("kornel-session", uuid4().hex)
    await bench.close()
    await bench.register(metadata=(session,))
    if not bench.epoch:
        raise Skipped(f"the core does not answer a registration with {RESUME_KEY}")
    for kind in bench.sent:
        bench.sent[kind] = 0
        bench.marks[kind] = (session, (RESUME_KEY, f"{bench.epoch}/0"))
    await bench.open_streams()
    await bench.node("n1")
    await bench.app()
    await bench.start("k1", "k2")
    received = {stream.name: stream.received for stream in (bench.nodes, bench.applications, bench.allocations)}
    # It is not known whether this arrives before the core is killed.
    await bench.send(messages.allocation("k3"))
    await bench.restart_core()
    for kind, count in received.items():
        bench.marks[kind] = (session, (RESUME_KEY, f"{bench.epoch}/{count}"))
    await bind_streams(bench)
    applied = {stream: await bench.read_applied(stream) for stream in bench.sent}
    sent = dict(bench.sent)
    check(
        applied in (sent, {**sent, "allocation": sent["allocation"] - 1}),
        f"expected that of {sent} entries all but the last one may be missing, got {applied}",
    )
    if applied["allocation"] < sent["allocation"]:
        await bench.send(messages.allocation("k3"))
    await bench.expect(new("k3"))
    await bench.expect_silence()
    await bench.ask_and_place("k4")
    await bench.expect_counts(nodes=1, asks=0, allocations=4)


@case(183, "after a kill two RMs open their streams, and each goes on with what it had", rule="protocol.md 12")
async def two_go_on(bench: Bench) -> None:
    await bench.world()
    async with beside(bench) as other:
        await other.node("n1")
        await other.app()
        await bench.start("k1")
        await other.start("k1", "k2", node="n1")
        await bench.restart_core(other)
        for each in (bench, other):
            await bind_streams(each)
            await each.read_until_quiet()
        await bench.ask_and_place("k2")
        await other.ask_and_place("k3")
        await other.release("k1")
        await other.read_until_quiet()
        await bench.expect_silence()
        await bench.expect_counts(nodes=1, asks=0, allocations=2)
        await other.expect_counts(nodes=1, asks=0, allocations=2)


async def bind_streams(bench: Bench) -> None:
    """Opens the three streams without registering."""
    await bench.open_nodes().send(si.NodeRequest(rmID=bench.rm))
    await bench.open_applications().send(si.ApplicationRequest(rmID=bench.rm))
    await bench.open_allocations().send(si.AllocationRequest(rmID=bench.rm))
