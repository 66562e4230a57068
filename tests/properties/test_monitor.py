"""The periodic policy under random histories: nobody goes unheard, no round takes too much, and it comes to rest.

What is asserted is worked out from the effects alone. Rules: preemption.md A.1 no. 12 and 17, E.6.
"""

from __future__ import annotations

import random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.domain.commands import AnswerCallbacks, PreemptionNoticeAnswer
from kornel.core.domain.effects import Effect, PreemptionNotice, PreemptionNoticeWithdrawn, Released
from kornel.core.state.books import audit
from tests.examples import scale_examples
from tests.scenarios.preemption.monitor_stage import START_NS, Stage

LEAVES: Final = ("p.a", "p.b", "p.x.c", "p.x.d", "q.e", "q.f", "r")
PARENTS: Final = ("p", "p.x", "q")
SECOND_NS: Final = 10**9


def random_queues(rng: random.Random, total: int, *, all_guaranteed: bool = False) -> dict[str, dict[str, Any]]:
    """A valid tree over :data:`LEAVES` whose guarantees are within *total*, or a little above."""
    owed = {leaf: rng.randint(1 if all_guaranteed else 0, total // len(LEAVES) + 1) for leaf in LEAVES}
    if not all_guaranteed:
        owed = {leaf: amount if rng.random() < 0.7 else 0 for leaf, amount in owed.items()}
    queues: dict[str, dict[str, Any]] = {}
    for path in (*PARENTS, *LEAVES):
        amount = owed.get(path)
        if amount is None:
            below = sum(owed[leaf] for leaf in LEAVES if leaf.startswith(f"{path}."))
            amount = below if all_guaranteed or rng.random() < 0.5 else 0
            if (
                amount and not all_guaranteed
            ):  # More than its leaves declare, which is shared by those that declare none.
                amount += {"p": 4, "p.x": 2, "q": 3}[path]
        properties = {}
        if rng.random() < 0.15:
            properties["preemption.policy"] = rng.choice(["fence", "disabled"])
        if not all_guaranteed and rng.random() < 0.2:
            properties["priority.offset"] = str(rng.choice([-1, 1]))
        resources = {"guaranteed": {"f": amount}} if amount else {}
        queues[path] = {"resources": resources, "properties": properties}
    return queues


class Watcher:
    """Follows what a shim is told, and objects to what it should not have been."""

    def __init__(self, stage: Stage, limit: int, max_wait_ns: int, sizes: dict[str, int]) -> None:
        self.stage = stage
        self.limit = limit
        self.max_wait_ns = max_wait_ns
        self.sizes = sizes
        self.notified: dict[str, int] = {}
        """Since when each key has been at risk."""
        self.leaving: list[tuple[str, str]] = []
        self.numbers: list[tuple[int, tuple[str, ...]]] = []
        self.told: dict[int, int] = {}
        """When each notice was sent, by number."""
        self.offered: dict[str, list[int]] = {}
        """By key, the notices that it was offered in exchange for."""
        self.kills = 0

    def see(self, effects: list[Effect], now_ns: int) -> None:
        for effect in effects:
            if isinstance(effect, PreemptionNotice):
                self.numbers.append((effect.notice, (*effect.strict, *effect.at_risk)))
                self.told[effect.notice] = now_ns
                assert effect.deadline_ns - now_ns >= self.max_wait_ns
                for key in (*effect.strict, *effect.at_risk):
                    self.notified[key] = now_ns
            elif isinstance(effect, PreemptionNoticeWithdrawn):
                for key in effect.keys:
                    self.notified.pop(key, None)
            elif isinstance(effect, Released) and effect.message.startswith("preempted by the monitor"):
                since = [self.notified.pop(effect.key)] if effect.key in self.notified else []
                # What was offered in exchange goes on the terms of the notice.
                since += [self.told[number] for number in self.offered.get(effect.key, ())]
                assert now_ns - min(since) >= self.max_wait_ns
                victim = self.stage.state.requests[effect.key]
                assert victim.queue.properties.preemption_policy != "disabled"
                self.kills += 1
                self.leaving.append((effect.application_id, effect.key))

    def gone(self, key: str) -> None:
        self.notified.pop(key, None)

    def at_risk(self) -> int:
        return sum(self.sizes[key] for key in self.notified)


@settings(max_examples=scale_examples(60), deadline=None)
@given(st.integers(0, 2**32))
def test_nobody_goes_unheard_and_no_round_takes_too_much(seed: int) -> None:
    """Whatever happens between the slices of a round, kills follow notices and the limit of the round."""
    rng = random.Random(seed)
    total = 40
    options: dict[str, Any] = {
        "per_round": rng.choice([0.1, 0.3, 1]),
        "natural_factor": rng.choice([0.2, 0.7, 1]),
        "dead_zone": rng.choice([0, 0.1]),
        "contract": rng.choice(["strict", "negotiable"]),
        "reserved_first": rng.random() < 0.3,
        "queue_priority": rng.random() < 0.3,
        "queue_priority_wait_ms": 1000,
        "conservative": rng.random() < 0.2,
        "coexist": rng.random() < 0.3,
        "originator_reserve": rng.choice([0, 0.5]),
    }
    reservations = rng.choice([None, 2 * SECOND_NS])
    stage = Stage(random_queues(rng, total), **options, reservation_delay_ns=reservations)
    stage.attach()
    for number in range(4):
        stage.node(f"n{number}", {"f": total // 4})
    for leaf in LEAVES:
        stage.application(f"app-{leaf}", leaf)
    sizes: dict[str, int] = {}
    watcher = Watcher(stage, int(options["per_round"] * total), 10 * SECOND_NS, sizes)

    def submit() -> None:
        leaf, size = rng.choice(LEAVES[:3] if stage.now_s < 2 else LEAVES), rng.randint(1, 3)
        key = f"k{len(sizes)}"
        sizes[key] = size
        if f"app-{leaf}" not in stage.state.applications:  # It had nothing left and completed.
            stage.application(f"app-{leaf}", leaf)
        effects = stage.submit(
            f"app-{leaf}",
            [key],
            {"f": size},
            priority=rng.choice([0, 0, 1]),
            originator=rng.random() < 0.1,
            allow_preempt_self=rng.random() < 0.9,
            allow_preempt_other=True,
        )
        watcher.see(effects, now_ns())

    def now_ns() -> int:
        return START_NS + round(stage.now_s * SECOND_NS)

    def something() -> None:
        act = rng.random()
        if act < 0.5:
            submit()
        elif act < 0.7 and watcher.leaving:
            application, key = watcher.leaving.pop(rng.randrange(len(watcher.leaving)))
            watcher.see(stage.release(application, key), now_ns())
        elif act < 0.9 and stage.state.requests:
            request = rng.choice(list(stage.state.requests.values()))
            watcher.gone(request.key)
            watcher.see(stage.release(request.application.application_id, request.key), now_ns())
        elif watcher.numbers:
            notice, keys = rng.choice(watcher.numbers)
            offered = tuple(rng.sample(list(sizes), min(3, len(sizes))))
            before = set(watcher.notified)
            answer = PreemptionNoticeAnswer(notice, True, offered, tuple((key, 1) for key in keys))
            for key in offered:
                watcher.offered.setdefault(key, []).append(notice)
            watcher.see(stage.apply(AnswerCallbacks("rm", notices=(answer,))), now_ns())
            assert set(watcher.notified) == before

    for _ in range(12):
        submit()
    for _ in range(rng.randint(5, 60)):
        stage.now_ns += round(rng.choice([0, 1, 2.5, 5]) * SECOND_NS)
        rounds = stage.state.notices.rounds
        more = True
        while more:
            result = stage.engine.cycle(now_ns(), rng.choice([1, 3, 250]))
            watcher.see(result.effects, now_ns())
            more = result.more
            if rng.random() < 0.5:
                something()
        if stage.state.notices.rounds != rounds:
            assert set(stage.state.notices.entries) <= set(watcher.notified) | set(watcher.offered)
        assert audit.check(stage.state) == []
        assert stage.state.law_violations == 0


@settings(max_examples=scale_examples(60), deadline=None)
@given(st.integers(0, 2**32))
def test_no_round_selects_more_than_its_part(seed: int) -> None:
    """Undisturbed, those at risk after a round and those it took are within the limit together."""
    rng = random.Random(seed)
    total, per_round = 40, rng.choice([0.05, 0.1, 0.25])
    stage = Stage(random_queues(rng, total), per_round=per_round, natural_factor=rng.choice([0.2, 1]))
    stage.attach()
    stage.node("n", {"f": total})
    sizes: dict[str, int] = {}
    watcher = Watcher(stage, int(per_round * total), 10 * SECOND_NS, sizes)
    for leaf in LEAVES:
        stage.application(f"app-{leaf}", leaf)
    hogs = rng.sample(LEAVES, len(LEAVES))
    for at, leaf in enumerate(hogs * 4):
        size = rng.randint(1, 3)
        key = f"k{at}"
        sizes[key] = size
        stage.submit(f"app-{leaf}", [key], {"f": size})
        if at < 20:
            stage.run_to(stage.now_s)
    for second in range(5, 61, 5):
        taken = watcher.kills
        before = dict(watcher.notified)
        effects = stage.run_to(second)
        watcher.see(effects, START_NS + second * SECOND_NS)
        killed_now = [e.key for e in effects if isinstance(e, Released)]
        assert len(killed_now) == watcher.kills - taken
        assert set(killed_now) <= set(before)
        selected = watcher.at_risk() + sum(sizes[key] for key in killed_now)
        # One place is always allowed: of an ask of at most 3, by tasks that free less than that before the last.
        assert selected <= max(watcher.limit, 5)
        stage.confirm(effects)


@pytest.mark.long
@settings(max_examples=scale_examples(8), deadline=None)
@given(st.integers(0, 2**32))
def test_comes_to_rest(seed: int) -> None:
    """Victims that come back at once, in a tree whose order of queues may hand the room back to them: no storm.

    Once shares are reached, no leaf loses anything more often than every ten minutes.
    """
    rng = random.Random(seed)
    total = 40
    stage = Stage(
        random_queues(rng, total, all_guaranteed=rng.random() < 0.5),
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
