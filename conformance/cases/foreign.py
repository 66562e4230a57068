"""Cases about foreign allocations: load of another scheduler, for which the core only counts the room."""

from __future__ import annotations

from kornel.conformance.bench import Bench
from kornel.conformance.case import case
from kornel.conformance.entries import rejected
from kornel.conformance.messages import NODE_VCORE, make_foreign


async def with_foreign(bench: Bench) -> None:
    """Registers, and creates n1 with a foreign allocation f of 2000."""
    await bench.reg()
    await bench.node("n1")
    await bench.send(make_foreign("f", 2000, "n1"))
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE - 2000})


@case(101, "foreign load takes room and is not answered", rule="protocol.md 9")
async def add(bench: Bench) -> None:
    await with_foreign(bench)


@case(102, "foreign load may change its size", rule="protocol.md 9")
async def resize(bench: Bench) -> None:
    await with_foreign(bench)
    await bench.send(make_foreign("f", 3000, "n1"))
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE - 3000})


@case(103, "foreign load may move", rule="protocol.md 9")
async def move(bench: Bench) -> None:
    await with_foreign(bench)
    await bench.node("n2")
    await bench.send(make_foreign("f", 2000, "n2"))
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE, "n2": NODE_VCORE - 2000})


@case(104, "foreign load needs a node that exists", rule="protocol.md 9")
async def bad_node(bench: Bench) -> None:
    await bench.reg()
    await bench.node("n1")
    await bench.send(make_foreign("f", 1000, ""), make_foreign("g", 1000, "n9"))
    await bench.expect(rejected("f", "foreign-without-node"), rejected("g", "node-not-found"))
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE})


@case(105, "released foreign load gives its room back", rule="protocol.md 9")
async def remove(bench: Bench) -> None:
    await with_foreign(bench)
    await bench.release("f", app="")
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE})


@case(106, "foreign load of an unknown kind counts like any other", rule="protocol.md 4.4")
async def unknown_kind(bench: Bench) -> None:
    await bench.reg()
    await bench.node("n1")
    await bench.send(make_foreign("f", 2000, "n1", kind="weird"))
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE - 2000})
