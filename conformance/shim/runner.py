"""Runs the sessions and returns their results."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kornel.conformance.outcome import Result
from kornel.conformance.shim.checks import Check, Findings
from kornel.conformance.shim.listener import OPEN_DOOR, Listener
from kornel.conformance.shim.sessions import FIRST, SESSIONS, Session
from kornel.conformance.shim.stage import Known, Over, Patience, Stage

DEFAULT_PATIENCE: Final = Patience()
SESSIONS_AT_ONCE: Final = 4


async def judge_shim(
    command: Sequence[str],
    checks: Sequence[Check],
    patience: Patience = DEFAULT_PATIENCE,
    log: Path | None = None,
    door: Listener = OPEN_DOOR,
) -> list[Result]:
    """Returns the results of *checks* for the shim that *command* starts.

    *log* is an existing folder for the output of the shim, with one file per session. *door* is the security of the
    server. Raises CommandFailed if the command cannot be started, and CredentialsUnusable if the credentials of *door*
    cannot be used.
    """
    if log is not None:
        return await _run_sessions(command, checks, patience, log, door)
    with tempfile.TemporaryDirectory(prefix="kornel-conformance-") as scratch:
        return await _run_sessions(command, checks, patience, Path(scratch), door)


async def _run_sessions(
    command: Sequence[str], checks: Sequence[Check], patience: Patience, log: Path, door: Listener
) -> list[Result]:
    known = Known()
    findings = Findings()
    took_s: dict[str, float] = {}

    async def play_one(session: Session) -> None:
        begin = time.monotonic()
        findings.add(await _play_session(session, command, log, known, patience, door))
        took_s.update(dict.fromkeys(session.checks, time.monotonic() - begin))

    await play_one(FIRST)
    if not findings.is_broken("S1"):
        chosen = {check.id for check in checks}
        wanted = [each for each in SESSIONS if chosen.intersection(each.checks) and each.wanted(known)]
        turn = asyncio.Semaphore(SESSIONS_AT_ONCE)

        async def take_turn(session: Session) -> None:
            async with turn:
                await play_one(session)

        async with asyncio.TaskGroup() as group:
            for session in wanted:
                group.create_task(take_turn(session), name=f"session {session.name}")
    return [findings.make_result(check, took_s.get(check.id, 0.0)) for check in checks]


async def _play_session(
    session: Session, command: Sequence[str], log: Path, known: Known, patience: Patience, door: Listener
) -> Findings:
    async with Stage.open(session.name, command, log, session.manners, known, patience, door) as stage:
        with suppress(Over):
            await session.script(stage)
        return stage.findings
