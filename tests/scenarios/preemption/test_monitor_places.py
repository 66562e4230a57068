"""The periodic monitor takes a task only where that lets a waiting ask run, and gives the room to that ask.

Every story failed before places were planned: what it shows is written where it differs.
"""

from __future__ import annotations

from typing import Any

import pytest

from kornel.core.domain.commands import AnswerCallbacks, PreemptionNoticeAnswer
from kornel.core.domain.effects import PreemptionDecided, Released
from kornel.core.domain.reasons import Outcome
from kornel.core.preemption.monitor.selection.victim_choice import VictimChoice
from kornel.core.state.asks import reservations
from kornel.core.state.waiting import pausing
from kornel.core.telling.allocations.explanation import AskReport
from kornel.core.telling.explain import Named
from tests.reading import read
from tests.scenarios.preemption.monitor_stage import START_NS, Stage, decided, killed, placed
from tests.scenarios.preemption.test_monitor import AT_ONCE, ONE, guaranteed, notices, withdrawn


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{at:03}" for at in range(count)]


def play(stage: Stage, until_s: int, step_s: int = 5, *, recreate: bool = False) -> list[str]:
    """Let time pass; victims leave at once and, with *recreate*, come back as asks. Returns all who were killed."""
    gone: list[str] = []
    for second in range(step_s, until_s + 1, step_s):
        effects = stage.run_to(second)
        victims = [effect for effect in effects if isinstance(effect, Released)]
        specs = {victim.key: stage.state.requests[victim.key].spec for victim in victims}
        stage.confirm(effects)
        gone += killed(effects)
        if recreate:
            for victim in victims:
                spec = specs[victim.key]
                size, again = dict(spec.resources), f"{victim.key.partition('~')[0]}~{second}"
                stage.submit(victim.application_id, [again], size, priority=spec.priority)
    return gone


def held(stage: Stage, leaf: str, t: str = "f") -> int:
    queue = stage.state.queues[f"root.{leaf}"]
    return queue.used[stage.state.types.index_of(t)]


def three_queues(*, b_wants: int = 60, a_wants: int = 100, **settings: Any) -> Stage:
    """100 cores: b is guaranteed 50 and holds 10, a without a guarantee holds 5, c is guaranteed 40 and holds 85."""
    stage = Stage(guaranteed(a=0, b=50, c=40), **settings)
    for number in range(10):
        stage.node(f"n{number}", {"f": 10})
    for name in "abc":
        stage.application(f"app-{name}", name)
    running = [("a", key) for key in numbered("a", 5)] + [("b", key) for key in numbered("b", 10)]
    running += [("c", key) for key in numbered("c", 85)]
    for at, (name, key) in enumerate(running):
        stage.submit(f"app-{name}", [key], ONE, node_id=f"n{at % 10}")
    stage.submit("app-a", numbered("ask-a", a_wants), ONE)
    stage.submit("app-b", numbered("ask-b", b_wants), ONE)
    return stage


def test_what_is_freed_goes_to_whom_it_was_freed_for() -> None:
    """b reaches its guarantee, a gets nothing of what is freed, and it goes quiet."""
    stage = three_queues()
    gone = play(stage, 1200, recreate=True)
    assert held(stage, "b") == 50
    assert held(stage, "a") <= 5
    assert held(stage, "b") + held(stage, "a") + held(stage, "c") == 100
    assert len(gone) <= 45
    stage.effects.clear()
    assert play(stage, 0) == []
    assert killed(stage.run_to(4800)) == []


def big_among_small(**settings: Any) -> Stage:
    """Ten nodes of 10 full of a's tasks of 1; b asks for one task of 8."""
    stage = Stage(guaranteed(a=50, b=50), **settings)
    for number in range(10):
        stage.node(f"n{number}", {"f": 10})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    for at, key in enumerate(numbered("a", 100)):
        stage.submit("app-a", [key], ONE, node_id=f"n{at % 10}")
    return stage


