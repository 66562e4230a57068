"""A core that differs from others: in its clock, in the version that it says it is, or in having bugs.

``python -m tests.e2e.altered_core ahead=3600 serve ...``: on a machine whose clock is that many seconds ahead.
``version=1.0-old``: it says that it is this version. ``bugs``: on asks called poison and configurations with that word,
on draining node n2, and in slices while an ask called stuck waits. Of an ask whose name ends with held-N, the core does
nothing more after it was restored N times.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from kornel.cli.entry import main
from kornel.core.commands import serving
from kornel.core.engine.engine import Engine
from kornel.core.engine.intake import allocation_intake, node_intake
from kornel.core.journal.restoring import EngineRestorer
from kornel.core.service.machine import clock


def set_clock(ahead_s: int) -> None:
    altered = SimpleNamespace(**{**vars(time), "time_ns": lambda: time.time_ns() + ahead_s * 10**9})
    clock.time = altered  # type: ignore[attr-defined]


def plant_bugs() -> None:
    handle, drain, cycle = allocation_intake.handle, node_intake.handle, Engine.cycle
    update, restore = Engine._take_update_steps, EngineRestorer.restore_engine
    restored: list[object] = []

    def handle_entry(state: Any, spec: Any, now_ns: int) -> Any:
        refused = handle(state, spec, now_ns)
        if spec.key.startswith("poison"):
            state.nodes.clear()
            raise RuntimeError(f"planted: {spec.key}")
        return refused

    def handle_node(state: Any, spec: Any, now_ns: int) -> None:
        drain(state, spec, now_ns)
        if spec.node_id == "n2" and spec.action == 3:
            raise RuntimeError("planted: drain")

    def run_slice(self: Any, now_ns: int, budget: int) -> Any:
        if any(key.startswith("stuck") for state in self._partitions.values() for key in state.requests):
            self._partitions.clear()
            raise RuntimeError("planted: slice")
        return cycle(self, now_ns, budget)

    def take_update(self: Any, command: Any, now_ns: int) -> Iterator[Any]:
        yield from update(self, command, now_ns)
        if "poison" in command.config:
            raise RuntimeError("planted: configuration")

    async def restore_and_wait(self: Any, error: Exception, record: Any) -> None:
        await restore(self, error, record)
        restored.append(record)
        if str(error).endswith(f"held-{len(restored)}"):
            print("held", flush=True)
            await asyncio.Event().wait()

    allocation_intake.handle, node_intake.handle = handle_entry, handle_node
    EngineRestorer.restore_engine = restore_and_wait  # type: ignore[method-assign]
    Engine.cycle = run_slice  # type: ignore[method-assign]
    Engine._take_update_steps = take_update  # type: ignore[method-assign]


if __name__ == "__main__":
    name, _, value = sys.argv.pop(1).partition("=")
    match name:
        case "ahead":
            set_clock(int(value))
        case "version":
            serving.__version__ = value  # type: ignore[attr-defined]
        case "bugs":
            plant_bugs()
    sys.argv[0] = "kornel"
    main()
