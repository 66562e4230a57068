"""A run: it connects, registers, plays the scenario and judges the result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from kornel.shim_client import CallFailed, Credentials, ResyncRequired, ShimClient, ShimClientError
from kornel.shim_mock.clock import SimulatedClock
from kornel.shim_mock.cluster import SimulatedCluster
from kornel.shim_mock.expectations import Verdict
from kornel.shim_mock.judge import Judge
from kornel.shim_mock.notices import NoticeHandler
from kornel.shim_mock.registration import Registration
from kornel.shim_mock.scenario import Scenario
from kornel.v1 import status_pb2

RM_ID: Final = "shim-mock"

Progress: TypeAlias = Callable[[SimulatedCluster, SimulatedClock], None]


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run.

    *status* is None if the core serves no StatusService. *timed_out* says that the run did not come to rest.
    """

    cluster: SimulatedCluster
    verdicts: list[Verdict]
    status: status_pb2.GetStatusResponse | None
    took_s: float
    timed_out: bool

    @property
    def passed(self) -> bool:
        """Tells whether every expectation was met, the core kept the contract, and the run came to rest."""
        met = all(verdict.met for verdict in self.verdicts)
        return met and not self.cluster.anomalies and not self.timed_out


async def run_scenario(
    scenario: Scenario,
    address: str,
    *,
    credentials: Credentials | None = None,
    connect_s: float = 10.0,
    reconnect_s: float = 0.0,
    progress: Progress | None = None,
    afterwards: Callable[[RunResult], Coroutine[None, None, None]] | None = None,
) -> RunResult:
    """Plays *scenario* against the core at *address*.

    Without *credentials*, those of the environment are used. *reconnect_s* is the time within which a core that went
    away has to come back, or else the run ends; a core that was started again gets everything reported again. With 0, a
    core that has forgotten the cluster ends the run. The cluster goes on during *afterwards*, which gets the result.
    Raises the errors of :mod:`shim_client`: CoreUnreachable,
    RegistrationRefused, CredentialsUnusable, and the errors that end a stream.
    """
    client = ShimClient(
        address,
        RM_ID,
        generation=scenario.generation,
        credentials=credentials,
        connect_s=connect_s,
        reconnect_s=reconnect_s or connect_s,
    )
    async with client:
        await client.register(config=scenario.config, version="shim-mock")
        run = _Run(scenario, client, progress, reconnect_s)
        try:
            return await run.play(afterwards)
        except ExceptionGroup as failed:
            # The error that ended the streams is the reason; the other errors only follow from it.
            if (reasons := failed.subgroup(ShimClientError)) is not None:
                raise _first_error(reasons) from failed
            raise


def _first_error(group: ExceptionGroup[ShimClientError]) -> ShimClientError:
    error: ShimClientError | ExceptionGroup[ShimClientError] = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


class _Run:
    def __init__(self, scenario: Scenario, client: ShimClient, progress: Progress | None, reconnect_s: float) -> None:
        self._scenario = scenario
        self._client = client
        self._clock = SimulatedClock(scenario.speed)
        self._registration = Registration(client, scenario.config, reconnect_s=reconnect_s)
        self._cluster = SimulatedCluster(scenario, client, self._clock, self._registration)
        self._judge = Judge(scenario.expectations, self._cluster)
        self._progress = progress
        self._heard = asyncio.Event()

    async def play(self, afterwards: Callable[[RunResult], Coroutine[None, None, None]] | None) -> RunResult:
        timed_out = False
        if any(application.on_notice is not None for application in self._scenario.applications):
            await self._client.attach_callbacks(NoticeHandler(self._cluster, self._clock))
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(self._stay_registered(group)), group.create_task(self._cluster.send())]
            self._cluster.begin()
            late = group.create_task(self._play_late())
            try:
                async with asyncio.timeout(self._scenario.timeout_s):
                    await self._wait_until_rest()
            except TimeoutError:
                timed_out = True
            took_s = self._clock.real_s
            status = await self._read_status()
            self._judge.look(self._clock.real_s)
            self._cluster.accounts.finish(took_s)
            result = RunResult(self._cluster, self._judge.close(status), status, took_s, timed_out)
            self._progress = None
            if afterwards is not None:
                await afterwards(result)
            for task in (late, *background):
                task.cancel()
        return result

    async def _stay_registered(self, group: asyncio.TaskGroup) -> None:
        """Receive updates, and register again with a core that has forgotten the cluster."""
        reporting: asyncio.Task[None] | None = None
        try:
            while True:
                try:
                    return await self._receive_updates()
                except ResyncRequired:
                    if not self._registration.renews:
                        raise
                if reporting is not None:
                    reporting.cancel()
                    await asyncio.wait([reporting])
                await self._registration.register_again()
                reporting = group.create_task(self._report_again())
        finally:
            if reporting is not None:
                reporting.cancel()

    async def _report_again(self) -> None:
        # An error of the connection also ends the streams, and is handled there.
        with suppress(ShimClientError):
            await self._cluster.report_again()

    async def _receive_updates(self) -> None:
        async for batch in self._client.update_batches():
            for update in batch:
                self._cluster.handle_update(update)
            self._judge.look(self._clock.real_s)
            self._heard.set()
            if self._progress is not None:
                self._progress(self._cluster, self._clock)

    async def _play_late(self) -> None:
        """Play what waits until the core has sent nothing for the settling time, and no further asks are due."""
        while self._cluster.late:
            rest_s = self._cluster.last_activity_s + self._scenario.settle_s - self._clock.real_s
            if self._cluster.all_sent and rest_s <= 0 and self._registration.in_sync:
                self._cluster.play_late()
            else:
                await self._wait_for_change(max(rest_s, 0.05))

    async def _wait_until_rest(self) -> None:
        """Wait until nothing can happen any more, or the scenario's duration is over."""
        while True:
            if self._scenario.duration_s is not None and self._clock.now_s >= self._scenario.duration_s:
                return
            rest_s = self._cluster.last_activity_s + self._scenario.settle_s - self._clock.real_s
            sent = self._cluster.all_sent and not self._cluster.late
            idle = sent and not self._clock.timers and rest_s <= 0
            if idle and self._registration.in_sync and not self._judge.undecided:
                return
            await self._wait_for_change(self._pause_s(rest_s))
            quiet = self._clock.real_s - self._cluster.last_activity_s >= self._scenario.settle_s
            self._judge.look(self._clock.real_s, quiet=quiet)

    def _pause_s(self, rest_s: float) -> float:
        """Returns the time after which the run has to be checked again even if no message came."""
        moments = [rest_s if rest_s > 0 else self._scenario.settle_s]
        if (deadline_s := self._judge.next_deadline_s()) is not None:
            moments.append(deadline_s - self._clock.real_s)
        if self._scenario.duration_s is not None:
            moments.append((self._scenario.duration_s - self._clock.now_s) / self._scenario.speed)
        return max(min(moments), 0.01)

    async def _wait_for_change(self, seconds: float) -> None:
        """Wait until a message comes, but at most *seconds*."""
        self._heard.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._heard.wait()
        except TimeoutError:
            return

    async def _read_status(self) -> status_pb2.GetStatusResponse | None:
        """Returns the core's status at the end, or None if the core serves none."""
        try:
            await self._client.flush()
            return await self._client.status(audit=True)
        except CallFailed:
            return None