@pytest.mark.parametrize("settings", [AT_ONCE, {}])
def test_an_ask_of_eight_among_tasks_of_one_gets_its_place(settings: dict[str, Any]) -> None:
    """Eight tasks of one node leave, no other."""
    stage = big_among_small(**settings)
    stage.submit("app-b", ["big"], {"f": 8})
    gone = play(stage, 60)
    assert len(gone) == 8
    assert len({int(key[1:]) % 10 for key in gone}) == 1
    assert stage.state.requests["big"].node is not None


def test_free_room_that_no_ask_can_use_is_no_room() -> None:
    """Eight are free, one on each of eight nodes: the ask of 8 still needs seven tasks of one node to leave."""
    stage = big_among_small(**AT_ONCE)
    stage.release("app-a", *numbered("a", 8))
    stage.submit("app-b", ["big"], {"f": 8})
    gone = play(stage, 60)
    assert len(gone) == 7
    assert stage.state.requests["big"].node is not None


def test_nothing_is_taken_on_a_draining_node() -> None:
    """a holds 20 on a draining node and 60 on the others; b has its 40 from the others, all of it."""
    stage = Stage(guaranteed(a=40, b=40), **AT_ONCE, dead_zone=0)
    stage.node("old", {"f": 20}, draining=True)
    stage.node("new", {"f": 60})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    stage.submit("app-a", numbered("new", 60), ONE, node_id="new")
    stage.submit("app-a", numbered("old", 20), ONE, node_id="old")
    stage.submit("app-b", numbered("b", 40), ONE)
    gone = play(stage, 120)
    assert len(gone) == 40
    assert not [key for key in gone if key.startswith("old")]
    assert held(stage, "b") == 40


def test_another_queue_gives_what_the_draining_node_cannot() -> None:
    """All that a holds too much is on a draining node; c, a little over its guarantee, gives what b is owed."""
    stage = Stage(guaranteed(a=40, b=40, c=40), **AT_ONCE, dead_zone=0)
    stage.node("old", {"f": 140}, draining=True)
    stage.node("new", {"f": 60})
    for name in "abc":
        stage.application(f"app-{name}", name)
    stage.submit("app-a", numbered("a", 140), ONE, node_id="old")
    stage.submit("app-c", numbered("c", 60), ONE, node_id="new")
    stage.submit("app-b", numbered("b", 20), ONE)
    gone = play(stage, 300)
    assert len(gone) == 20
    assert {key[0] for key in gone} == {"c"}
    assert held(stage, "b") == 20


@pytest.mark.parametrize("size", [{"f": 11}, {"f": 1, "gpu": 1}])
def test_an_ask_that_no_node_could_ever_hold_costs_nobody_anything(size: dict[str, int]) -> None:
    stage = big_among_small(**AT_ONCE)
    stage.submit("app-b", ["impossible"], size)
    assert play(stage, 120) == []
    assert not decided(stage.effects, Outcome.NOTIFIED)


def test_an_ask_that_the_shim_refused_on_a_node_gets_no_place_there() -> None:
    stage = big_among_small(**AT_ONCE)
    stage.submit("app-b", ["picky"], {"f": 2})
    others = {f"n{number}": "no" for number in range(9)}
    pausing.leave_out(stage.state, stage.state.requests["picky"], others, others, START_NS)
    gone = play(stage, 20)
    assert {int(key[1:]) % 10 for key in gone} == {9}
    assert len(gone) == 2


def test_a_user_at_its_limit_costs_nobody_anything() -> None:
    """The user of b may hold 3 more: three tasks leave, not fifty."""
    queues = guaranteed(a=50, b=50)
    queues["b"]["limits"] = [{"limit": "few", "users": ["tester"], "maxresources": {"f": 3}}]
    stage = Stage(queues, **AT_ONCE)
    for number in range(10):
        stage.node(f"n{number}", {"f": 10})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    for at, key in enumerate(numbered("a", 100)):
        stage.submit("app-a", [key], ONE, node_id=f"n{at % 10}")
    stage.submit("app-b", numbered("b", 50), ONE)
    gone = play(stage, 300)
    assert len(gone) == 3
    assert held(stage, "b") == 3


