"""What the monitor frees goes to whom it freed it for, over gRPC, with victims that are made again at once."""

from __future__ import annotations

from typing import Final

from kornel.shim_client import Ask
from tests.e2e.harness import create
from tests.e2e.preemption_wire import Shim, running_shim
from tests.scenarios.preemption.monitor_stage import configuration

OWED: Final = {"a": 0, "b": 10, "c": 8}
HELD: Final = {"a": 1, "b": 2, "c": 17}
WANTED: Final = {"a": 20, "b": 12, "c": 0}


async def ask(shim: Shim, name: str, keys: list[str]) -> None:
    await shim.client.submit_asks([Ask(key, f"app-{name}", {"f": 1}, allow_preempt_other=True) for key in keys])


def running(shim: Shim, gone: set[str], name: str) -> int:
    return len([key for key in shim.placed if key.startswith(name) and key not in gone])


async def test_what_is_freed_goes_to_whom_it_was_freed_for() -> None:
    """Twenty cores: b reaches its ten, a gets nothing of what is freed, and then nobody is taken any more."""
    queues = {name: {"resources": {"guaranteed": {"f": amount}} if amount else {}} for name, amount in OWED.items()}
    async with running_shim(configuration(queues, interval_ms=5000, max_wait_ms=5000)) as shim:
        await shim.client.create_nodes([create(f"n{at}", f=5) for at in range(4)])
        await shim.add_applications((f"app-{name}", name) for name in OWED)
        for name, count in HELD.items():
            await ask(shim, name, [f"{name}-{at}" for at in range(count)])
            await shim.core.settle()
        for name, count in WANTED.items():
            await ask(shim, name, [f"{name}-more-{at}" for at in range(count)])
        gone: set[str] = set()
        quiet_since = 0
        for turn in range(80):
            await shim.pass_seconds(5)
            lost = [key for key in shim.victims() if key not in gone]
            if not lost:
                continue
            quiet_since = turn
            gone |= set(lost)
            await shim.confirm()
            for key in lost:
                await ask(shim, key[0], [f"{key}-again"])
        assert {name: running(shim, gone, name) for name in OWED} == {"a": 0, "b": 10, "c": 10}
        assert quiet_since < 40
