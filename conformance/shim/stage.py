"""One session: a scripted core, a shim that was started for it, and methods to observe the shim."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc.aio

from kornel.conformance.shim.books import Running
from kornel.conformance.shim.checks import Findings
from kornel.conformance.shim.core import ScriptedCore
from kornel.conformance.shim.lines import Kind, serve
from kornel.conformance.shim.listener import Listener
from kornel.conformance.shim.process import ShimProcess
from kornel.conformance.shim.sender import Behaviour
from kornel.si.v1 import si_pb2 as si

ANY_PORT: Final = "127.0.0.1:0"
END_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Patience:
    """The seconds to wait. ``start_s``: for the registration after the start. ``deadline_s``: for a reaction.
    ``settle_s``: until silence counts as no reaction. ``watch_s``: while a shim is watched. A shim that gives up may
    clean up before it ends, for which Kubernetes gives a pod 30 seconds by default.
    """

    start_s: float = 30.0
    deadline_s: float = 10.0
    settle_s: float = 0.5
    watch_s: float = 35.0


@dataclass(slots=True)
class Known:
    """The abilities that the shim showed in the first session. Later sessions do not wait for anything else."""

    runs: bool = False
    confirms: bool = False
    placeholders: bool = False
    judges: bool = False
    """Tells whether it wants to be asked on which nodes its asks may run."""


class Over(Exception):
    """The session cannot continue; the reason is among the findings."""


class Stage:
    """Everything that belongs to one session: the core, the shim's process, and the findings."""

    def __init__(
        self,
        session: str,
        command: Sequence[str],
        log: Path,
        manners: Behaviour,
        known: Known,
        patience: Patience,
        door: Listener,
    ) -> None:
        self.findings: Final = Findings(session)
        self.core: Final = ScriptedCore(manners, self.findings)
        self.manners: Final = manners
        self.known: Final = known
        self.patience: Final = patience
        self._command: Final = command
        self._log: Final = log / f"{session.replace(' ', '-')}.log"
        self._door: Final = door
        self._demanded: Final[set[str]] = set()
        self._address = ANY_PORT
        self._server: grpc.aio.Server | None = None
        self._process: ShimProcess | None = None
        self._watch: asyncio.Task[None] | None = None

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        session: str,
        command: Sequence[str],
        log: Path,
        manners: Behaviour,
        known: Known,
        patience: Patience,
        door: Listener,
    ) -> AsyncIterator[Stage]:
        """Yields a stage for *session* with the core serving and the shim started. *log* is a folder."""
        stage = cls(session, command, log, manners, known, patience, door)
        try:
            await stage.serve()
            await stage.start()
            yield stage
        finally:
            await stage._close_process()

    @property
    def process(self) -> ShimProcess:
        """The shim's process."""
        assert self._process is not None, "the shim is started with the stage"
        return self._process

    @property
    def ended(self) -> bool:
        """Tells whether the shim's program has ended."""
        return self.process.status is not None

    async def serve(self) -> None:
        """Start serving; after the first time, at the same address again."""
        self._server, self._address = await serve(self.core.lines, self.core.questions, self._address, self._door)

    async def stop_serving(self) -> None:
        """Stop serving without a message. The core keeps its state."""
        assert self._server is not None, "the core serves"
        await self._server.stop(None)

    async def start(self) -> None:
        """Start the shim's program, again if it has ended."""
        variables = self._door.handed_out.environment()
        self._process = await ShimProcess.start(self._command, self._address, self._log, variables)
        self._watch = asyncio.create_task(self._tell_end(self._process), name="shim watch")

    async def wait_until(self, condition: Callable[[], object], within_s: float | None = None) -> bool:
        """Wait for *condition*, and tell whether it became true in time. The wait ends early if the shim has ended."""
        limit_s = self.patience.deadline_s if within_s is None else within_s
        await self.core.wait_until(lambda: condition() or self.ended, limit_s)
        return bool(condition())

    async def wait_until_ready(self, blame: str, *, running: bool = True) -> None:
        """Wait until the shim has registered, has opened its streams, and has a running allocation.

        If it does not get that far although it did in the first session, the check *blame* is broken. Raises Over.
        """
        steps: list[tuple[Callable[[], bool], float, str]] = [
            (lambda: self.core.judge.registrations > 0, self.patience.start_s, "did not register"),
            (self.is_connected, self.patience.deadline_s, "did not open its three streams"),
        ]
        if running and self.known.runs:
            steps.append(
                (lambda: any(self.core.books.real_allocations()), self.patience.deadline_s, "had nothing running")
            )
        for condition, within_s, complaint in steps:
            if not await self.wait_until(condition, within_s):
                self.findings.mark_broken(blame, f"the shim {complaint}{self._describe_end(blame)}")
                raise Over
        if running and not any(self.core.books.real_allocations()):
            raise Over

    def _describe_end(self, blame: str) -> str:
        if not self.ended:
            return ""
        # What it wrote explains why it did not even start. Later, it would hide what the check is about.
        words = self.process.last_words if blame == "S1" else ""
        return f": {self.process.end}" + (f", and wrote last: {words}" if words else "")

    def is_connected(self) -> bool:
        """Tells whether the three streams are open."""
        return len(self.core.lines.bound) == len(Kind)

    def some_running(self) -> Running | None:
        """Returns a running allocation that is not a placeholder and whose release was not asked for."""
        return next((run for run in self.core.books.real_allocations() if run.key not in self._demanded), None)

    def demand_release(self, run: Running, termination: int) -> None:
        """Ask for the release of *run*."""
        self._demanded.add(run.key)
        self.core.voice.demand_release(run, termination)

    async def wait_for_release(self, run: Running) -> int | None:
        """Returns the type with which the shim releases *run*, or ``None`` if it does not do so in time."""
        await self.wait_until(lambda: run.key in self.core.releases)
        return self.core.releases.get(run.key)

    async def watch_briefly(self) -> None:
        """Wait for as long as a shim might take to fail."""
        await self.core.wait_until(lambda: self.ended, self.patience.settle_s)

    async def probe_shim(self, check: str, *, to_the_end: bool = False) -> None:
        """Ask for a release to see whether the shim still works. If it does not, *check* is broken, otherwise kept."""
        began = time.monotonic()
        await self.watch_briefly()
        run = self.some_running()
        confirmed = False
        if not self.ended and self.known.confirms and run is not None:
            self.demand_release(run, si.PREEMPTED_BY_SCHEDULER)
            confirmed = await self.wait_for_release(run) is not None
            if not confirmed and not self.ended:
                self.findings.mark_broken(check, f"the shim runs on, but no longer confirms the release of {run.key}")
        watched = run is None or not self.known.confirms or to_the_end
        if watched:
            await self._watch_until(began + self.patience.watch_s)
        books = self.core.books
        finished = self.ended and self.process.status == 0 and not (books.running or books.asks)
        if self.ended and not finished:
            waiting = f", although {len(books.asks)} of its asks wait" if books.asks else ""
            self.findings.mark_broken(check, self.process.end + waiting)
        elif not self.ended and not self.is_connected():
            self.findings.mark_broken(check, "the shim runs on, but closed a stream")
        seen = f"seen to run on for {time.monotonic() - began:.0f} s" if watched and not self.ended else ""
        if finished:
            seen = "it ended with status 0 and left nothing behind"
        self.findings.mark_kept(check, seen=seen + ", and to confirm a release" if seen and confirmed else seen)

    async def _watch_until(self, moment: float) -> None:
        """Watch the shim until *moment*, or until it ends or leaves a stream closed for too long."""
        connected = True
        while connected and not self.ended and (left_s := moment - time.monotonic()) > 0:
            await self.core.wait_until(lambda: self.ended or not self.is_connected(), left_s)
            connected = await self.core.wait_until(lambda: self.ended or self.is_connected(), self.patience.deadline_s)

    async def _tell_end(self, process: ShimProcess) -> None:
        while not await process.ends_within(END_S):
            pass
        self.core.news.set()

    async def _close_process(self) -> None:
        if self._process is not None:
            await self._process.kill_group()
        if self._watch is not None:
            await asyncio.wait([self._watch])
        if self._server is not None:
            await self._server.stop(None)
        await self.core.close()
