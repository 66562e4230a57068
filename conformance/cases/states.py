"""Cases about application states as the RM sees them."""

from __future__ import annotations

from typing import cast

from kornel.conformance.arrangements import make_placeholder, whole_gang
from kornel.conformance.bench import Bench
from kornel.conformance.case import case
from kornel.conformance.entries import Entry, app_rejected, new, released, updated
from kornel.conformance.messages import allocation, application
from kornel.conformance.outcome import check
from kornel.si.v1 import si_pb2 as si

COMPLETING_S = 31
THREE_DAYS_S = 3 * 24 * 3600 + 1


def update_of(entry: Entry) -> si.UpdatedApplication:
    """Returns the message of an ``updated`` entry."""
    return cast("si.UpdatedApplication", entry.message)


async def complete_application(bench: Bench) -> None:
    """Makes app run once and become Completed."""
    await bench.world()
    await bench.start("k")
    await bench.release("k")
    await bench.expect(updated("app", "Completing"), released("k"))
    await bench.expect_silence()
    await bench.clock.advance_time(COMPLETING_S)
    await bench.expect(updated("app", "Completed"))


@case(133, "a completing application that asks runs again", rule="protocol.md 11", waits_s=COMPLETING_S)
async def completing_again(bench: Bench) -> None:
    await bench.world()
    await bench.start("k")
    await bench.release("k")
    await bench.expect(updated("app", "Completing"), released("k"))
    await bench.send(allocation("k2"))
    await bench.expect(updated("app", "Running"), new("k2", "n1"))
    await bench.clock.advance_time(COMPLETING_S)
    await bench.expect_silence()


@case(
    134,
    "after 30 s without work an application is Completed and its ID is free",
    rule="protocol.md 11",
    waits_s=COMPLETING_S,
)
async def completes(bench: Bench) -> None:
    await complete_application(bench)
    await bench.app()


@case(135, "a running application that gets more sends no update", rule="protocol.md 11")
async def runs_on(bench: Bench) -> None:
    await bench.world()
    await bench.start("k")
    await bench.ask_and_place("k2")
    await bench.expect_silence()


@case(136, "a completed application expires after three days", rule="protocol.md 11", waits_s=THREE_DAYS_S)
async def completed_expires(bench: Bench) -> None:
    await complete_application(bench)
    await bench.clock.advance_time(THREE_DAYS_S)
    await bench.expect(updated("app", "Expired"))
    await bench.expect_silence()


@case(
    137,
    "a rejected application expires after three days, and is never reported as Rejected",
    rule="protocol.md 6.2",
    waits_s=THREE_DAYS_S,
)
async def rejected_expires(bench: Bench) -> None:
    await bench.reg()
    await bench.send_applications(application("app", "root.missing"))
    await bench.expect(app_rejected("app"))
    await bench.expect_silence()
    await bench.clock.advance_time(THREE_DAYS_S)
    await bench.expect(updated("app", "Expired"))
    await bench.expect_silence()


@case(138, "state changes carry the time in nanoseconds, and the event that caused them", rule="protocol.md 11")
async def time_stamps(bench: Bench) -> None:
    await bench.world()
    await bench.send(allocation("k"))
    changes = await bench.expect(updated("app", "Accepted"), updated("app", "Running"))
    await bench.release("k")
    changes += await bench.expect(updated("app", "Completing"))
    for change in map(update_of, changes):
        off_s = (await bench.clock.now_ns() - change.stateTransitionTimestamp) / 1e9
        check(abs(off_s) < 1, f"{change.state} is {off_s:g} s off")
    texts = [update_of(change).message for change in changes]
    check(texts == ["runApplication", "runApplication", "completeApplication"], f"unexpected messages {texts}")


@case(139, "a gang with all its placeholders is Running without any real allocation", rule="protocol.md 11")
async def whole_gang_runs(bench: Bench) -> None:
    await whole_gang(bench)
    await bench.expect_silence()


@case(140, "placeholders that were not announced leave the application Accepted", rule="protocol.md 11")
async def unannounced_gang_waits(bench: Bench) -> None:
    await bench.world()
    await bench.send(make_placeholder("p1"), make_placeholder("p2"))
    await bench.expect(updated("app", "Accepted"))
    await bench.expect_set(new("p1", "n1"), new("p2", "n1"))
    await bench.expect_silence()