def test_the_max_of_a_queue_is_made_room_for_inside_it() -> None:
    """p may hold 50 and a holds all of it; the cluster has room, b is owed 20: twenty of a leave, not on one node."""
    queues: dict[str, dict[str, Any]] = {
        "p": {"resources": {"max": {"f": 50}}},
        "p.a": {"resources": {"guaranteed": {"f": 30}}},
        "p.b": {"resources": {"guaranteed": {"f": 20}}},
        "c": {},
    }
    stage = Stage(queues, **AT_ONCE, dead_zone=0)
    stage.node("n1", {"f": 50})
    stage.node("n2", {"f": 50})
    for name in ("p.a", "p.b", "c"):
        stage.application(f"app-{name}", name)
    stage.submit("app-p.a", numbered("a", 50), ONE, node_id="n1")
    stage.submit("app-c", numbered("c", 10), ONE, node_id="n2")
    stage.submit("app-p.b", numbered("b", 20), ONE)
    gone = play(stage, 120)
    assert len(gone) == 20
    assert {key[0] for key in gone} == {"a"}
    assert held(stage, "p.b") == 20


# Guarantees on some levels only.


def levels(where: dict[str, int]) -> Stage:
    """p with the leaves x and y, and q with z, which holds all of 100; *where* is guaranteed what."""
    queues: dict[str, dict[str, Any]] = {path: {} for path in ("p", "p.x", "p.y", "q", "q.z")}
    for path, amount in where.items():
        queues[path] = {"resources": {"guaranteed": {"f": amount}}}
    stage = Stage(queues, **AT_ONCE, dead_zone=0)
    stage.node("n", {"f": 100})
    for path in ("p.x", "p.y", "q.z"):
        stage.application(f"app-{path}", path)
    stage.submit("app-q.z", numbered("z", 100), ONE, node_id="n")
    return stage


@pytest.mark.parametrize(
    ("where", "asks", "expected"),
    [
        ({"p.x": 30, "q.z": 50}, {"p.x": 40}, {"p.x": 30}),
        ({"p.x": 30}, {"p.x": 40}, {"p.x": 30}),
        ({"p": 40, "q": 60}, {"p.x": 50}, {"p.x": 40}),
        ({"p": 40, "q": 60}, {"p.x": 50, "p.y": 50}, {"p.x": 20, "p.y": 20}),
        ({"p": 40, "p.x": 10, "q": 60}, {"p.x": 50, "p.y": 50}, {"p.x": 10, "p.y": 30}),
        ({"p": 40, "q.z": 60}, {"p.x": 5, "p.y": 50}, {"p.x": 5, "p.y": 35}),
    ],
)
def test_guarantees_on_some_levels_only_are_served(
    where: dict[str, int], asks: dict[str, int], expected: dict[str, int]
) -> None:
    stage = levels(where)
    for path, count in asks.items():
        stage.submit(f"app-{path}", numbered(path, count), ONE)
    play(stage, 300)
    assert {path: held(stage, path) for path in expected} == expected


# At least one container per round and type.


def test_a_task_larger_than_the_part_of_a_round_goes_all_the_same() -> None:
    """Five tasks of 20 in 100: each is a fifth of the cluster, and a round takes a tenth."""
    stage = Stage(guaranteed(a=40, b=60))
    stage.node("n", {"f": 100})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    stage.submit("app-a", numbered("a", 5), {"f": 20}, node_id="n")
    stage.submit("app-b", numbered("b", 3), {"f": 20})
    play(stage, 200)
    assert held(stage, "b") == 60


