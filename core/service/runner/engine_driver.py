"""Calls the engine for its runner: commands, updates in steps, and slices of the scheduling cycle when they are due.

It also survives bugs of the engine: after a failure it calls the engine no more until its state is restored from the
journal; without a journal it goes on with a state that may be damaged, and says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from structlog.typing import FilteringBoundLogger

from kornel.core.config.text.problems import ConfigError
from kornel.core.domain.commands import Command, CommandRefused, UpdateConfiguration
from kornel.core.domain.effects import Effect
from kornel.core.service.machine.clock import SECOND_NS, Clock
from kornel.core.service.machine.garbage import GarbageKeeper
from kornel.core.service.machine.loop_time import STEP_S
from kornel.core.service.metrics.metrics import EngineTimer, ServiceMetrics
from kornel.core.service.runner.engine_port import EnginePort
from kornel.core.service.runner.journal_port import Restorer
from kornel.core.service.runner.questions import Questions
from kornel.core.service.wire.status_codes import EngineFault

SHORTEST_WAIT_NS: Final = 1_000_000
"""The pause before an engine that wants to be called at a past time is called again, so that it is not called in an
endless loop."""

LONGEST_FAULT_WAIT_NS: Final = 60 * SECOND_NS
"""The longest time between two tries of a slice on which the engine fails, and is restored, each time."""

FAULT_WAIT_NS: Final = SECOND_NS
"""The time for which nothing is tried after a bug in a cycle, unless new input comes."""


class EngineDriver:
    """The only caller of *engine*. ``on_effects`` gets the effects of slices; ``on_damage`` is called when the state of
    the engine can no longer be trusted, and when it can be trusted again. ``budget``: decisions per slice.
    """

    def __init__(
        self,
        engine: EnginePort,
        *,
        clock: Clock,
        metrics: ServiceMetrics,
        timer: EngineTimer,
        logger: FilteringBoundLogger,
        restorer: Restorer,
        on_effects: Callable[[list[Effect]], None],
        on_damage: Callable[[bool], None],
        budget: int,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._metrics = metrics
        self._timer = timer
        self._logger = logger
        self._restorer = restorer
        self._on_effects = on_effects
        self._on_damage = on_damage
        self._budget = budget
        self.failure: tuple[Exception, int] | None = None
        """The error with which the engine failed and the record of the call, until the engine is restored. It is not
        called meanwhile."""
        self._damaged = False
        self._fault_wait_ns = FAULT_WAIT_NS
        self._next_preempt_ns: int | None = None
        self._retry_at_ns: int | None = None

    def start_afresh(self) -> None:
        """Notes that a manager has registered or left: the engine has a new state, which can be trusted."""
        self._next_preempt_ns = None
        if self._damaged:
            self._note_sound()

    def apply(self, command: Command) -> list[Effect]:
        """Applies *command* and returns its effects. Raises ``CommandRefused``, ``ConfigError`` or, for any other
        error, ``EngineFault``."""
        if self.failure is not None:
            raise EngineFault("the core is restoring its state after an internal error; try again")
        began = time.perf_counter()
        try:
            effects = self._engine.apply(command, self._clock.now_ns())
        except (CommandRefused, ConfigError):
            raise
        except Exception as error:
            raise self._note_failure(error, "applying a command", command=type(command).__name__) from error
        self._metrics.commands_applied += 1
        self._timer.command_took(time.perf_counter() - began)
        return effects

    async def update(self, command: UpdateConfiguration, garbage: GarbageKeeper, questions: Questions) -> list[Effect]:
        """Does what :meth:`apply` does, in steps of a few milliseconds, because there may be tens of thousands of
        queues.

        In the meantime, commands of the shim wait and are handled under the new configuration. So are *questions*.
        """
        began = since = time.perf_counter()
        steps = self._engine.update_in_steps(command, self._clock.now_ns())
        with ExitStack() as long:
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    effects: list[Effect] = end.value
                    break
                except (CommandRefused, ConfigError):
                    raise
                except Exception as error:
                    raise self._note_failure(error, "applying a command", command=type(command).__name__) from error
                if time.perf_counter() - since >= STEP_S:
                    if since == began:
                        long.enter_context(garbage.pause_while_building())
                        long.enter_context(questions.hold_back())
                    await asyncio.sleep(0)
                    since = time.perf_counter()
        self._metrics.commands_applied += 1
        self._timer.command_took(time.perf_counter() - began)
        return effects

    def run_slice(self, *, commands_wait: bool) -> bool:
        """Runs one slice, and the periodic preemption round if it is due. Returns whether the next slice should follow
        at once."""
        now_ns = self._clock.now_ns()
        # Commands that have arrived may help an engine that is not restored; an engine that is restored would have to
        # be restored again each time.
        waits = not commands_wait or self._restorer.ready
        if self._retry_at_ns is not None and now_ns < self._retry_at_ns and waits:
            return False
        self._retry_at_ns = None
        try:
            if self._preemption_due(now_ns):
                self._on_effects(self._engine.preempt(now_ns))
            began = time.perf_counter()
            result = self._engine.cycle(now_ns, self._budget)
            took = time.perf_counter() - began
        except Exception as error:  # noqa: BLE001 - a bug must not take down the task that could still say so
            self._note_failure(error, "scheduling")
            self._retry_at_ns = now_ns + self._fault_wait_ns
            if self._restorer.ready:
                self._fault_wait_ns = min(2 * self._fault_wait_ns, LONGEST_FAULT_WAIT_NS)
            return False
        self._fault_wait_ns = FAULT_WAIT_NS
        self._metrics.slices += 1
        self._on_effects(result.effects)
        for partition, what in result.standing.items():
            self._logger.error("scheduling stands still", partition=partition, detail=what)
        self._timer.slice_took(took, len(result.effects), more=result.more)
        return result.more

    def next_call_ns(self) -> int | None:
        """Returns when :meth:`run_slice` has to be called next; ``None``: not because of time alone."""
        if self._retry_at_ns is not None:
            return self._retry_at_ns
        wanted = [at_ns for at_ns in (self._engine.next_wakeup_ns(), self._next_preempt_ns) if at_ns is not None]
        if not wanted:
            return None
        now_ns = self._clock.now_ns()
        at_ns = min(wanted)
        return at_ns if at_ns > now_ns else now_ns + SHORTEST_WAIT_NS

    async def restore(self) -> None:
        """Restores the engine as if the call on which it failed had never been made; does nothing if it has not
        failed. Raises the error that prevents this."""
        if self.failure is not None:
            await self._restorer.restore_engine(*self.failure)
            self.failure = None
            self._note_sound()

    def _preemption_due(self, now_ns: int) -> bool:
        interval_ns = self._engine.preemption_interval_ns
        if interval_ns is None:
            self._next_preempt_ns = None
            return False
        if self._next_preempt_ns is not None and now_ns < self._next_preempt_ns:
            return False
        due = self._next_preempt_ns is not None
        self._next_preempt_ns = now_ns + interval_ns
        return due

    def _note_failure(self, error: Exception, doing: str, **where: str) -> EngineFault:
        """Notes that the engine failed with *error*, and returns the error for the caller."""
        self._metrics.engine_faults += 1
        self._logger.error("bug in the engine, its state may be damaged", doing=doing, exc_info=error, **where)
        if not self._damaged:
            self._damaged = True
            self._on_damage(True)
        if not self._restorer.ready:
            return EngineFault("internal error while the request was applied; see the log of the core")
        record = self._restorer.last_record
        self.failure = error, record
        return EngineFault(
            f"internal error while the request was applied: it is set aside as record {record} of the journal, and the"
            " core goes on without it; see the log of the core"
        )

    def _note_sound(self) -> None:
        self._damaged = False
        self._on_damage(False)
