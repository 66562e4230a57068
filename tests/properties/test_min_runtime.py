"""Nobody goes before his minimum run time is over, by whatever kind, and who waits for its end has the room soon after
it: worlds of a few queues and tasks of one size, each on a node of its own, held against the oracle of the words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.run_times import Setting, Task, children_up_to, protected_until
from tests.scenarios.stage import Stage

QUEUES: Final = ("root.p", "root.p.v", "root.p.q", "root.w", "root.a")
HOLDING: Final = ("root.p.v", "root.w", "root.p.q")
ASKING: Final = ("root.p.q", "root.a")
TOLD_S: Final = 50
END_S: Final = 150
SLACK_S: Final = 17
"""The longest pause between two searches for one question, the delay of one second, and one for the cycle."""
MONITOR: Final = 'monitor="{natural_factor: 1.0, per_round: 1.0, dead_zone: 0}"'
_RELEASE: Final = re.compile(r"@(\d+)s release (\S+) PREEMPTED_BY_SCHEDULER for=(\S+)")


@dataclass(frozen=True)
class Ask:
    queue: str
    at: int


@dataclass(frozen=True)
class World:
    said: dict[str, Setting]
    tasks: dict[str, Task]
    asks: dict[str, Ask]
    waits: dict[str, int]
    """How long an asking queue, or one above its max, respects minimum run times, in seconds; 0: always."""
    kind: str
    """``guarantee``, ``monitor`` or ``quota``."""

    def lines(self) -> list[str]:
        quota, monitor = self.kind == "quota", self.kind == "monitor"
        lines = ["partition" + " quota=on" * quota + f" {MONITOR}" * monitor]
        for queue in QUEUES:
            said = self.said.get(queue, Setting())
            line = f"queue {queue}" + " parent" * (queue == "root.p")
            line += f" preemption.min-runtime={said.least}s" if said.least is not None else ""
            line += f" preemption.min-runtime.most={said.most}s" if said.most is not None else ""
            line += f" preemption.max-wait={self.waits[queue]}s" if queue in self.waits else ""
            line += " guaranteed={f=9} preemption.delay=1s" * (queue in ASKING and not quota)
            line += " max={f=1} quota.preemption.delay=5s" * (quota and queue in ("root.p", "root.w"))
            lines.append(line)
        lines += [f"node n{name} f=1" for name in self.tasks]
        events = [(0, "cycle")]
        for name, task in self.tasks.items():
            tag = f" runtime={task.states}s" if task.states is not None else " runtime=soon"
            run = f"run {name} queue={task.queue} node=n{name} f=1{tag}"
            # The core is told of all of them later, so that no node has room when asks come.
            events.append((TOLD_S, f"{run} created={task.since}s"))
        events += [(ask.at, f"ask {name} queue={ask.queue} f=1 other=yes") for name, ask in self.asks.items()]
        for at, line in sorted(events):
            lines += [f"cycles until={at}s every=1s leaving"] * (at > 0) + [f"at={at}s {line}"]
        return [*lines, f"cycles until={END_S}s every=1s leaving"]


def worlds(kind: str) -> st.SearchStrategy[World]:
    seconds = st.none() | st.sampled_from([0, 20, 50, 80])
    said = st.dictionaries(st.sampled_from(QUEUES), st.builds(Setting, seconds, seconds))
    states = st.none() | st.sampled_from([0, 30, 70])
    task = st.builds(Task, st.sampled_from(HOLDING), st.integers(1, TOLD_S), states)
    ask = st.builds(Ask, st.sampled_from(ASKING), st.integers(TOLD_S + 1, TOLD_S + 40))
    tasks = st.lists(task, min_size=1, max_size=5).map(lambda all_: {f"t{at}": one for at, one in enumerate(all_)})
    asks = st.lists(ask, max_size=3).map(lambda all_: {f"k{at}": one for at, one in enumerate(all_)})
    waits = st.dictionaries(st.sampled_from(QUEUES), st.sampled_from([0, 10, 30]))
    return st.builds(World, said, tasks, asks, waits, st.just(kind))


def play(world: World) -> tuple[dict[str, tuple[int, str]], set[str]]:
    """When each task was told to leave, in seconds, and for which queue or ask; and the asks that were placed."""
    answers = Stage().play(world.lines())
    told = [match for answer in answers if (match := _RELEASE.match(answer)) is not None]
    placed = {answer.split()[2] for answer in answers if re.match(r"@\d+s allocate k", answer)}
    return {match[2]: (int(match[1]), match[3]) for match in told}, placed


def patience_end(world: World, taker: str) -> int:
    """The second from which *taker*, an ask or a queue above its max, takes those who are protected, too."""
    queue = world.asks[taker].queue if taker in world.asks else taker
    # The nearest queue that says anything counts.
    waits = next((world.waits[path] for path in reversed(children_up_to(queue)) if path in world.waits), 0)
    # The max is due some seconds after the core is told of the tasks.
    due = world.asks[taker].at + 1 if taker in world.asks else TOLD_S + 5
    return due + waits if waits else 10 * END_S


def end_for(world: World, task: Task, taker: str) -> int:
    """The second until which *task* is protected from *taker*, however long that waits."""
    return protected_until(world.said, task, world.asks[taker].queue if taker in world.asks else taker)


@pytest.mark.parametrize("kind", ["guarantee", "monitor", "quota"])
def test_nobody_goes_before_its_end_and_who_waits_is_woken(kind: str) -> None:
    @settings(max_examples=40)
    @given(worlds(kind))
    def holds(world: World) -> None:
        gone, placed = play(world)
        for name, (second, told) in gone.items():
            # The releases of the monitor name the queue that gives: any ask may be the one that takes.
            takers = list(world.asks) if kind == "monitor" else [told]
            ends = [min(end_for(world, world.tasks[name], each), patience_end(world, each)) for each in takers]
            assert second >= min(ends), f"{name} went at {second} for {takers}, and is protected until {ends}"
            own = end_for(world, world.tasks[name], told) if kind != "monitor" else 0
            for key, other in world.tasks.items() if own > second else ():
                # Whoever could have gone instead is protected for as long, at least.
                inside = other.queue.startswith(told) if kind == "quota" else other.queue not in ASKING
                if inside and gone.get(key, (END_S, ""))[0] > second:
                    assert end_for(world, other, told) >= own, f"{name} went at {second}, and {key} was to go before"
        for taker, ask in world.asks.items() if kind == "guarantee" else ():
            for key, task in world.tasks.items():
                # What is guaranteed to a queue protects it, and it asks for itself.
                if taker not in placed and key not in gone and task.queue not in ASKING:
                    free_s = max(min(end_for(world, task, taker), patience_end(world, taker)), ask.at + 1)
                    assert free_s + SLACK_S > END_S, f"{taker} waits, and {key} may go since {free_s}"
        for queue in ("root.p", "root.w") if kind == "quota" else ():
            left = {key: task for key, task in world.tasks.items() if key not in gone and task.queue.startswith(queue)}
            for key, task in left.items() if len(left) > 1 else ():
                free_s = max(min(end_for(world, task, queue), patience_end(world, queue)), TOLD_S + 10)
                assert free_s + SLACK_S > END_S, f"{queue} is above its max, and {key} may go since {free_s}"

    holds()
