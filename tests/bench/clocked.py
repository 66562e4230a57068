"""An engine in virtual time that is called as the service calls it, with the processor time that its calls take."""

from __future__ import annotations

import gc
import time
from typing import Final

from kornel.core.domain.commands import Command
from kornel.core.domain.effects import Effect
from kornel.core.engine.engine import Engine
from kornel.core.service.machine.garbage import OLDER_THRESHOLDS, YOUNG_THRESHOLD
from kornel.core.service.runner.engine_driver import SHORTEST_WAIT_NS
from kornel.core.service.runner.runner import SLICE_BUDGET

SECOND_NS: Final = 10**9


class ClockedEngine:
    """An engine with its time, which begins at one second. ``took_s``: the processor time of all calls so far;
    ``slices`` and ``rounds``: the numbers of slices and of rounds of preemption."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.now_ns = SECOND_NS
        self.took_s = 0.0
        self.slices = self.rounds = 0
        self._next_round_ns: int | None = None

    def send(self, command: Command) -> list[Effect]:
        """Has the engine carry out *command* now and decide until it has nothing more to do at once. Returns all
        effects."""
        began = time.process_time()
        effects = self.engine.apply(command, self.now_ns)
        self._decide(effects)
        self.took_s += time.process_time() - began
        return effects

    def next_call_ns(self) -> int | None:
        """Returns when the engine has to be called if nothing is sent before; ``None``: never."""
        wanted = [at_ns for at_ns in (self.engine.next_wakeup_ns(), self._next_round_ns) if at_ns is not None]
        return max(min(wanted), self.now_ns + SHORTEST_WAIT_NS) if wanted else None

    def pass_time(self, until_ns: int, *, until_effect: bool = False) -> list[Effect]:
        """Lets time pass to *until_ns*, and calls the engine whenever it wants to be called. Returns all effects. With
        *until_effect*: no longer than until the first of them."""
        effects: list[Effect] = []
        began = time.process_time()
        while (at_ns := self.next_call_ns()) is not None and at_ns < until_ns:
            self.now_ns = at_ns
            self._decide(effects)
            if until_effect and effects:
                break
        else:
            self.now_ns = max(self.now_ns, until_ns)
        self.took_s += time.process_time() - began
        return effects

    def _decide(self, effects: list[Effect]) -> None:
        engine, more = self.engine, True
        while more:
            if self._round_due():
                self.rounds += 1
                effects += engine.preempt(self.now_ns)
            result = engine.cycle(self.now_ns, SLICE_BUDGET)
            self.slices += 1
            effects += result.effects
            more = result.more

    def _round_due(self) -> bool:
        """Tells whether a round of preemption is due: an interval after rounds were first wanted."""
        interval_ns = self.engine.preemption_interval_ns
        if interval_ns is None:
            self._next_round_ns = None
            return False
        if self._next_round_ns is not None and self.now_ns < self._next_round_ns:
            return False
        due = self._next_round_ns is not None
        self._next_round_ns = self.now_ns + interval_ns
        return due


def settle_garbage() -> None:
    """Handles the collector as the service does with what has settled."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_THRESHOLD, *OLDER_THRESHOLDS)
