"""Random worlds of gangs over gRPC and HTTP, judged from messages and answers by somebody who knew only the rules.

The judge is in :mod:`tests.e2e.gang_judge`. A failure prints the course of its world, which begins with its number;
``python -m tests.e2e.gang_judge NUMBER`` plays it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import pytest

from kornel.shim_client import Ask, Devices, Topology
from tests.e2e.gang_judge.course import run_worlds
from tests.e2e.gang_judge.exact_places import Room, count_places, find_places, fit_devices
from tests.e2e.gang_judge.exact_plans import find_entitlement, is_plan, rooms_of, within_maxima
from tests.e2e.gang_judge.message_judge import find_best, judge_devices, judge_wholeness
from tests.e2e.gang_judge.shim_books import Application, Books, Node, Queue, Task
from tests.examples import mark_rest_long

CORE: Final = 1_000
FIRST: Final = 20_261_124


@pytest.mark.parametrize("part", mark_rest_long(range(6)))
async def test_a_few_worlds_of_gangs_are_as_the_rules_say(part: int) -> None:
    await run_worlds(range(FIRST + 4 * part, FIRST + 4 * (part + 1)))


async def test_nobody_saves_a_device_of_which_a_part_is_kept_for_a_gang() -> None:
    """A gang whose victims had left was never placed: a task that wanted the whole device saved it, too."""
    await run_worlds([20_261_278])


async def test_room_that_victims_make_passes_to_a_more_important_member_of_a_gang() -> None:
    """The judge allows what spec B.7 says, also where the member prefers a domain."""
    await run_worlds([20_261_292])


async def test_a_task_waits_for_what_a_gang_of_its_leaf_saves_below_the_max() -> None:
    await run_worlds([5])


@pytest.mark.long
@pytest.mark.parametrize("part", range(6))
async def test_many_worlds_of_gangs_are_as_the_rules_say(part: int) -> None:
    """Besides, everything that is judged occurs."""
    checks = await run_worlds(range(FIRST + 100 + 50 * part, FIRST + 150 + 50 * part))
    for what in (
        "units that preempted", "plans compared with the exact ones", "preemptions that served", "rests judged",
        "waiting gangs judged", "explanations compared", "forecasts of placements", "forecasts of preemption",
        "forecasts of waiting",
    ):  # fmt: skip
        assert Counter(checks)[what] > 0, what


# The judge itself, by the examples of the documentation


def tasks(books: Books, name: str, queue: str, nodes: Mapping[str, int], cores: int = 1, **fields: object) -> None:
    """Runs so many tasks of the application *name* on *nodes*."""
    application = books.applications.setdefault(name, Application(name, queue))
    for node, count in nodes.items():
        for _ in range(count):
            key = f"{name}-{len(application.tasks)}"
            application.tasks[key] = Task(Ask(key, name, {"vcore": cores * CORE}, **fields), node)  # type: ignore[arg-type]


def gang(books: Books, queue: str, count: int, cores: int, **fields: object) -> Application:
    """Returns a Hard gang that waits."""
    application = Application("g", queue, {"vcore": count * cores * CORE}, hard=True, asked={"w": count})
    for at in range(count):
        ask = Ask(f"g-{at}", "g", {"vcore": cores * CORE}, task_group="w", placeholder=True, **fields)  # type: ignore[arg-type]
        application.tasks[ask.key] = Task(ask)
    books.applications["g"] = application
    return application


def cluster(guaranteed: Mapping[str, int], **nodes: int) -> Books:
    """Returns books of queues with *guaranteed* cores, and of nodes with so many."""
    queues = {name: Queue({"vcore": cores * CORE} if cores else {}) for name, cores in guaranteed.items()}
    return Books({name: Node(name, {"vcore": cores * CORE}) for name, cores in nodes.items()}, queues)


@pytest.mark.parametrize(("kept", "victims"), [(4, None), (0, 8)])
def test_the_judge_finds_a_plan_for_all_or_none(kept: int, victims: int | None) -> None:
    """Two members of four cores where eight tasks run; those that are guaranteed to their queue stay."""
    books = cluster({"root.a": 8, "root.v": kept}, n1=8)
    tasks(books, "v", "root.v", {"n1": 8})
    asking = gang(books, "root.a", 2, 4)
    best = find_best(books, asking, asking.list_unit(), {})
    assert (best and len(best.victims)) == victims


@pytest.mark.parametrize(
    ("guaranteed", "used", "refusal"),
    [(8, 0, ""), (8, 1, "NOT_UNDER_GUARANTEE"), (7, 0, "ASK_EXCEEDS_GUARANTEE"), (0, 0, "NO_GUARANTEE")],
)
def test_the_judge_knows_law_4_for_units(guaranteed: int, used: int, refusal: str) -> None:
    books = cluster({"root.a": guaranteed}, n1=20)
    tasks(books, "b", "root.a", {"n1": used})
    asking = gang(books, "root.a", 2, 4)
    assert find_entitlement(books, asking, asking.list_unit()).refusal == refusal


@pytest.mark.parametrize(("saved", "admitted"), [({}, True), ({"root.a": 1}, False), ({"root": 1}, True)])
def test_the_judge_counts_what_is_saved_below_a_max_as_used(saved: Mapping[str, int], *, admitted: bool) -> None:
    books = cluster({"root": 0, "root.a": 0}, n1=20)
    books.queues["root.a"].maximum = {"vcore": 4 * CORE}
    held = {queue: {"vcore": cores * CORE} for queue, cores in saved.items()}
    assert within_maxima(books, "root.a", {"vcore": 4 * CORE}, held) == admitted


def test_the_judge_takes_a_gang_as_a_whole_or_not_at_all() -> None:
    """M3: two cores are wanted, and a gang of four holds four. Other tasks go, even if more of them are needed."""
    books = cluster({"root.a": 2}, n1=4, n2=2)
    books.queues |= {"root.v": Queue()}
    tasks(books, "h", "root.v", {"n1": 4}, task_group="w")
    books.applications["h"].gang, books.applications["h"].hard = {"vcore": 4 * CORE}, True
    books.applications["h"].asked["w"] = 4
    asking = gang(books, "root.a", 1, 2)
    best = find_best(books, asking, asking.list_unit(), {})
    assert best is not None
    assert best.victims == ()
    tasks(books, "v", "root.v", {"n2": 2})
    best = find_best(books, asking, asking.list_unit(), {})
    assert best is not None
    assert sorted(task.key for task in best.victims) == ["v-0", "v-1"]
    for task in books.applications["v"].tasks.values():
        task.ask = Ask(task.key, "v", task.size, priority=1)
    best = find_best(books, asking, asking.list_unit(), {})
    assert best is not None
    assert best.gangs == {"h"}


def test_the_judge_lets_nobody_go_without_need() -> None:
    books = cluster({"root.a": 8, "root.v": 0}, n1=8)
    tasks(books, "v", "root.v", {"n1": 2}, cores=4)
    asking = gang(books, "root.a", 1, 4)
    entitlement = find_entitlement(books, asking, asking.list_unit())
    both = tuple(books.applications["v"].tasks.values())
    assert not is_plan(books, asking, asking.list_unit(), entitlement, both, {})
    assert is_plan(books, asking, asking.list_unit(), entitlement, both[:1], {})


def test_the_judge_keeps_a_group_in_its_domain() -> None:
    books = cluster({"root.a": 0}, n1=4, n2=4, n3=8)
    books.levels = ("rack",)
    for name, rack in (("n1", "r1"), ("n2", "r2"), ("n3", "r2")):
        books.nodes[name].domains = (rack,)
    members = gang(books, "root.a", 3, 4, topology=Topology(required="rack")).list_unit()
    assert sorted((find_places(books, members, rooms_of(books, {})) or {}).values()) == ["n2", "n3", "n3"]
    books.nodes["n3"].is_open = False
    assert find_places(books, members, rooms_of(books, {})) is None
    assert count_places(books, members, rooms_of(books, {})) == 1


@pytest.mark.parametrize(
    ("wishes", "fits"),
    [
        ([Devices(fraction=0.5), Devices(fraction=0.5), Devices(count=1)], True),
        ([Devices(fraction=0.6), Devices(fraction=0.6), Devices(count=1)], False),
        ([Devices(count=2, linked=True)], False),
        ([Devices(count=2)], True),
    ],
)
def test_the_judge_shares_devices_as_the_rules_say(wishes: list[Devices], *, fits: bool) -> None:
    assert fit_devices(wishes, Room({}, {"0": 1000, "1": 1000}, {"0": "a", "1": "b"})) == fits


def test_the_judge_sees_a_gang_in_part_and_a_device_held_twice() -> None:
    books = cluster({"root.a": 0}, n1=4)
    asking = gang(books, "root.a", 2, 1)
    asking.tasks["g-0"].node = "n1"
    assert judge_wholeness(asking) == ["g has 1 of 2 in w"]
    books.nodes["n1"].devices = {"0": "a"}
    for task in asking.tasks.values():
        task.ask = Ask(task.key, "g", task.size, task_group="w", devices=Devices(count=1))
        task.node, task.devices = "n1", ("0",)
    assert judge_wholeness(asking) == []
    assert judge_devices(books, "n1") == ["device 0 of n1 is held by ['g-0', 'g-1']"]
