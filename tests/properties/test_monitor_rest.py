"""The periodic policy decides the same whether or not it leaves out the rounds that nothing can come of.

Two engines live through the same history at the same times. One of them runs every round.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kornel.core.domain.commands import AnswerCallbacks, PreemptionNoticeAnswer, UpdateConfiguration
from kornel.core.domain.effects import Effect, PreemptionNotice, Released
from kornel.core.preemption.monitor import drive
from tests.examples import scale_examples
from tests.scenarios.preemption.monitor_stage import START_NS, Stage

LEAVES: Final = ("p.a", "p.b", "p.x.c", "p.x.d", "q.e", "q.f", "r")
PARENTS: Final = ("p", "p.x", "q")
SECOND_NS: Final = 10**9
_ROUND: Final = re.compile(r"\bround(_number)?[ =]\d+")
"""The number of a round is the one thing that differs: a round that was left out has none."""


def random_queues(rng: random.Random, total: int) -> dict[str, dict[str, Any]]:
    """A valid tree over :data:`LEAVES` whose guarantees are within *total*, or a little above."""
    owed = {leaf: rng.randint(0, total // len(LEAVES) + 1) for leaf in LEAVES}
    owed = {leaf: amount if rng.random() < 0.7 else 0 for leaf, amount in owed.items()}
    queues: dict[str, dict[str, Any]] = {}
    for path in (*PARENTS, *LEAVES):
        amount = owed.get(path)
        if amount is None:
            amount = sum(owed[leaf] for leaf in LEAVES if leaf.startswith(f"{path}.")) if rng.random() < 0.5 else 0
            # More than its leaves declare, which is shared by those that declare none.
            amount += {"p": 4, "p.x": 2, "q": 3}[path] if amount else 0
        properties = {}
        if rng.random() < 0.15:
            properties["preemption.policy"] = rng.choice(["fence", "disabled"])
        if rng.random() < 0.2:
            properties["priority.offset"] = str(rng.choice([-1, 1]))
        queues[path] = {"resources": {"guaranteed": {"f": amount}} if amount else {}, "properties": properties}
    return queues


@contextmanager
def every_round() -> Iterator[None]:
    """No round is left out meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drive, "has_use_for_round", lambda _: True)
        yield


class Pair:
    """Two clusters with the same history; the second one runs every round."""

    def __init__(self, queues: dict[str, dict[str, Any]], options: dict[str, Any]) -> None:
        self.resting = Stage(queues, **options)
        with every_round():
            self.restless = Stage(queues, **options)
        self.told: list[Effect] = []

    def both(self, act: Callable[[Stage], list[Effect] | None]) -> None:
        """Lets both do *act*. The same comes of it."""
        found = act(self.resting)
        with every_round():
            expected = act(self.restless)
        assert shown(found) == shown(expected)
        self.told += found or []

    def run_to(self, now_s: float) -> None:
        """Lets time pass, with a stop whenever either engine wants one."""
        while True:
            wanted = [stage.engine.next_wakeup_ns() for stage in (self.resting, self.restless)]
            times = [(due_ns - START_NS) / SECOND_NS for due_ns in wanted if due_ns is not None]
            at_s = min([now_s, *(max(self.resting.now_s, time) for time in times)])
            self.both(lambda stage: run_slices(stage, at_s))  # noqa: B023 - it is called at once
            self.compare()
            if at_s >= now_s:
                return

    def compare(self) -> None:
        """What rounds remember is the same, and so is what an explanation would say."""
        assert self.resting.state.law_violations == self.restless.state.law_violations == 0
        one, other = self.resting.state.notices, self.restless.state.notices
        assert one.entries.keys() == other.entries.keys()
        assert [entry.deadline_ns for entry in one.entries.values()] == [
            entry.deadline_ns for entry in other.entries.values()
        ]
        assert one.lacking == other.lacking
        assert one.observed == other.observed
        assert len(one.places) == len(other.places)
        assert one.taken.keys() == other.taken.keys()