@pytest.mark.parametrize("count", [2, 4, 8])
def test_a_few_gpus_are_shared_too(count: int) -> None:
    """Of fewer than ten GPUs a tenth is none; half of them go to b, one a turn."""
    size = {"f": 1, "gpu": 1}
    queues = {name: {"resources": {"guaranteed": {"gpu": count // 2}}} for name in "ab"}
    stage = Stage(queues)
    stage.node("n", {"f": 100, "gpu": count})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    stage.submit("app-a", numbered("a", count), size, node_id="n")
    stage.submit("app-b", numbered("b", count), size)
    gone = play(stage, 300)
    assert held(stage, "b", "gpu") == count // 2
    assert len(gone) == count // 2


# The pause against futile kills.


def test_a_small_job_every_five_minutes_waits_no_longer_each_time() -> None:
    """18 s each: 15 s of notice and the round it began in. Before, each took twice as long as the one before."""
    stage = Stage(guaranteed(a=0, b=10), interval_ms=3000, max_wait_ms=15_000)
    stage.node("n", {"f": 20})
    stage.application("app-a", "a")
    stage.submit("app-a", numbered("a", 20), ONE, node_id="n")
    stage.submit("app-a", numbered("wait", 40), ONE)
    waits = []
    for turn in range(12):
        start = turn * 300 + 1
        while stage.now_s < start:
            stage.confirm(stage.run_to(min(start, stage.now_s + 1)))
        if "app-b" not in stage.state.applications:
            stage.application("app-b", "b")
        key = f"job{turn}"
        stage.submit("app-b", [key], ONE)
        while stage.state.requests[key].node is None and stage.now_s < start + 280:
            stage.confirm(stage.run_to(stage.now_s + 1))
        waits.append(stage.now_s - start)
        stage.run_to(stage.now_s + 10)
        stage.release("app-b", key)
    assert max(waits) <= 21, waits


# Answers.


def y4() -> Stage:
    stage = Stage(guaranteed(a=40, b=40, c=20), **AT_ONCE)
    stage.node("n", {"f": 100})
    for name, count in (("a", 0), ("b", 60), ("c", 40)):
        stage.application(f"app-{name}", name)
        stage.submit(f"app-{name}", numbered(name, count), ONE, node_id="n")
    stage.submit("app-a", numbered("ask", 10), ONE)
    stage.attach()
    return stage


def test_offers_of_tasks_that_would_not_be_taken_put_off_nothing() -> None:
    """c names important tasks again and again: the listed ones go at their deadline all the same."""
    stage = y4()
    stage.release("app-c", *numbered("c", 20))
    stage.submit("app-c", numbered("vip", 20), ONE, node_id="n", priority=9)
    (notice,) = notices(stage.run_to(5))
    offered = 0
    for second in range(6, 60):
        effects = stage.run_to(second)
        for told in notices(effects):
            notice = told
        answer = PreemptionNoticeAnswer(notice.notice, True, tuple(numbered("vip", 20)[offered:]))
        stage.apply(AnswerCallbacks("rm", notices=(answer,)))
        if killed(effects):
            break
    assert stage.now_s == 15
    assert len(killed(effects)) == 10
    assert all(key.startswith("c") for key in killed(effects))


def test_a_change_of_mind_each_round_does_not_move_the_deadline() -> None:
    """c offers others each second, all as good as the listed ones: ten of them go at the first deadline."""
    stage = y4()
    (notice,) = notices(stage.run_to(5))
    for second in range(6, 15):
        at = (second - 6) * 3
        answer = PreemptionNoticeAnswer(notice.notice, True, tuple(numbered("c", 40)[at : at + 3]))
        stage.apply(AnswerCallbacks("rm", notices=(answer,)))
        assert killed(stage.run_to(second)) == []
    assert len(killed(stage.run_to(15))) == 10


def test_what_is_released_and_made_again_is_no_credit() -> None:
    """c lets ten others go and has ten new ones running at once: it holds as much as before, and the ten listed go."""
    stage = y4()
    (notice,) = notices(stage.run_to(5))
    others = [key for key in numbered("c", 40) if key not in notice.at_risk][:10]
    for at, key in enumerate(others):
        stage.release("app-c", key)
        stage.submit("app-c", [f"new{at}"], ONE, node_id="n")
    assert killed(stage.run_to(14)) == []
    assert sorted(killed(stage.run_to(15))) == sorted(notice.at_risk)


# What asks nothing of the monitor.


def test_an_ask_that_may_not_preempt_asks_nothing_of_the_monitor() -> None:
    stage = big_among_small(**AT_ONCE)
    stage.submit("app-b", numbered("b", 50), ONE, allow_preempt_other=False)
    assert play(stage, 60) == []
    stage.submit("app-b", numbered("willing", 5), ONE)
    assert len(play(stage, 120)) == 5


def test_priority_counts_per_amount() -> None:
    """One ask of priority 100 and 49 of priority 50 among tasks of 50 and 60: the latter lose one for the first."""
    stage = Stage(guaranteed(a=50, b=50), **AT_ONCE)
    stage.node("n", {"f": 100})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    stage.submit("app-a", numbered("a", 100), ONE, node_id="n", priority=60)
    stage.submit("app-b", ["urgent"], ONE, priority=100)
    stage.submit("app-b", numbered("b", 49), ONE, priority=50)
    assert len(play(stage, 200)) == 1


def test_with_the_monitor_on_no_ask_with_a_kept_node_preempts() -> None:
    """A node is kept for b's ask because of its age; the ask still waits for notice and deadline like all."""
    stage = big_among_small(interval_ms=60_000)
    stage.submit("app-b", ["big"], {"f": 8})
    ask = stage.state.requests["big"]
    reservations.reserve_node(stage.state, ask, stage.state.nodes["n0"], START_NS, by_age=True)
    effects = stage.run_to(59)
    assert killed(effects) == []
    assert {e.kind for e in effects if isinstance(e, PreemptionDecided)} <= {"monitor"}


# What applications answer is used.


def test_work_that_has_just_saved_itself_is_cheaper() -> None:
    """The oldest task saved its work a second ago; of the others the youngest would go."""
    stage = y4()
    (notice,) = notices(stage.run_to(5))
    saved = "c000"
    assert saved not in notice.at_risk
    answer = PreemptionNoticeAnswer(notice.notice, checkpoints=((saved, START_NS + 4 * 10**9),))
    stage.apply(AnswerCallbacks("rm", notices=(answer,)))
    stage.release("app-a", *numbered("ask", 10))
    stage.run_to(10)
    stage.submit("app-a", ["again"], ONE)
    effects = stage.run_to(15)
    assert decided(effects, Outcome.NOTIFIED) == {"c": [saved]}
    assert placed(effects) == []


def test_whose_application_is_prepared_goes_first_where_fewer_are_needed() -> None:
    """Half of the demand goes away: of ten at risk those five go whose work was saved, and explain names one."""
    stage = y4()
    (notice,) = notices(stage.run_to(5))
    saved = notice.at_risk[5:]
    checkpoints = tuple((key, START_NS + 5 * 10**9) for key in saved)
    stage.apply(AnswerCallbacks("rm", notices=(PreemptionNoticeAnswer(notice.notice, True, (), checkpoints),)))
    stage.release("app-a", *numbered("ask", 5))
    effects = stage.run_to(10)
    assert withdrawn(effects) == list(notice.at_risk[:5])
    report = read(stage.engine, "[rm]default", START_NS + 10 * 10**9).explain(Named("ask005"))
    assert isinstance(report, AskReport)
    assert report.preemption is not None
    assert "its application prepares for it, its work was saved 10 s before then" in report.preemption.detail
    assert sorted(killed(stage.run_to(15))) == sorted(saved)


def test_nobody_is_told_to_leave_where_a_milder_class_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner that begins with the tasks that opted out is stopped before notice is given."""
    sound = VictimChoice.choose_victims

    def begin_with_last(self: VictimChoice, want: Any, node: Any, candidates: Any, whom: Any, **rest: Any) -> Any:
        return sound(self, want, node, list(candidates)[::-1], whom, **rest)

    monkeypatch.setattr(VictimChoice, "choose_victims", begin_with_last)
    stage = Stage(guaranteed(a=0, b=3), **AT_ONCE)
    stage.attach()
    stage.node("n", {"f": 4})
    for name in "ab":
        stage.application(f"app-{name}", name)
    stage.submit("app-a", ["a0"], {"f": 2}, node_id="n", allow_preempt_self=False)
    stage.submit("app-a", ["a1", "a2"], ONE, node_id="n")
    stage.submit("app-b", ["b"], {"f": 3})
    with pytest.raises(AssertionError, match="LAW_BROKEN"):
        stage.run_to(5)
    assert not stage.state.notices.entries


@pytest.mark.parametrize("originator", [False, True])
def test_a_walk_that_a_guarantee_stops_begins_again(originator: bool) -> None:
    """J-Y52: a is guaranteed 1 and runs 1, newer, and 4; an ask of 4 takes the 4 instead of waiting for ever."""
    stage = Stage(guaranteed(a=1, b=4), originator_reserve=0, **AT_ONCE)
    stage.node("n", {"f": 5})
    for name in "ab":
        stage.application(f"app-{name}", name)
    stage.submit("app-a", ["four"], {"f": 4}, node_id="n", originator=originator)
    stage.submit("app-a", ["one"], ONE, node_id="n", originator=originator)
    stage.submit("app-b", ["b"], {"f": 4})
    assert killed(stage.run_to(30)) == ["four"]


def test_whom_a_later_walk_keeps_stands_in_front_with_another() -> None:
    """J-Y54: a may lose 5 of its 6; the plain walk keeps three, and the walk with three in front keeps two."""
    stage = Stage(guaranteed(a=1, b=5), **AT_ONCE)
    stage.node("n", {"f": 6})
    for name in "ab":
        stage.application(f"app-{name}", name)
    for size, name in ((3, "three"), (2, "two"), (1, "one")):
        stage.submit("app-a", [name], {"f": size}, node_id="n")
    stage.submit("app-b", ["b"], {"f": 5})
    assert sorted(killed(stage.run_to(30))) == ["three", "two"]


def test_no_more_than_two_stand_in_front_of_a_walk() -> None:
    """J-Y53: three leaves may lose 4 each, and each runs 1, newer, and 4; no walk ends with the three of 4."""
    stage = Stage(guaranteed(u=1, v=1, w=1, b=12), **AT_ONCE)
    stage.node("n", {"f": 15})
    for name in "uvwb":
        stage.application(f"app-{name}", name)
    for name in "uvw":
        stage.submit(f"app-{name}", [f"four-{name}"], {"f": 4}, node_id="n")
        stage.submit(f"app-{name}", [f"one-{name}"], ONE, node_id="n")
    stage.submit("app-b", ["b"], {"f": 12})
    assert killed(stage.run_to(30)) == []


def test_the_same_places_are_planned_round_after_round() -> None:
    """Asks of several sizes: whom the first round told goes at the deadline, and nobody is told in between."""
    stage = big_among_small(**AT_ONCE)
    for at, size in enumerate((8, 3, 1, 5, 2, 7)):
        stage.submit("app-b", [f"b{at}"], {"f": size})
    first = decided(stage.run_to(5), Outcome.NOTIFIED)["a"]
    assert len(first) == 8 + 3 + 1 + 5 + 2 + 7
    assert not decided(stage.run_to(14), Outcome.NOTIFIED)
    assert sorted(killed(stage.run_to(15))) == sorted(first)


def test_victims_that_do_not_leave_are_reported_and_another_place_is_found() -> None:
    """K14 as in the other kinds: after five minutes the ask is planned for on another node."""
    stage = big_among_small(**AT_ONCE)
    stage.submit("app-b", ["b0"], {"f": 2})
    first = killed(stage.run_to(15))
    assert len(first) == 2
    effects = stage.run_to(400)
    assert decided(effects, Outcome.VICTIM_STUCK)["a"] == first
    again = killed(effects)
    assert len(again) == 2
    assert {int(key[1:]) % 10 for key in again} != {int(key[1:]) % 10 for key in first}
    assert len(stage.state.stuck) == 2
