"""Two queues with half of the cluster each, one application in each, over gRPC: what the periodic policy changes.

App1 comes first and takes the whole cluster, app2 comes a little later. Without preemption app2 waits until app1 is
done; with it both soon hold half, app2 finishes earlier and app1 later than without.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kornel.shim_client import Ask
from kornel.si.v1 import si_pb2 as si
from tests.e2e.harness import create
from tests.e2e.preemption_wire import running_shim
from tests.scenarios.preemption.monitor_stage import configuration

UNITS: Final = 8
TASKS: Final = {"app1": UNITS, "app2": UNITS // 2}
TASK_S: Final = 60
SUBMITTED_S: Final = 10
STEP_S: Final = 5
LATEST_S: Final = 200
QUEUES: Final = {queue: {"resources": {"guaranteed": {"f": UNITS // 2}}} for queue in ("app1", "app2")}


@dataclass
class History:
    """Seconds after the start by application; ``held``: units that each held at each time."""

    started: dict[str, int] = field(default_factory=dict)
    finished: dict[str, int] = field(default_factory=dict)
    held: dict[int, tuple[int, int]] = field(default_factory=dict)
    victims: list[str] = field(default_factory=list)


async def history(*, preemption: bool) -> History:
    """Both applications up to their ends. A task runs for :data:`TASK_S`; a preempted one begins again."""
    found = History()
    async with running_shim(configuration(QUEUES, enabled=preemption, per_round=1, natural_factor=1)) as shim:
        await shim.client.create_nodes([create("n", f=UNITS)])
        await shim.add_applications((f"app-{name}", name) for name in TASKS)
        running: dict[str, int] = {}

        async def ask(keys: list[str]) -> None:
            """Without preemption nobody takes anything, not even for itself."""
            asks = [Ask(key, f"app-{owner(key)}", {"f": 1}, allow_preempt_other=preemption) for key in keys]
            await shim.client.submit_asks(asks)

        done = dict.fromkeys(TASKS, 0)
        for now_s in range(0, LATEST_S, STEP_S):
            acted = False
            for name, submitted_s in (("app1", 0), ("app2", SUBMITTED_S)):
                if now_s == submitted_s:
                    await ask([f"{name}-{at}" for at in range(TASKS[name])])
                    acted = True
            ended = [key for key, since_s in running.items() if now_s - since_s >= TASK_S]
            for key in ended:
                del running[key]
                done[owner(key)] += 1
                await shim.client.release([shim.client.release_of(f"app-{owner(key)}", key, si.STOPPED_BY_RM)])
            lost = [u.key for u in shim.released if u.termination == si.PREEMPTED_BY_SCHEDULER and u.key in running]
            if lost:
                found.victims += lost
                for key in lost:
                    del running[key]
                await shim.confirm()
                await ask([f"{key}-again" for key in lost])
            if acted or ended or lost:
                await shim.core.settle()
            for key in shim.placed:
                if key not in found.started:
                    found.started[key] = running[key] = now_s
            found.held[now_s] = (holds(running, "app1"), holds(running, "app2"))
            for name, count in TASKS.items():
                if done[name] == count:
                    found.finished.setdefault(name, now_s)
            if len(found.finished) == len(TASKS):
                return found
            await shim.pass_seconds(STEP_S)
    raise AssertionError(f"not finished after {LATEST_S} s: {found}")


def holds(running: dict[str, int], name: str) -> int:
    return sum(owner(key) == name for key in running)


def owner(key: str) -> str:
    return key.partition("-")[0]


async def test_the_later_application_gets_its_share() -> None:
    """App2 holds its half once the notice is over, ends earlier than without preemption, and app1 later."""
    without, with_it = await history(preemption=False), await history(preemption=True)
    for each in (without, with_it):
        assert each.held[0] == each.held[SUBMITTED_S] == (UNITS, 0)

    assert without.victims == []
    assert without.finished == {"app1": TASK_S, "app2": 2 * TASK_S}
    assert {without.held[at] for at in range(0, TASK_S, STEP_S)} == {(UNITS, 0)}

    assert len(with_it.victims) == UNITS // 2
    assert {owner(key) for key in with_it.victims} == {"app1"}
    shared_s = min(at for at, held in with_it.held.items() if held == (UNITS // 2, UNITS // 2))
    assert SUBMITTED_S < shared_s <= SUBMITTED_S + 20, "two rounds and the time to prepare"
    assert with_it.finished["app2"] == shared_s + TASK_S < without.finished["app2"]
    assert with_it.finished["app1"] > without.finished["app1"]