def run_slices(stage: Stage, now_s: float) -> list[Effect]:
    """Everything that the engine has to do at *now_s*, timers included that are due in the same moment."""
    stage.now_ns = now_ns = START_NS + round(now_s * SECOND_NS)
    found: list[Effect] = []
    more = True
    while more:
        result = stage.engine.cycle(now_ns, 250)
        found += result.effects
        due_ns = stage.engine.next_wakeup_ns()
        more = result.more or (due_ns is not None and due_ns <= now_ns)
    return found


def shown(effects: list[Effect] | None) -> list[str]:
    """The effects without the numbers of rounds."""
    return [_ROUND.sub("round", repr(effect)) for effect in effects or ()]


@settings(max_examples=scale_examples(40), deadline=None)
@given(st.integers(0, 2**32))
@example(1000098)  # A reserved ask of a leaf that has its guarantee.
@example(1000345)  # An ask that uses what the victims of another leave over, of which one has time left.
@example(5000900)  # The same on a node where room is held by age.
def test_the_same_comes_of_it_whether_or_not_rounds_are_left_out(seed: int) -> None:
    """Times of quiet and of plenty take turns. Nothing arrives in the very moment of a round, where the one that is
    left out and the one that comes next would be in the same moment."""
    rng = random.Random(seed)
    total = 24
    options: dict[str, Any] = {
        "per_round": rng.choice([0.1, 0.3, 1]),
        "natural_factor": rng.choice([0.2, 1]),
        "dead_zone": rng.choice([0, 0.1]),
        "contract": rng.choice(["strict", "negotiable"]),
        "reserved_first": rng.random() < 0.3,
        "balance": rng.random() < 0.3,
        "coexist": rng.random() < 0.3,
        "observe_only": rng.random() < 0.2,
        "max_wait_ms": rng.choice([0, 7_000]),
        "reservation_delay_ns": rng.choice([None, 2 * SECOND_NS]),
    }
    queues = random_queues(rng, total)
    pair = Pair(queues, options)
    pair.both(Stage.attach)
    for number in range(4):
        pair.both(partial(Stage.node, name=f"n{number}", capacity={"f": total // 4}))
    asked: dict[str, str] = {}

    def submit() -> None:
        leaf = rng.choice(LEAVES)
        name = f"app-{leaf}"
        if name not in pair.resting.state.applications:
            pair.both(partial(Stage.application, name=name, queue=leaf))
        key = f"k{len(asked)}"
        asked[key] = name
        size, may_preempt = {"f": rng.randint(1, 3)}, rng.random() < 0.9
        pair.both(lambda stage: stage.submit(name, [key], size, allow_preempt_other=may_preempt))

    def release(*keys: str) -> None:
        for key in keys:
            if key in pair.resting.state.requests:
                pair.both(lambda stage: stage.release(asked[key], key))  # noqa: B023 - it is called at once

    for _ in range(rng.randint(6, 25)):
        pair.run_to(pair.resting.now_s + rng.choice([0, 1, 2.5, 5, 31]) + rng.random())
        act = rng.random()
        living = list(pair.resting.state.requests)
        if act < 0.5:
            for _ in range(rng.randint(1, 12)):
                submit()
        elif act < 0.7:
            release(*rng.sample(living, len(living) // 2))
        elif act < 0.8:
            release(*living)
        elif act < 0.9:
            victims = [e for e in pair.told if isinstance(e, Released) and e.key in pair.resting.state.requests]
            release(*(victim.key for victim in victims))
        elif notices := [effect for effect in pair.told if isinstance(effect, PreemptionNotice)]:
            offered = tuple(rng.sample(living, min(2, len(living))))
            answer = PreemptionNoticeAnswer(rng.choice(notices).notice, True, offered, ())
            pair.both(partial(Stage.apply, command=AnswerCallbacks("rm", notices=(answer,))))
        else:
            settings_ = {**options, "interval_ms": rng.choice([3_000, 5_000])}
            del settings_["reservation_delay_ns"]
            changed = UpdateConfiguration("rm", pair.resting.configuration(**settings_))
            pair.both(partial(Stage.apply, command=changed))
    pair.run_to(pair.resting.now_s + 60)


def test_a_core_where_nothing_waits_is_never_woken_for_a_round() -> None:
    """A round each three seconds would be a processor second or more a day for each core that has nothing to do."""

    def wakeups(*, enabled: bool) -> list[int | None]:
        stage = Stage({"a": {}, "b": {}}, enabled=enabled)
        stage.node("n", {"f": 10})
        stage.application("app-a", "a")
        stage.submit("app-a", ["k0", "k1"], {"f": 5})
        stage.run_to(60)
        found = []
        for second in range(61, 121):
            found.append(stage.engine.next_wakeup_ns())
            stage.run_to(second)
        assert stage.state.notices.rounds == 0
        return found

    assert wakeups(enabled=True) == wakeups(enabled=False)


def test_rounds_go_on_at_their_own_times_once_an_ask_waits() -> None:
    stage = Stage({"a": {}, "b": {"resources": {"guaranteed": {"f": 5}}}}, per_round=1, natural_factor=1)
    stage.attach()
    stage.node("n", {"f": 10})
    for leaf in "ab":
        stage.application(f"app-{leaf}", leaf)
    stage.submit("app-a", [f"k{at}" for at in range(10)], {"f": 1})
    stage.run_to(61)
    stage.submit("app-b", ["w"], {"f": 5})
    assert not [effect for effect in stage.run_to(64.9) if isinstance(effect, PreemptionNotice)]
    assert [effect for effect in stage.run_to(65) if isinstance(effect, PreemptionNotice)]
    stage.run_to(76)
    assert stage.state.notices.rounds == 3
    stage.release("app-b", "w")
    stage.run_to(200)
    assert stage.state.notices.rounds == 4
    assert stage.state.notices.entries == {}


@pytest.mark.long
@settings(max_examples=scale_examples(8), deadline=None)
@given(st.integers(0, 2**32))
def test_comes_to_rest(seed: int) -> None:
    """Victims that come back at once, in a tree whose order of queues may hand the room back to them: no storm
    (preemption.md A.1 no. 12).

    Once shares are reached, no leaf loses anything more often than every ten minutes.
    """
    rng = random.Random(seed)
    total = 40
    stage = Stage(
        random_queues(rng, total),
        per_round=rng.choice([0.1, 1]),
        natural_factor=rng.choice([0.2, 1]),
        dead_zone=rng.choice([0, 0.1]),
        max_wait_ms=5000,
    )
    for number in range(4):
        stage.node(f"n{number}", {"f": total // 4})
    for leaf in LEAVES:
        stage.application(f"app-{leaf}", leaf)
    priorities: dict[str, int] = {}
    for leaf in rng.sample(LEAVES, len(LEAVES)):
        for _ in range(rng.randint(0, 30)):
            key = f"k{len(priorities)}"
            priorities[key] = rng.choice([0, 0, 1])
            stage.submit(f"app-{leaf}", [key], {"f": 1}, priority=priorities[key])
        stage.run_to(stage.now_s)
    losses: dict[str, list[int]] = {leaf: [] for leaf in LEAVES}
    for second in range(5, 4000, 10):
        effects = stage.run_to(second)
        victims = [effect for effect in effects if isinstance(effect, Released)]
        stage.confirm(effects)
        for leaf in {victim.application_id.removeprefix("app-") for victim in victims}:
            losses[leaf].append(second)
        for victim in sorted(victims, key=lambda victim: victim.key):
            name = victim.key.partition("-")[0]
            stage.submit(victim.application_id, [f"{name}-{second}"], {"f": 1}, priority=priorities[name])
    late = {leaf: [second for second in seconds if second > 2700] for leaf, seconds in losses.items()}
    assert all(len(seconds) <= 3 for seconds in late.values()), late
