"""The example shim, broken in one way: ``python -m tests.conformance.broken_shims WAY --core ADDRESS``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet

from kornel.shim_client import (
    Allocated,
    ApplicationAccepted,
    ApplicationUpdated,
    Ask,
    AskRejected,
    Device,
    Devices,
    NodeRejected,
    Released,
    ResyncRequired,
    ShimClient,
    StreamReopened,
    devices_attribute,
    example,
    stream,
)
from kornel.shim_client.outbox import Outbox
from kornel.shim_client.progress import Progress
from kornel.si.v1 import si_pb2 as si

DEMANDS = (si.PREEMPTED_BY_SCHEDULER, si.TIMEOUT, si.PLACEHOLDER_REPLACED)


def never_confirms() -> None:
    """Does not answer a demand to release."""
    send = ShimClient.release

    async def release(self: ShimClient, releases: Iterable[si.AllocationRelease]) -> None:
        await send(self, [each for each in releases if each.terminationType not in DEMANDS])

    ShimClient.release = release  # type: ignore[method-assign]


def confirms_as_stopped() -> None:
    """Answers every demand with STOPPED_BY_RM."""
    send = ShimClient.release

    async def release(self: ShimClient, releases: Iterable[si.AllocationRelease]) -> None:
        changed = list(releases)
        for each in changed:
            each.terminationType = si.STOPPED_BY_RM
        await send(self, changed)

    ShimClient.release = release  # type: ignore[method-assign]


def confirms_twice() -> None:
    """Answers every demand with two releases."""
    send = ShimClient.release

    async def release(self: ShimClient, releases: Iterable[si.AllocationRelease]) -> None:
        await send(self, [each for each in releases for _ in range(2)])

    ShimClient.release = release  # type: ignore[method-assign]


def asks_too_soon() -> None:
    """Does not wait for the acceptance of its application."""

    async def add(self: ShimClient, applications: Any) -> list[Any]:
        await self.send_applications(applications)
        return [ApplicationAccepted(each.applicationID) for each in applications]

    ShimClient.add_applications = add  # type: ignore[method-assign]


def dies_of_unknown_fields() -> None:
    """Takes a field it does not know for a reason to end."""
    hear = ShimClient._receive_nodes

    async def strict(self: ShimClient, response: si.NodeResponse) -> None:
        if len(UnknownFieldSet(response)):
            os._exit(4)
        await hear(self, response)

    ShimClient._receive_nodes = strict  # type: ignore[method-assign]


def _fails_when(bad: Callable[[Any], bool]) -> None:
    hear = ShimClient.update_batches

    async def batches(self: ShimClient) -> Any:
        async for batch in hear(self):
            if any(bad(update) for update in batch):
                os._exit(5)
            yield batch

    ShimClient.update_batches = batches  # type: ignore[method-assign]


def dies_of_a_second_new() -> None:
    """Expects every allocation once."""
    seen: set[str] = set()

    def bad(update: Any) -> bool:
        if not isinstance(update, Allocated):
            return False
        known = update.key in seen
        seen.add(update.key)
        return known

    _fails_when(bad)


def dies_of_unknown_types() -> None:
    """Knows the termination types of today only."""
    known = set(si.TerminationType.values())
    _fails_when(lambda update: isinstance(update, Released) and update.termination not in known)


def dies_of_unknown_states() -> None:
    """Knows the states of today only."""
    _fails_when(lambda update: isinstance(update, ApplicationUpdated) and update.state == "Hibernating")


def dies_of_a_break() -> None:
    """Gives up when a stream breaks."""
    _fails_when(lambda update: isinstance(update, StreamReopened))


def registers_after_a_break() -> None:
    """Takes every break for a core that has forgotten it."""
    stream.TRANSIENT = frozenset()  # type: ignore[misc]
    vars(stream)["StreamRefused"] = ResyncRequired


def forgets_what_it_sent() -> None:
    """Says what it has received, and sends nothing again that the core has not applied."""

    async def write_again(self: Outbox[Any], applied: int) -> bool:
        self.begin_keeping(lambda: None, 1)
        return True

    Outbox.write_again = write_again  # type: ignore[method-assign]


def knows_nothing_of_epochs() -> None:
    """Breaks nothing: it does not say what it has received, as no shim did once."""
    begin = Progress.begin_counting
    Progress.begin_counting = lambda self, epoch: begin(self, "")  # type: ignore[method-assign]


def forgets_what_runs() -> None:
    """Reports no allocation when it registers again."""

    async def report(self: ShimClient, allocations: Any) -> None:
        return

    ShimClient.report_allocations = report  # type: ignore[method-assign]


def doubles_what_runs() -> None:
    """Reports allocations with twice their size."""
    send = ShimClient.report_allocations

    async def report(self: ShimClient, allocations: Iterable[si.Allocation]) -> None:
        told = [si.Allocation.FromString(each.SerializeToString()) for each in allocations]
        for each in told:
            for amount in each.resourcePerAlloc.resources.values():
                amount.value *= 2
        await send(self, told)

    ShimClient.report_allocations = report  # type: ignore[method-assign]


def reports_what_has_ended() -> None:
    """Reports everything that has ever run."""
    placed: dict[str, si.Allocation] = {}

    def keep(update: Any) -> bool:
        if isinstance(update, Allocated):
            placed[update.key] = update.message
        return False

    _fails_when(keep)
    send = ShimClient.report_allocations

    async def report(self: ShimClient, allocations: Iterable[si.Allocation]) -> None:
        await send(self, placed.values())

    ShimClient.report_allocations = report  # type: ignore[method-assign]


def ends_what_runs() -> None:
    """Reports the end of what runs when it registers again."""

    async def report(self: ShimClient, allocations: Iterable[si.Allocation]) -> None:
        await self.release(
            [self.release_of(each.applicationID, each.allocationKey, si.STOPPED_BY_RM) for each in allocations]
        )

    ShimClient.report_allocations = report  # type: ignore[method-assign]


def claims_too_much() -> None:
    """Says, once it has received something, that this is an entry more."""
    marks = Progress.list_marks

    def more(self: Progress[Any]) -> tuple[tuple[str, str], ...]:
        said = self.received
        self.received += bool(said)
        found = marks(self)
        self.received = said
        return found

    Progress.list_marks = more  # type: ignore[method-assign]


def wants_devices() -> None:
    """Breaks nothing: its node has devices, of which each of its tasks wants one."""
    for key, value in devices_attribute(Device(f"gpu{at}", link="a") for at in range(8)).items():
        example.NODE.attributes[key] = value
    vars(example)["Ask"] = lambda *fields: Ask(*fields, devices=Devices(count=1, linked=True))


def forgets_devices() -> None:
    """Reports what runs without the devices that it was given."""
    wants_devices()
    send = ShimClient.report_allocations

    async def report(self: ShimClient, allocations: Iterable[si.Allocation]) -> None:
        told = [si.Allocation.FromString(each.SerializeToString()) for each in allocations]
        for each in told:
            each.allocationTags.pop("kornel.gpu.devices", None)
        await send(self, told)

    ShimClient.report_allocations = report  # type: ignore[method-assign]


def uses_two_names() -> None:
    """Names another RM in what it sends about applications."""
    encode = ShimClient._encode_applications

    def other(self: ShimClient, batch: Any) -> si.ApplicationRequest:
        request = encode(self, batch)
        request.rmID = "somebody-else"
        return request

    ShimClient._encode_applications = other  # type: ignore[method-assign]


def ends_slowly_of_a_refusal() -> None:
    """Gives up when a node is refused, and cleans up for a while before it says so with its status."""
    _gives_up_after(1.5)


def ends_very_slowly_of_a_refusal() -> None:
    """Does the same for longer than a few seconds."""
    _gives_up_after(7.0)


def gives_up_on_its_asks() -> None:
    """Ends well when a node is refused, although its asks wait and another node might come."""
    create, submit = ShimClient.create_nodes, ShimClient.submit_asks
    refused: list[Any] = []

    async def watched(self: ShimClient, nodes: Any) -> Any:
        answers = await create(self, nodes)
        refused.extend(answer for answer in answers if isinstance(answer, NodeRejected))
        return answers

    async def strict(self: ShimClient, asks: Any) -> None:
        await submit(self, asks)
        if refused:
            await asyncio.sleep(1.0)
            os._exit(0)

    ShimClient.create_nodes = watched  # type: ignore[method-assign]
    ShimClient.submit_asks = strict  # type: ignore[method-assign]


def _gives_up_after(cleanup_s: float) -> None:
    create = ShimClient.create_nodes

    async def strict(self: ShimClient, nodes: Any) -> Any:
        answers = await create(self, nodes)
        if any(isinstance(answer, NodeRejected) for answer in answers):
            await asyncio.sleep(cleanup_s)
            os._exit(1)
        return answers

    ShimClient.create_nodes = strict  # type: ignore[method-assign]


def gives_up_beside_its_work() -> None:
    """Ends because an ask was refused, but confirms releases until then."""

    def bad(update: Any) -> bool:
        if isinstance(update, AskRejected):
            asyncio.get_running_loop().call_later(1.5, os._exit, 1)
        return False

    _fails_when(bad)


def creates_no_node() -> None:
    """Waits for nodes that somebody else is to create."""

    async def none(self: ShimClient, nodes: Any) -> list[Any]:
        return []

    ShimClient.create_nodes = none  # type: ignore[method-assign]


def asks_for_nothing() -> None:
    """Has an application that wants nothing."""

    async def none(self: ShimClient, asks: Any) -> None:
        return

    ShimClient.submit_asks = none  # type: ignore[method-assign]


def ends_at_once() -> None:
    """Does not close its streams on SIGTERM."""
    asyncio.SelectorEventLoop.add_signal_handler = lambda *_: None  # type: ignore[method-assign,assignment]


def ignores_sigterm() -> None:
    """Does not end on SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ends_at_once()


def comes_back() -> None:
    """Takes the end of its session for one more broken stream."""
    stream.SUPERSEDED = "never"  # type: ignore[misc]


WAYS: dict[str, Callable[[], None]] = {
    way.__name__: way
    for way in (
        never_confirms,
        confirms_as_stopped,
        confirms_twice,
        asks_too_soon,
        dies_of_unknown_fields,
        dies_of_a_second_new,
        dies_of_unknown_types,
        dies_of_unknown_states,
        dies_of_a_break,
        registers_after_a_break,
        forgets_what_it_sent,
        knows_nothing_of_epochs,
        forgets_what_runs,
        doubles_what_runs,
        reports_what_has_ended,
        ends_what_runs,
        claims_too_much,
        wants_devices,
        forgets_devices,
        uses_two_names,
        ends_slowly_of_a_refusal,
        ends_very_slowly_of_a_refusal,
        gives_up_on_its_asks,
        gives_up_beside_its_work,
        creates_no_node,
        asks_for_nothing,
        ends_at_once,
        ignores_sigterm,
        comes_back,
    )
}

if __name__ == "__main__":
    WAYS[sys.argv.pop(1)]()
    asyncio.run(example.main())
