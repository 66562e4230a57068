"""The engine against the second implementation of the rules of preemption, and that implementation against the cases.

For many more clusters, and for one example of each rule that breaks: ``python -m tests.properties.preemption_rules``.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.examples import mark_rest_long
from tests.oracles.rules import guarantee, lowered_max, monitor, required_node
from tests.oracles.rules.arithmetic import admits, fits
from tests.oracles.rules.world import Books, Node, Queue, Task, ancestors
from tests.preemption_notation import Case, QueueCase, TaskCase, parse
from tests.properties.preemption_rules import Figures
from tests.properties.rules_worlds import random_world, written
from tests.scenarios.stage import Stage

CASES = Path(__file__).parents[1] / "scenarios" / "preemption"
SEED = 1
TREES = 500
BATCH = 100


@pytest.mark.parametrize("first", mark_rest_long(range(SEED, SEED + TREES, BATCH)))
def test_no_rule_is_broken_in_random_clusters(first: int) -> None:
    """No law broken, nobody needless, no lawful plan missed, nobody starved, and it goes quiet."""
    figures = Figures()
    for seed in range(first, first + BATCH):
        figures.take_in(seed)
    assert not figures.broken, f"\n{figures}\nsee python -m tests.properties.preemption_rules --world SEED"


@pytest.mark.parametrize("first", mark_rest_long(range(1, 401, 100)))
def test_the_rules_themselves_come_to_rest(first: int) -> None:
    """Whoever plans by the rules alone comes to an end, though every victim comes back and may preempt.

    Takes any lawful plan, not the best one, so that no choice of a planner is what keeps the cluster quiet.
    """
    for seed in range(first, first + 100):
        world = random_world(seed)
        books = Books({q.path: q for q in world.queues}, {n.name: n for n in world.nodes}, strict=world.strict)
        books.running = {task.key: (task, node) for task, node in world.running}
        books.asks = {ask.key: ask for ask in world.asks if not ask.required_node}
        decisions = 0
        while plan_or_place(books, random.Random(seed)):
            decisions += 1
            assert decisions < 300, f"seed {seed}"


def plan_or_place(books: Books, rng: random.Random) -> bool:
    """One ask gets room that is there, or room that victims leave at once and ask for again. Whether one did."""
    waiting = sorted(books.asks.values(), key=lambda ask: (-ask.priority, rng.random()))
    for ask in waiting:
        node = next(
            (name for name in books.nodes if guarantee.is_usable(books, ask, name) and room(books, ask, name)), ""
        )
        plan = (node, ()) if node else guarantee.lawful_plan(books, ask, reading="beside claims")
        if plan is None:
            continue
        where, victims = plan
        del books.asks[ask.key]
        for victim, _ in victims:
            del books.running[victim.key]
            assert not guarantee.takes_back(books, ask, where, victims, victim)
            again = replace(victim, key=f"{victim.key}+", may_preempt=True)
            books.asks[again.key] = again
        books.running[ask.key] = (ask, where)
        return True
    return False


def room(books: Books, ask: Task, node: str) -> bool:
    return admits(books, ask, books.used) and fits(ask.amounts, lambda t: books.free(node, t))


@pytest.mark.parametrize("seed", range(1, 20))
def test_a_written_cluster_is_a_scenario(seed: int) -> None:
    """What is printed of a cluster is understood by the language of scenarios, and means the same cluster."""
    world = random_world(seed)
    played = Stage()
    played.play([line for line in written(world).splitlines() if not line.startswith("#")])
    state = played.state
    assert state.queues.keys() == {queue.path for queue in world.queues}
    assert state.requests.keys() >= {task.key for task, _ in world.running} | {ask.key for ask in world.asks}


def configured(case: Case) -> dict[str, Queue]:
    """The queues of *case* by path, those included that are only above or below others."""
    known = {"root": QueueCase("root")} | {queue.path: queue for queue in case.queues}
    tasks = [task.queue for task in (*case.running, *(step.ask for step in case.steps))]
    for path in [path for path in (*known, *tasks) if path != "root"]:
        for above in ancestors(path):
            known.setdefault(above, QueueCase(above))
    found = {}
    for path, queue in known.items():
        whole = path if path == "root" else f"root.{path}"
        found[whole] = Queue(
            whole,
            {t: amount for t, amount in queue.guaranteed.items() if amount},
            queue.maximum,
            preemption=queue.preemption_policy or "",
            offset=queue.priority_offset,
            priority_fence=queue.priority_fence,
        )
    return found


def task_of(case: Case, task: TaskCase, *, node: str = "") -> Task:
    queue = next((queue for queue in case.queues if queue.path == task.queue), QueueCase(task.queue))
    return Task(
        task.key,
        queue.application or task.queue,
        f"root.{task.queue}",
        task.amounts,
        priority=task.priority,
        opted_out=task.opted_out,
        originator=task.originator,
        required_node=node if task.required_node else "",
        created=task.tick,
    )


def books_of(case: Case) -> Books:
    books = Books(configured(case), {name: Node(name, size) for name, size in case.nodes}, strict=case.strict)
    for task in case.running:
        books.running[task.key] = (task_of(case, task, node=task.node), task.node)
        if task.leaving:
            books.leaving[task.key] = ""
    return books


def worked(name: str) -> list[Case]:
    """The cases of a file that say all there is to know: without reservations, and without predicates of a shim."""
    cases = parse((CASES / name).read_text(encoding="utf-8"))
    return [c for c in cases if not c.reservations and not c.predicate and not any(step.call for step in c.steps)]


@pytest.mark.parametrize("case", worked("guarantee.cases"), ids=lambda case: case.name)
def test_worked_cases_of_guarantees_follow_the_rules(case: Case) -> None:
    """What a case expects is lawful, and where it expects nobody to go there is no lawful plan."""
    books = books_of(case)
    for number, step in enumerate(case.steps):
        ask = task_of(case, step.ask)
        books.asks[ask.key] = ask
        if not step.expected.node:
            assert guarantee.lawful_plan(books, ask, reading="beside all") is None
            del books.asks[ask.key]
            continue
        victims = [books.running[key] for key in sorted(step.expected.victims)]
        assert guarantee.complaints(books, ask, step.expected.node, victims, reading="beside all") == []
        worst = max(task.reluctance() for task, _ in victims)
        assert guarantee.lawful_plan(books, ask, reading="beside all", milder_than=worst) is None
        books.leaving |= dict.fromkeys(step.expected.victims, ask.key)
        books.claims[ask.key], books.holds[ask.key] = number, step.expected.node


@pytest.mark.parametrize("case", worked("required_node.cases"), ids=lambda case: case.name)
def test_worked_cases_of_required_nodes_follow_the_rules(case: Case) -> None:
    books = books_of(case)
    for step in case.steps:
        ask = task_of(case, step.ask, node="n1")
        books.asks[ask.key] = ask
        if not step.expected.node:
            assert required_node.lawful_plan(books, ask, reading="all") is None
            continue
        victims = [books.running[key] for key in sorted(step.expected.victims)]
        assert required_node.complaints(books, ask, victims, reading="all") == []
        worst = max(task.reluctance() for task, _ in victims)
        assert required_node.lawful_plan(books, ask, reading="all", milder_than=worst) is None


@pytest.mark.parametrize("case", worked("quota.cases"), ids=lambda case: case.name)
def test_worked_cases_of_lowered_maxima_follow_the_rules(case: Case) -> None:
    if case.enforced is None or case.enforced.miss or not case.enforced.outcome:
        pytest.skip("says nothing of victims, or lets some of the max be missed")
    books = books_of(case)
    victims = [books.running[key] for key in sorted(case.enforced.victims)]
    queue = f"root.{case.enforced.queue}" if case.enforced.queue != "root" else "root"
    assert lowered_max.complaints(books, queue, case.enforced.outcome, victims) == []
    assert lowered_max.better_choice(books, queue, victims) is None


def crowd(queue: str, count: int, node: str = "n1", **amounts: int) -> dict[str, tuple[Task, str]]:
    """*count* equal tasks of *queue* on *node*, by key."""
    name = queue.rpartition(".")[2]
    tasks = [Task(f"{name}{at}", name, queue, amounts or {"vcore": 1}) for at in range(count)]
    return {task.key: (task, node) for task in tasks}


def stage(*queues: Queue, running: dict[str, tuple[Task, str]], **capacity: int) -> Books:
    """Books with one node of *capacity*."""
    by_path = {queue.path: queue for queue in (Queue("root"), *queues)}
    return Books(by_path, {"n1": Node("n1", capacity)}, running=dict(running))


def ask_of(books: Books, queue: str, **amounts: int) -> Task:
    ask = Task("ask", "asking", queue, amounts)
    books.asks["ask"] = ask
    return ask


def first(books: Books, count: int) -> list[tuple[Task, str]]:
    return list(books.running.values())[:count]


def test_an_ask_below_an_overused_guarantee_is_refused() -> None:
    """One core below a parent that is far above its guarantee: nobody goes, let alone 901."""
    t, b, c = Queue("root.t", {"vcore": 10}, {"vcore": 100}), Queue("root.t.b", {"vcore": 5}), Queue("root.t.c")
    books = stage(t, b, c, running=crowd("root.t.b", 100), vcore=100)
    ask = ask_of(books, "root.t.c", vcore=1)
    assert guarantee.lawful_plan(books, ask, reading="beside claims") is None
    (said,) = guarantee.complaints(books, ask, "n1", first(books, 91), reading="beside claims")
    assert said.startswith("law 4")


def test_a_swap_at_exactly_the_guarantee_takes_what_is_asked_for() -> None:
    t, b, c = Queue("root.t", {"vcore": 10}), Queue("root.t.b", {"vcore": 5}), Queue("root.t.c")
    books = stage(t, b, c, running=crowd("root.t.b", 10), vcore=10)
    ask = ask_of(books, "root.t.c", vcore=1)
    assert guarantee.complaints(books, ask, "n1", first(books, 1), reading="beside claims") == []
    (said,) = guarantee.complaints(books, ask, "n1", first(books, 2), reading="beside claims")
    assert said.startswith("law 2")


def test_an_ask_enforces_nobodys_max() -> None:
    """A max was lowered to half of what runs: an ask of one core takes one core, and not half of the queue."""
    p, v, a = Queue("root.p", {}, {"vcore": 5}), Queue("root.p.v"), Queue("root.p.a", {"vcore": 3})
    books = stage(p, v, a, running=crowd("root.p.v", 10), vcore=10)
    ask = ask_of(books, "root.p.a", vcore=1)
    assert guarantee.complaints(books, ask, "n1", first(books, 1), reading="beside claims") == []
    (said,) = guarantee.complaints(books, ask, "n1", first(books, 6), reading="beside claims")
    assert said.startswith("needless")


def test_a_type_that_nobody_guarantees_costs_nobody() -> None:
    """1 vcore of a guarantee, and 6 memory besides: the victims for the memory alone stay."""
    books = stage(
        Queue("root.a", {"vcore": 5}), Queue("root.v"), running=crowd("root.v", 8, vcore=1, memory=1), vcore=8, memory=8
    )
    ask = ask_of(books, "root.a", vcore=1, memory=6)
    assert guarantee.lawful_plan(books, ask, reading="beside claims") is None
    (said,) = guarantee.complaints(books, ask, "n1", first(books, 6), reading="beside claims")
    assert said.startswith("unguaranteed type")


def test_room_that_others_wait_for_is_no_room() -> None:
    """Two asks on one node: what leaves for the first is not counted for the second, and what is over is."""
    books = stage(Queue("root.a", {"vcore": 5}), Queue("root.v"), running=crowd("root.v", 4, vcore=2), vcore=8)
    ask = ask_of(books, "root.a", vcore=2)
    books.asks["holder"] = Task("holder", "asking", "root.a", {"vcore": 1})
    books.claims["holder"], books.holds["holder"] = 1, "n1"
    books.leaving["v3"] = "holder"
    assert [need.amount for need in guarantee.node_needs(books, ask, "n1", reading="beside all")] == [1]
    assert not books.open("n1", "vcore", "ask")


def test_a_max_that_is_exceeded_is_not_fully_enforced() -> None:
    """A parent within its guarantee, and a child above its max: FULL would be a lie."""
    books = stage(
        Queue("root.p", {"vcore": 10}), Queue("root.p.c", {}, {"vcore": 5}), running=crowd("root.p.c", 8), vcore=10
    )
    (said,) = lowered_max.complaints(books, "root.p.c", "FULL", [])
    assert said.startswith("outcome")
    assert lowered_max.complaints(books, "root.p.c", "NONE", []) == []


def test_a_type_that_cannot_be_met_does_not_cost_victims_of_another() -> None:
    """Memory stays above its max whatever happens; one victim is enough for the cores, and four are not better."""
    queue = Queue("root.q", {"memory": 20}, {"vcore": 9, "memory": 1})
    running = crowd("root.q", 10) | {"m": (Task("m", "m", "root.q", {"memory": 20}), "n1")}
    books = stage(queue, running=running, vcore=10, memory=20)
    assert lowered_max.complaints(books, "root.q", "PARTIAL", first(books, 1)) == []
    assert all(
        said.startswith("needless") for said in lowered_max.complaints(books, "root.q", "PARTIAL", first(books, 4))
    )
    assert len(lowered_max.complaints(books, "root.q", "PARTIAL", first(books, 4))) == 4


def test_the_monitor_takes_no_more_than_an_ask_needs() -> None:
    """One ask of 5 lets 5 go, not 10, and an ask larger than what can be freed lets nobody go."""
    books = stage(Queue("root.a", {"vcore": 10}), Queue("root.v"), running=crowd("root.v", 10), vcore=10)
    ask = ask_of(books, "root.a", vcore=5)
    assert monitor.complaints(books, first(books, 5), [ask]) == []
    assert [said.partition(":")[0] for said in monitor.complaints(books, first(books, 10), [ask])] == ["needless"]
    ask = ask_of(books, "root.a", vcore=11)
    assert {said.partition(":")[0] for said in monitor.complaints(books, first(books, 10), [ask])} == {"futile"}


def test_the_monitor_takes_the_mildest_that_would_do() -> None:
    """An opted-out task stays where ordinary ones of its leaf on the node do, but not where a guarantee keeps these."""
    books = stage(Queue("root.a", {"vcore": 10}), Queue("root.v"), running=crowd("root.v", 3), vcore=3)
    reluctant = replace(books.running["v0"][0], opted_out=True)
    books.running["v0"] = (reluctant, "n1")
    assert (
        monitor.milder_choice(books, first(books, 1), ask_of(books, "root.a", vcore=1))
        == list(books.running.values())[1:]
    )
    assert monitor.milder_choice(books, first(books, 3), ask_of(books, "root.a", vcore=3)) is None
    books.queues["root.v"] = Queue("root.v", {"vcore": 2})
    assert monitor.milder_choice(books, first(books, 1), ask_of(books, "root.a", vcore=1)) is None


def test_the_monitor_takes_for_those_alone_to_whom_it_gives_places() -> None:
    """Another ask that could use the room as well is no excuse for a victim too many."""
    books = stage(Queue("root.a", {"vcore": 10}), Queue("root.v"), running=crowd("root.v", 10), vcore=10)
    ask = ask_of(books, "root.a", vcore=1)
    other = books.asks["other"] = Task("other", "asking", "root.a", {"vcore": 1})
    assert monitor.complaints(books, first(books, 2), [ask, other]) == []
    assert [said.partition(":")[0] for said in monitor.complaints(books, first(books, 2), [ask])] == ["needless"]


def test_a_guarantee_is_shared_by_those_who_declare_nothing() -> None:
    """Each has what it uses and wants of the rest, and no more than an equal part while others want more."""
    p, x, y, z = Queue("root.p", {"vcore": 10}), Queue("root.p.x", {"vcore": 3}), Queue("root.p.y"), Queue("root.p.z")
    books = stage(p, x, y, z, running=crowd("root.p.z", 9), vcore=20)
    assert [monitor.due(books, queue.path, "vcore") for queue in (x, y, z)] == [3, 0, 7]
    ask_of(books, "root.p.y", vcore=2)
    assert [monitor.due(books, queue.path, "vcore") for queue in (x, y, z)] == [3, 2, 5]
    ask_of(books, "root.p.y", vcore=20)
    assert [monitor.due(books, queue.path, "vcore") for queue in (x, y, z)] == [3, 4, 3]


def test_a_parent_owes_its_part_on_top_of_what_its_children_declare() -> None:
    p, q = Queue("root.p", {"vcore": 10}), Queue("root.p.q")
    x, y = Queue("root.p.q.x", {"vcore": 3}), Queue("root.p.q.y")
    books = stage(p, q, x, y, running=crowd("root.p.q.x", 9), vcore=20)
    ask = ask_of(books, "root.p.q.y", vcore=2)
    assert monitor.due(books, "root.p.q", "vcore") == 10
    assert monitor.due(books, "root.p.q.y", "vcore") == 2
    assert monitor.is_starved(books, ask)


def test_what_is_held_by_age_is_no_room_for_whom_the_monitor_serves() -> None:
    """One of two cores is free and held for somebody else: whoever leaves makes room beside it, and one is enough."""
    books = stage(Queue("root.a", {"vcore": 4}), Queue("root.v"), running=crowd("root.v", 3), vcore=4)
    ask = ask_of(books, "root.a", vcore=1)
    assert [said.partition(":")[0] for said in monitor.complaints(books, first(books, 1), [ask])] == ["needless"]
    books.asks["aged"], books.holds["aged"] = Task("aged", "other", "root.v", {"vcore": 4}), "n1"
    assert monitor.complaints(books, first(books, 1), [ask]) == []
    assert [said.partition(":")[0] for said in monitor.complaints(books, first(books, 2), [ask])] == ["needless"]


def test_each_ask_swaps_for_itself_in_a_queue_above_its_max() -> None:
    """What somebody's victims leave over there is nobody's; two for one ask of 1 are too many all the same."""
    queues = Queue("root.p", {}, {"vcore": 4}), Queue("root.p.a", {"vcore": 2}), Queue("root.p.v")
    two, one = crowd("root.p.v", 1, vcore=2), crowd("root.p.v", 6)
    books = stage(*queues, running={"large": two["v0"], **one}, vcore=20)
    asks = [Task(f"a{at}", "asking", "root.p.a", {"vcore": 1}) for at in range(2)]
    books.asks = {ask.key: ask for ask in asks}
    assert monitor.complaints(books, first(books, 2), asks) == []
    assert [said.partition(":")[0] for said in monitor.complaints(books, first(books, 3), asks)] == ["needless"]
    assert [said.partition(":")[0] for said in monitor.complaints(books, first(books, 2), asks[:1])] == ["needless"]
