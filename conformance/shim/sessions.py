"""Sessions: in each of them, the core creates one situation that a shim has to handle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import grpc

from kornel.conformance.shim.dependents import compare_answers
from kornel.conformance.shim.lines import Kind
from kornel.conformance.shim.recovery import expect_resync
from kornel.conformance.shim.sender import Behaviour
from kornel.conformance.shim.stage import Known, Over, Stage
from kornel.si.v1 import si_pb2 as si

Script: TypeAlias = Callable[[Stage], Awaitable[None]]

UNKNOWN_FIELD: Final = b"\xd2\xfc\x0f\x05hello"
"""Field 32714, length-delimited, which no generation of the interface has."""
UNKNOWN_TERMINATION: Final = 99
ATTEMPTS: Final = 3
OMISSIONS: Final = {
    Kind.NODE: "created no node",
    Kind.APPLICATION: "added no application",
    Kind.ALLOCATION: "asked for nothing",
}


@dataclass(frozen=True, slots=True)
class Session:
    """One start of the shim. *checks* are the checks that it tests. If the shim does not get far enough, the first one
    is broken."""

    name: str
    checks: tuple[str, ...]
    script: Script
    manners: Behaviour = Behaviour()  # noqa: RUF009 (frozen)
    wanted: Callable[[Known], bool] = lambda _: True


async def play_first(stage: Stage) -> None:
    """Act as a core that does its usual work, and preempt one allocation."""
    await stage.wait_until_ready("S1" if not stage.core.judge.registrations else "S3", running=False)
    stage.findings.mark_kept("S3", "S17")
    if await stage.wait_until(lambda: stage.core.heard_of.issuperset(Kind)):
        stage.findings.mark_kept("S26")
    else:
        missing = [did for kind, did in OMISSIONS.items() if kind not in stage.core.heard_of]
        stage.findings.mark_broken("S26", f"the shim {', '.join(missing)}, so most checks do not apply")
    stage.known.runs = await stage.wait_until(lambda: any(stage.core.books.real_allocations()))
    stage.known.placeholders = stage.core.saw_placeholders
    stage.known.judges = stage.core.questions.wanted
    if stage.core.questions.ignored:
        stage.findings.mark_broken("S26", "the shim answered no question, so most checks do not apply")
        raise Over
    if stage.core.questions.awaits_placements:
        await stage.wait_until(stage.core.has_tried_order)
    if stage.ended and stage.process.status != 0:
        stage.findings.mark_broken("S3", stage.process.end)
    await _take_back(stage)
    # It might confirm an end once more.
    await stage.watch_briefly()
    if stage.core.replacing and not await stage.wait_until(lambda: not stage.core.replacing):
        stage.findings.mark_broken("S9", f"the end of {', '.join(stage.core.replacing)} was not confirmed")


async def _take_back(stage: Stage) -> None:
    said = ""
    for _ in range(ATTEMPTS):
        await stage.wait_until(stage.some_running)
        if (run := stage.some_running()) is None:
            return
        stage.demand_release(run, si.PREEMPTED_BY_SCHEDULER)
        answer = await stage.wait_for_release(run)
        if answer is None:
            stage.findings.mark_broken("S7", f"the end of {run.key} was not confirmed")
            return
        stage.known.confirms = True
        if answer == si.PREEMPTED_BY_SCHEDULER:
            stage.findings.mark_kept("S7")
            return
        said = f"{run.key} was released as {_name_termination(answer)}, not PREEMPTED_BY_SCHEDULER"
        if answer not in (si.STOPPED_BY_RM, si.UNKNOWN_TERMINATION_TYPE):
            break
        # The task may have ended by itself just before, so another one is tried.
    stage.findings.mark_broken("S7", said)


async def placeholder_timeout(stage: Stage) -> None:
    """Release a placeholder because it has timed out."""
    if not await stage.wait_until(lambda: any(stage.core.books.list_placeholders())):
        return
    run = next(stage.core.books.list_placeholders())
    stage.demand_release(run, si.TIMEOUT)
    answer = await stage.wait_for_release(run)
    if answer == si.TIMEOUT:
        stage.findings.mark_kept("S8")
    else:
        how = "was not confirmed" if answer is None else f"was confirmed with {_name_termination(answer)}"
        stage.findings.mark_broken("S8", f"the end of {run.key} {how}")


async def new_twice(stage: Stage) -> None:
    """Send the same ``new`` twice."""
    await stage.wait_until_ready("S10")
    if (run := stage.some_running()) is not None:
        stage.core.voice.announce_allocation(run)
        await stage.probe_shim("S10")


async def released_twice(stage: Stage) -> None:
    """Send the same ``released`` twice, and once more after it is confirmed."""
    await stage.wait_until_ready("S11")
    if (run := stage.some_running()) is None:
        return
    stage.demand_release(run, si.PREEMPTED_BY_SCHEDULER)
    stage.demand_release(run, si.PREEMPTED_BY_SCHEDULER)
    if stage.known.confirms and await stage.wait_for_release(run) is None:
        stage.findings.mark_broken("S11", f"the end of {run.key}, asked for twice, was not confirmed")
    stage.demand_release(run, si.PREEMPTED_BY_SCHEDULER)
    await stage.probe_shim("S11")


async def unknown_fields(stage: Stage) -> None:
    """Send every message with an unknown field."""
    await stage.wait_until_ready("S12", running=stage.known.runs)
    await stage.probe_shim("S12")


async def unknown_termination(stage: Stage) -> None:
    """Send a release with an unknown termination type."""
    await stage.wait_until_ready("S13")
    if (run := stage.some_running()) is not None:
        stage.demand_release(run, UNKNOWN_TERMINATION)
        await stage.probe_shim("S13")


async def unknown_state(stage: Stage) -> None:
    """Send an unknown state of an application."""
    await stage.wait_until_ready("S14", running=stage.known.runs)
    if app := next(iter(stage.core.books.apps), ""):
        stage.core.voice.send_state(app, "Hibernating")
        await stage.probe_shim("S14")


async def broken_streams(stage: Stage) -> None:
    """Break one stream after the other."""
    await stage.wait_until_ready("S15", running=stage.known.runs)
    for kind in Kind:
        stage.core.lines.end_stream(kind, grpc.StatusCode.UNAVAILABLE, "broken by the conformance kit")
        if not await stage.wait_until(stage.is_connected):
            stage.findings.mark_broken("S15", stage.process.end if stage.ended else f"{kind} was not opened again")
            raise Over
    await stage.probe_shim("S15")


async def broken_connection(stage: Stage) -> None:
    """Stop serving for a moment, without losing any state."""
    await stage.wait_until_ready("S16", running=stage.known.runs)
    await stage.stop_serving()
    await stage.watch_briefly()
    await stage.serve()
    if not await stage.wait_until(stage.is_connected, stage.patience.start_s):
        stage.findings.mark_broken("S16", stage.process.end if stage.ended else "the streams were not opened again")
        raise Over
    await stage.probe_shim("S16")


async def lost_confirmation(stage: Stage) -> None:
    """Lose a confirmation of the shim, and stop serving for a moment, as a core does that is killed and restarts from
    its journal."""
    await stage.wait_until_ready("S28")
    run = stage.some_running()
    if run is None or not stage.known.confirms:
        return
    lines = stage.core.lines
    lines.deaf = True
    stage.demand_release(run, si.PREEMPTED_BY_SCHEDULER)
    if not await stage.wait_until(lambda: run.key in lines.unheard):
        stage.findings.mark_broken("S28", f"the end of {run.key} was not confirmed")
        return
    await stage.stop_serving()
    lines.deaf = False
    if not lines.resumes:
        # A shim that does not say what it has received gets everything once more that it may have missed.
        stage.demand_release(run, si.PREEMPTED_BY_SCHEDULER)
    await stage.serve()
    if await stage.wait_for_release(run) is None:
        how = "sent again" if lines.resumes else "confirmed again, although it was asked for again"
        stage.findings.mark_broken("S28", f"the end of {run.key}, lost with the core, was not {how}")
    seen = "it says what it has received, and sent the rest again" if lines.resumes else ""
    stage.findings.mark_kept("S28", seen=seen)


async def end_superseded(stage: Stage) -> None:
    """Tell the shim that another program registered the same RM."""
    await stage.wait_until_ready("S27", running=stage.known.runs)
    registrations = stage.core.judge.registrations
    stage.core.end_streams(grpc.StatusCode.ABORTED, "superseded: another session has registered since")
    came_back = lambda: stage.core.lines.bound or stage.core.judge.registrations != registrations  # noqa: E731
    if await stage.wait_until(came_back) and not stage.ended:
        stage.findings.mark_broken("S27", "the shim came back, and would take the core away from the other program")
    stage.findings.mark_kept("S27")


def make_refusal(check: str, kind: Kind) -> Session:
    """Returns a session in which the first entry of one kind is refused."""

    async def refuse_stream(stage: Stage) -> None:
        await stage.wait_until_ready(check, running=False)
        if await stage.wait_until(lambda: kind in stage.core.refused):
            await stage.probe_shim(check, to_the_end=True)

    return Session(f"refused {kind}", (check,), refuse_stream, Behaviour(refuse=frozenset({kind})))


async def end_shim(stage: Stage) -> None:
    """Send the shim SIGTERM."""
    await stage.wait_until_ready("S25", running=stage.known.runs)
    stage.process.ask_to_end()
    if not await stage.process.ends_within(stage.patience.deadline_s):
        stage.findings.mark_broken("S25", f"the shim still runs {stage.patience.deadline_s:g} s after SIGTERM")
        return
    await stage.watch_briefly()
    open_ended = [kind for kind in Kind if kind not in stage.core.lines.half_closed]
    if stage.process.status != 0 and open_ended:
        stage.findings.mark_broken("S25", f"{stage.process.end}, without half-closing {', '.join(open_ended)}")
    stage.findings.mark_kept("S25")


FIRST: Final = Session("first", ("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S9", "S26", "S30", "S34"), play_first)

SESSIONS: Final = (
    Session("gang", ("S8",), placeholder_timeout, Behaviour(hold_gang=True), lambda known: known.placeholders),
    Session("new twice", ("S10",), new_twice),
    Session("released twice", ("S11",), released_twice),
    Session("unknown fields", ("S12",), unknown_fields, Behaviour(extra=UNKNOWN_FIELD)),
    Session("unknown termination", ("S13",), unknown_termination),
    Session("unknown state", ("S14",), unknown_state),
    Session("broken streams", ("S15", "S17", "S33"), broken_streams),
    Session("broken connection", ("S16", "S17", "S33"), broken_connection),
    Session("resync", ("S18", "S19", "S20", "S21", "S29", "S31", "S32"), expect_resync),
    make_refusal("S22", Kind.NODE),
    make_refusal("S23", Kind.APPLICATION),
    make_refusal("S24", Kind.ALLOCATION),
    Session("superseded", ("S27",), end_superseded),
    Session("dependent asks", ("S35",), compare_answers, Behaviour(hold_asks=True), lambda known: known.judges),
    Session("killed core", ("S28",), lost_confirmation),
    Session("end", ("S25",), end_shim),
)
"""All sessions but the first, in any order."""


def _name_termination(termination: int) -> str:
    known: dict[int, str] = {number: name for name, number in si.TerminationType.items()}
    return known.get(termination, str(termination))
