"""Cases about partition names: empty, bare and full names mean the same, and unknown names are refused or ignored."""

from __future__ import annotations

from typing import cast

from kornel.conformance import messages
from kornel.conformance.bench import PARTITION, Bench
from kornel.conformance.case import case
from kornel.conformance.entries import (
    Entry,
    app_accepted,
    app_rejected,
    node_accepted,
    node_rejected,
    rejected,
    released,
    updated,
)
from kornel.conformance.outcome import check
from kornel.si.v1 import si_pb2 as si


def partition_of(entry: Entry) -> str:
    """Returns the partition that a ``released`` entry names."""
    return cast("si.AllocationRelease", entry.message).partitionName


@case(20, "a node without attributes lives in the default partition", rule="protocol.md 4.1")
async def default_partition(bench: Bench) -> None:
    await bench.world()
    await bench.start("k", node="n1")
    await bench.node_action("n1", si.NodeInfo.DECOMISSION)
    gone = (await bench.expect(updated("app", "Completing"), released("k")))[1]
    check(partition_of(gone) == PARTITION, f"expected partition {PARTITION}, got {partition_of(gone)}")


@case(21, "bare and full partition names are the same partition", rule="protocol.md 4.1")
async def same_partition(bench: Bench) -> None:
    await bench.reg()
    names = {"n1": "default", "n2": PARTITION}
    await bench.send_nodes(
        *(
            messages.node_info(node, capacity={"vcore": 1000}, attributes={messages.PARTITION_ATTRIBUTE: partition})
            for node, partition in names.items()
        )
    )
    await bench.expect(node_accepted("n1"), node_accepted("n2"))
    await bench.send_applications(
        messages.application("app", partition="default"),
        messages.application("app2", partition=PARTITION),
        messages.application("app"),
    )
    await bench.expect_set(app_accepted("app"), app_accepted("app2"), app_rejected("app", "application-exists"))
    await bench.expect_free({"n1": 1000, "n2": 1000})


@case(22, "a node and an application for an unknown partition are refused", rule="protocol.md 4.1")
async def unknown_partition(bench: Bench) -> None:
    await bench.reg()
    await bench.send_nodes(messages.node_info("n1", capacity={}, attributes={messages.PARTITION_ATTRIBUTE: "gpu"}))
    await bench.send_applications(messages.application("app", partition="gpu"))
    await bench.expect(node_rejected("n1", "partition-not-found"), app_rejected("app", "partition-not-found"))
    await bench.expect_silence()
    # The refused node and application were not added to another partition either.
    await bench.node("n1")
    await bench.app()


@case(23, "an ask for an unknown partition is refused with its key and application", rule="protocol.md 8.1")
async def ask_elsewhere(bench: Bench) -> None:
    await bench.world()
    await bench.send(messages.allocation("k", partition="gpu"))
    await bench.expect(rejected("k", "partition-not-found", app="app"))
    await bench.expect_silence()


@case(24, "a release for an unknown partition is ignored", rule="protocol.md 10.1")
async def release_elsewhere(bench: Bench) -> None:
    await bench.world()
    await bench.start("k")
    await bench.send(releases=[messages.release("k", partition="gpu")])
    await bench.expect_silence()
    await bench.expect_free({"n1": messages.NODE_VCORE - messages.ASK_VCORE})


@case(25, "every release of the core carries the full partition name", rule="protocol.md 2.5")
async def full_names(bench: Bench) -> None:
    await bench.world()
    await bench.start("k1", "k2", "k3")
    await bench.release("k1")
    echo = (await bench.expect(released("k1")))[0]
    await bench.send_applications(remove=["app"])
    await bench.expect(updated("app", "Completing"))
    gone = await bench.expect_set(released("k2"), released("k3"))
    for entry in (echo, *gone):
        check(partition_of(entry) == PARTITION, f"expected partition {PARTITION}, got {partition_of(entry)}")
