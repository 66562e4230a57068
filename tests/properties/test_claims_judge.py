"""The judge of claims on histories made by hand, what breaks the rule and what keeps it; how rich worlds are; 500 small
worlds that the core plays by the rule; and faults planted in the core, each of which is found.

More worlds: ``python -m tests.properties.claims``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kornel.core.engine.engine import Engine
from kornel.core.engine.scheduling import loans
from kornel.core.model import queues as model_queues
from kornel.core.model.allocations import Allocation
from kornel.core.model.claims import Claims
from kornel.core.model.users import Account
from kornel.core.policies import claim_order
from kornel.core.preemption import eviction
from kornel.core.state.asks import reservations
from kornel.core.state.waiting import waking
from tests.examples import mark_rest_long
from tests.oracles.claims import built, checks
from tests.oracles.claims.checks import Finding
from tests.oracles.claims.scene import Application, Claim, Node, Queue, Scene, Task, Waiter
from tests.oracles.plain_limits import WrittenLimit
from tests.properties.claims.course import Course
from tests.properties.claims.random_worlds import WITH_RACKS, random_world, small_worlds

NOW = 1_000


def q(path: str, guaranteed: int = 0, maximum: int = 0, **rest: Any) -> Queue:
    """Returns a queue with amounts of one type; 0: none is declared."""
    return Queue(path, {"v": guaranteed} if guaranteed else {}, {"v": maximum} if maximum else {}, **rest)


def k(key: str, application: str, size: int = 1, priority: int = 0, age: int = 10, **rest: Any) -> Task:
    """Returns a task that came *age* seconds ago."""
    return Task(key, application, {"v": size}, priority, NOW - age, **rest)


def user(most: int) -> tuple[WrittenLimit, ...]:
    """Returns a limit of each user."""
    return (WrittenLimit(("*",), (), {"v": most}),)


def scene(
    queues: Iterable[Queue],
    nodes: Iterable[Node | int],
    runs: Iterable[tuple[Task, str]] = (),
    waits: Iterable[Task] = (),
    claims: Iterable[Claim] = (),
    leaving: dict[str, str] | None = None,
    minimum: int = 0,
    new: Iterable[str] = (),
) -> Scene:
    """Returns a scene. The application ``a1`` is in the queue ``root.a``; those not in *new* run."""
    tasks = [*waits, *(task for task, _ in runs)]
    names = sorted({task.application for task in tasks})
    least = {"g": minimum} if minimum else {}
    given = [node if isinstance(node, Node) else Node(f"n{at}", {"v": node}) for at, node in enumerate(nodes)]
    return Scene(
        {queue.path: queue for queue in (Queue("root"), *queues)},
        {name: Application(name, f"root.{name[0]}", minimums=least) for name in names},
        {node.name: node for node in given},
        {task.key: (task, node) for task, node in runs},
        leaving or {},
        {task.key: task for task in waits},
        tuple(claims),
        {name: "Accepted" if name in new else "Running" for name in names},
        NOW,
    )


def quiet(check: Callable[[Scene], Iterable[Finding]]) -> Callable[[Scene], list[Finding]]:
    """Returns a judge of a quiet point."""
    return lambda at: list(check(at))


def placed(check: Callable[..., Iterable[Finding]], **places: str) -> Callable[[Scene], list[Finding]]:
    """Returns a judge of a placement on *places*, of the tasks as one waiter."""

    def judge(at: Scene) -> list[Finding]:
        whole = Waiter(tuple(at.waiting[key] for key in places))
        third = {checks.find_limit_passed: ({},), checks.find_spent_limit: (at,), checks.find_split_gang: ()}
        return list(check(at, whole, *third.get(check, (places,))))

    return judge


def told(*victims: str) -> Callable[[Scene], list[Finding]]:
    """Returns a judge of a plan that takes *victims* for the first waiter."""
    return lambda at: list(checks.find_vain_victims(at, at.waiters()[0], victims))


A, B, AB = q("root.a"), q("root.b"), (q("root.a"), q("root.b"))
FULL = [(k(f"r{at}", "b1"), "n0") for at in range(4)]
HELD = Claim("low", firm=False, node="n0")
FIRM = Claim("low", firm=True, node="n0")
GANG = [k(f"g{at}", "a1", group="g") for at in range(4)]
PLACED_GANG = {"g0": "n0", "g1": "n0", "g2": "n0", "g3": "n0"}
OWED = (q("root.a", 8), B)

ROW_2 = scene(OWED, [16], [(k("r0", "a1"), "n0")], [k("low", "b1", 16), k("web", "a1")], [HELD])
ROW_3 = scene(AB, [Node("n0", {"v": 64}, {"v": 3})], (), [k("low", "a1", 62)], [HELD])
ROW_4 = scene((A,), [5], [(k("r0", "a3", 4), "n0")], [k("high", "a1", 1, 1000), k("low", "a2")])
BOUND = scene(
    (A,), [5], [(k("r0", "a3", 4), "n0")], [k("high", "a1", 1, 1000), k("low", "a2", required_node="n0")], [HELD]
)
ROW_5 = scene((A,), [4], [(k("r0", "a3"), "n0")], [k("low", "a2", 4), k("high", "a1", 1, 1000)], [HELD])
ROW_5_TURNED = replace(ROW_5, waiting={"low": k("low", "a2", 4), "high": k("high", "a1")})
ROW_6 = scene(OWED, [4], FULL[:3], [k("low", "a2"), k("high", "a1", 1, 1000)], [FIRM])
ROW_7 = scene((q("root.a", applications=1),), [4], [(k("r0", "a1"), "n0")], [k("k0", "a2")], new=["a1", "a2"])
ROW_8 = scene((A,), [4], (), GANG, minimum=4)
ROW_9 = scene(AB, [4], FULL, GANG, minimum=4)
ROW_17 = scene((A,), [Node("n0", {"v": 4}, drained=True)], (), [k("low", "a1")], [HELD])
ROW_23 = scene((q("root.a", 0, 2),), [9], [(k("r0", "a2"), "n0")], [k("high", "a1", 2, 1000), k("low", "a2")])
SHARED = scene(
    (q("root", limits=user(2)), A, B), [9], [(k("r0", "a2"), "n0")], [k("high", "a1", 2), k("low", "b1", age=1)]
)
ROW_25 = scene((q("root.a", 30), B), [100], [(k("r0", "b1", 22), "n0")], [k("k0", "a1"), k("k1", "b1")])
LIMITED = (q("root.a", 8, limits=user(2)), B)
ROW_1 = scene(LIMITED, [4], [*FULL[:3], (k("r9", "a1"), "n0")], [k("k0", "a1"), k("low", "a2")], [FIRM])
ROW_15 = scene(
    (q("root.a", 8, stateaware=True), B), [4], FULL, [k("k0", "a2"), k("low", "a1")], [FIRM], new=["a1", "a2"]
)
REPAIRS = replace(scene((A,), [2], [(GANG[0], "n0")], [GANG[1], k("k0", "a2")], minimum=2), short={("a1", "g"): 1})
EQUAL = scene((A,), [1], (), [k("old", "a1", age=9), k("young", "a1", age=5)])
SAVINGS = scene((q("root.a", limits=user(2)),), [2, 2], (), [k("low", "a1", 2), k("k1", "a2")], [HELD])
NEWCOMERS = scene(
    (q("root.a", applications=1),), [2, 2], (), [k("low", "a1", 2), k("k1", "a2", 2)],
    [HELD, Claim("k1", firm=False, node="n1")], new=["a1", "a2"],
)  # fmt: skip
MEMBER = scene(
    AB, [1, 1], [(GANG[0], "n1")], [GANG[1], k("high", "b1")], [Claim("g1", firm=False, node="n0")], {"g0": ""}
)
REFUSED = scene((A,), [2], (), [k("low", "a1", refused=frozenset({"n0"}))], [HELD])
LINE = scene(AB, [4], FULL, [k("low", "a1", 4)])
BOUND_LINE = scene(
    AB, [4, 2], [*FULL, (k("r4", "b1", 2), "n1")], [k("high", "a1", 4, 1000), k("low", "b1", 2)],
    [Claim("low", firm=False, node="n1")],
)  # fmt: skip
RACKS = [Node("n0", {"v": 2}, rack="r0"), Node("n1", {"v": 2}, rack="r1")]
ROOMY = [Node("n0", {"v": 4}, rack="r0"), RACKS[1]]
ONE_RACK = {node.name: replace(node, rack="r0") for node in ROOMY}


def m(key: str, size: int = 1, **rest: Any) -> Task:
    """Returns a task whose group requires a rack."""
    return k(key, "a1", size, in_rack=True, **rest)


FOLLOWS = scene((A,), RACKS, [(m("r0"), "n1")], [m("low")])
FIRST = scene((A,), RACKS, (), [m("low", 2), m("k1", 2)])
RACK_GANG = scene((A,), RACKS, (), [m("g0", group="g"), m("g1", group="g")], minimum=2)
RACK_LINE = scene(AB, ROOMY, [*FULL, (k("r4", "b1", 2), "n1")], [m("low", 4)])
RACK_ROOM = scene((A,), RACKS, (), [m("low"), m("k1")])
APART = [Claim(f"g{at}", firm=False, node=f"n{at}") for at in range(2)]

TABLE = [
    ("row 2", quiet(checks.find_idle_room), ROW_2, "3 no loan by guarantee", replace(ROW_2, claims=(FIRM,))),
    ("row 2, owed too", quiet(checks.find_idle_room), ROW_2, "3 no loan by guarantee", replace(
        ROW_2, queues={**ROW_2.queues, "root.b": q("root.b", 16)})),
    ("row 3", quiet(checks.find_hopeless_claims), ROW_3, "2 claim that no end helps", replace(ROW_3, claims=())),
    ("row 4", placed(checks.find_passed_over, low="n0"), ROW_4, "4 priority", replace(
        ROW_4, waiting={"low": k("low", "a2"), "high": k("high", "a1")})),
    ("row 4, priorities off", placed(checks.find_passed_over, low="n0"), ROW_4, "4 priority", replace(
        ROW_4, queues={**ROW_4.queues, "root.a": q("root.a", by_priority=False)})),
    ("ranks on a node", placed(checks.find_passed_over, low="n0"), BOUND, "4 priority", replace(
        BOUND, claims=(*BOUND.claims, Claim("high", firm=False, node="n0")))),
    ("row 5", quiet(checks.find_idle_room), ROW_5, "3 no loan by priority", replace(
        ROW_5, waiting={"low": k("low", "a2", 4), "high": k("high", "a1")})),
    ("no claim", quiet(checks.find_idle_room), replace(ROW_5, claims=()), "3 idle room", replace(
        ROW_5, nodes={"n0": Node("n0", {"v": 1})})),
    ("kept room", placed(checks.find_kept_room, high="n0"), ROW_5_TURNED, "3 kept room taken", ROW_5),
    ("loan", placed(checks.find_kept_room, high="n0"), replace(
        ROW_5, nodes={"n0": Node("n0", {"v": 4}), "n1": Node("n1", {"v": 1})}), "3 needless loan", ROW_5),
    ("loan of a member", placed(checks.find_kept_room, high="n0"), MEMBER, "3 kept room taken", replace(
        MEMBER, waiting={"g1": GANG[1], "high": k("high", "b1", priority=1)})),
    ("row 6", placed(checks.find_not_inherited, low="n0"), ROW_6, "4 firm claim not passed", replace(
        ROW_6, leaving={"r0": "low"}, running={"r0": (k("r0", "a1"), "n0")})),
    ("row 6, a part", placed(checks.find_not_inherited, low="n0"), replace(
        ROW_6, waiting={"low": k("low", "a2", 2), "high": k("high", "a1", 1, 1000)}), "4 firm claim not passed",
        replace(ROW_6, waiting={"low": k("low", "a2", 2), "high": k("high", "a1", 3, 1000)})),
    ("row 7", placed(checks.find_limit_passed, k0="n0"), ROW_7, "2 maxapplications", replace(ROW_7, running={})),
    ("row 8", placed(checks.find_split_gang, g0="n0"), ROW_8, "6 part of a gang", replace(
        ROW_8, running={"g3": (GANG[3], "n0")})),
    ("row 8, some", placed(checks.find_split_gang, g0="n0", g1="n0"), replace(
        ROW_8, waiting={"g0": GANG[0], "g1": k("g1", "a1", group="g", age=5)}), "6 gang not gathered", replace(
        ROW_8, waiting={"g0": GANG[0], "g1": GANG[1]})),
    ("row 9", quiet(checks.find_idle_line), ROW_9, "5 no room saved for a gang", replace(
        ROW_9, claims=tuple(Claim(task.key, firm=False, node="n0") for task in GANG))),
    ("line", quiet(checks.find_idle_line), LINE, "5 no room saved", replace(LINE, nodes={"n0": Node("n0", {"v": 3})})),
    ("behind the line", quiet(checks.find_idle_line), BOUND_LINE, "5 behind the line", replace(
        BOUND_LINE, claims=(Claim("high", firm=False, node="n0"),))),
    ("row 17, claim", quiet(checks.find_hopeless_claims), ROW_17, "5 claim on a drained node", replace(
        ROW_17, waiting={"low": k("low", "a1", required_node="n0")})),
    ("row 17, placed", placed(checks.find_closed_node, low="n0"), ROW_17, "5 drained", replace(
        ROW_17, waiting={"low": k("low", "a1", required_node="n0")})),
    ("refused", quiet(checks.find_hopeless_claims), REFUSED, "2 claim on a refused node", replace(REFUSED, claims=())),
    ("account", quiet(checks.find_hopeless_claims), replace(
        SAVINGS, claims=(HELD, Claim("k1", firm=False, node="n1"))), "2 claims above a limit", SAVINGS),
    ("account, applications", quiet(checks.find_hopeless_claims), NEWCOMERS, "2 claims above maxapplications", replace(
        NEWCOMERS, running={"r0": (k("r0", "a1"), "n1"), "r1": (k("r1", "a2"), "n1")})),
    ("below a limit", quiet(checks.find_hopeless_claims), replace(
        SAVINGS, running={"r0": (k("r0", "a2"), "n1")}), "5 claim below a limit", SAVINGS),
    ("row 23", placed(checks.find_spent_limit, low="n0"), ROW_23, "3 limit not saved", replace(
        ROW_23, waiting={"low": k("low", "a2"), "high": k("high", "a1", 3, 1000)})),
    ("row 23, young", placed(checks.find_spent_limit, low="n0"), ROW_23, "3 limit not saved", replace(
        ROW_23, waiting={"low": k("low", "a2"), "high": k("high", "a1", 2, 1000, age=1)})),
    ("row 23, share", placed(checks.find_spent_limit, low="n0"), replace(
        SHARED, running={"r0": (k("r0", "b1"), "n0")}), "3 limit not saved", SHARED),
    ("row 25", placed(checks.find_queue_passed, k1="n0"), ROW_25, "4 order of queues", replace(
        ROW_25, running={"r0": (k("r0", "a1", 30), "n0")})),
    ("row 1", told("r0"), ROW_1, "2 victims against a limit", replace(ROW_1, claims=())),
    ("row 1, max", told("r0"), replace(ROW_1, queues={**ROW_1.queues, "root.a": q("root.a", 0, 2)}),
        "2 victims against a max", replace(ROW_1, queues={**ROW_1.queues, "root.a": q("root.a", 0, 3)})),
    ("row 1, above the max", told("r0"), replace(
        ROW_1, queues={**ROW_1.queues, "root": q("root"), "root.a": q("root.a", 0, 1)}, claims=()),
        "2 victims against a max", replace(
        ROW_1, queues={**ROW_1.queues, "root.a": q("root.a", 0, 1)}, claims=(), running={
            **ROW_1.running, "r0": (k("r0", "a2"), "n0")})),
    ("row 15", told("r0"), ROW_15, "2 victims against a limit", replace(ROW_15, claims=())),
    ("firm in a limit", placed(checks.find_limit_passed, k0="n0"), ROW_1, "2 limit with firm claims", replace(
        ROW_1, claims=())),
    ("used of a limit", placed(checks.find_limit_passed, k0="n0"), replace(
        ROW_1, running={"r9": (k("r9", "a1", 2), "n0")}), "2 limit", replace(ROW_1, claims=())),
    ("repair", placed(checks.find_passed_over, k0="n0"), REPAIRS, "7 repair", replace(REPAIRS, short={})),
    ("equal asks", placed(checks.find_equal_passed, young="n0"), EQUAL, "4 equal asks", replace(
        EQUAL, waiting={"old": k("old", "a1", age=9, priority=-1), "young": k("young", "a1", age=5)})),
    ("rack of others", placed(checks.find_wrong_rack, low="n0"), FOLLOWS, "T in another rack", replace(
        FOLLOWS, running={"r0": (m("r0"), "n0")})),
    ("rack for all", placed(checks.find_wrong_rack, low="n0"), FIRST, "T in a full rack", replace(
        FIRST, nodes=ONE_RACK)),
    ("rack of a gang", placed(checks.find_wrong_rack, g0="n0", g1="n1"), RACK_GANG, "T in several racks", replace(
        RACK_GANG, nodes=ONE_RACK)),
    ("rack of victims", lambda at: list(checks.find_astray_victims(at, at.waiters()[0], "n0")), FOLLOWS,
        "2 victims in a wrong rack", replace(FOLLOWS, running={"r0": (m("r0"), "n0")})),
    ("rack of victims for all", lambda at: list(checks.find_astray_victims(at, at.waiters()[0], "n0")), replace(
        FIRST, running={"r0": (k("r0", "a2"), "n0")}), "2 victims in a wrong rack", replace(
        FIRST, running={"r0": (k("r0", "a2"), "n0")}, nodes=ONE_RACK)),
    ("claim in a rack", quiet(checks.find_hopeless_claims), replace(FOLLOWS, claims=(HELD,)), "2 claim in another rack",
        replace(FOLLOWS, claims=(HELD,), nodes=ONE_RACK)),
    ("claim in a small rack", quiet(checks.find_hopeless_claims), replace(FIRST, claims=(HELD,)),
        "2 claim in a small rack", replace(FIRST, claims=(HELD,), nodes=ONE_RACK)),
    ("claim in no rack", quiet(checks.find_hopeless_claims), replace(
        FOLLOWS, claims=(HELD,), running={}, nodes={"n0": Node("n0", {"v": 4})}), "2 claim in no rack", replace(
        FOLLOWS, claims=(HELD,), running={})),
    ("places in racks", quiet(checks.find_hopeless_claims), replace(RACK_GANG, claims=APART),
        "2 places in several racks", replace(RACK_GANG, claims=APART, nodes=ONE_RACK)),
    ("line in a rack", quiet(checks.find_idle_line), RACK_LINE, "5 no room saved", replace(
        RACK_LINE, nodes={node.name: replace(node, rack="") for node in ROOMY})),
    ("room in a rack", quiet(checks.find_idle_room), RACK_ROOM, "3 idle room", replace(
        RACK_ROOM, nodes={node.name: replace(node, capacity={"v": 1}) for node in RACKS})),
    ("unrest", lambda at: list(checks.find_unrest(at, NOW - 500)), LINE, "5 never quiet", replace(LINE, now=NOW - 490)),
]  # fmt: skip


@pytest.mark.parametrize(("judge", "broken", "kind", "kept"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_a_history_that_breaks_the_rule_is_found_and_one_that_keeps_it_is_not(
    judge: Callable[[Scene], list[Finding]], broken: Scene, kind: str, kept: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All statements are judged, those too that the core does not keep yet."""
    for name in [name for name in vars(built) if name.isupper()]:
        monkeypatch.setattr(built, name, True)
    assert {finding.kind for finding in judge(broken)} == {kind}
    assert not judge(kept)


SITUATIONS = {
    20: (
        "drain with a claim", "lose with a claim", "foreign with a claim", "stateaware binds", "a gang has lost members"
    ),
    30: ("victims of kind guarantee", "victims of kind required-node"),
    40: ("a firm claim", "several saved claims", "max of a queue binds", "limit of user binds", "limit of group binds"),
    50: ("a saved claim", "a loan is possible", "maxapplications binds", "the shim refuses an ask", "a required node"),
    60: ("a gang waits as a unit", "a gang comes again"),
}  # fmt: skip
"""By the least number of worlds of 600, what must be there in as many."""
IN_RACKS = {
    15: ("move with a claim",), 60: ("a rack is required", "a unit requires a rack", "a saved claim in a rack"),
}  # fmt: skip
"""The same for worlds with racks."""


@pytest.mark.long
@pytest.mark.parametrize("first", [0, WITH_RACKS])
def test_worlds_are_rich(first: int) -> None:
    """Rules meet in enough of 600 worlds that a fault in one of them shows."""
    wanted = {what: least for least, whats in (IN_RACKS if first else SITUATIONS).items() for what in whats}
    seen: Counter[str] = Counter()
    for number in range(first, first + 600):
        seen += Course(random_world(number)).play().seen
        if all(seen[what] >= least for what, least in wanted.items()):
            return
    pytest.fail(f"too seldom: { {what: seen[what] for what, least in wanted.items() if seen[what] < least} }")


def test_a_world_depends_on_its_number_alone() -> None:
    assert random_world(7) == random_world(7) != random_world(8)
    assert Course(random_world(7)).play().findings == Course(random_world(7)).play().findings


PARTS = 20
PART = 25
NUMBERS = [*range(1700), *range(WITH_RACKS, WITH_RACKS + 800)]


@pytest.mark.parametrize("part", mark_rest_long(range(PARTS)))
def test_small_worlds_are_played_by_the_rule(part: int) -> None:
    worlds = small_worlds(PART, NUMBERS[part::PARTS])
    found = [finding for world in worlds for finding in Course(world).play().findings]
    assert not found, "\n".join(map(str, found))


COSTLY = [
    100291, 3721, 5471, 824, 1147, 1371, 50678, 5544, 899, 563, 102074, 3814, 7077, 4079, 3634, 103987, 0, 100020
]  # fmt: skip
"""Worlds that take a quarter of a second and more."""


@pytest.mark.parametrize(
    "number",
    [
        129, 538, 582, 1005, 1084, 1171, 1229, 1311, 1384, 1498, 1695, 1745, 2010, 3087, 3097, 3449, 3676, 3819, 5532,
        5638, 30262, 30381, 30518, 30915, 31485, 6136, 7048, 7227, 100076, 100166, 100303, 100602, 100769, 101743,
        104695, 105858, 106270, 106319, 106466, 120177, 80336, 80317,
        *mark_rest_long(COSTLY, keep=0),
    ],
)  # fmt: skip
def test_worlds_in_which_core_or_judge_once_erred_are_played_by_the_rule(number: int) -> None:
    assert not Course(random_world(number)).play().findings


def lend_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(waking, "count_lent", lambda *_: 0)
    patch.setattr(loans, "count_lent", lambda *_: 0)


def lend_to_everybody(patch: pytest.MonkeyPatch) -> None:
    for module in (waking, loans):
        patch.setattr(module, "list_lent", lambda _ask, saved, _dues: list(saved))
    patch.setattr(claim_order.Dues, "list_lenders", lambda _self, _ask, saved: saved)


def ignore_saved_room(patch: pytest.MonkeyPatch) -> None:
    sound = Claims.open_room

    def open_all(self: Claims, free: Any, _lent: Any = ()) -> Any:
        return sound(self, free, [claim for claim in self.reservations.values() if claim.comes_last])

    patch.setattr(Claims, "open_room", open_all)


def end_no_claim(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loans, "review_savings", lambda *_: None)
    patch.setattr(eviction, "review_claims", lambda *_: None)


def leave_firm_out_of_limits(patch: pytest.MonkeyPatch) -> None:
    for kind in (Account, model_queues.Queue):
        patch.setattr(kind, "admits", kind.has_room)


def leave_firm_out_of_applications(patch: pytest.MonkeyPatch) -> None:
    nothing = SimpleNamespace(note_allocating=lambda *_: None, note_allocating_no_more=lambda *_: None)
    patch.setattr(reservations, "admission", nothing)
    patch.setattr(Account, "count_applications", lambda account: len(account.holders))


def ignore_saved_below_limits(patch: pytest.MonkeyPatch) -> None:
    for module in (claim_order, waking):
        patch.setattr(module, "is_let_through", lambda *_: True)


FAULTS = {
    lend_nothing: 19, lend_to_everybody: 25, ignore_saved_room: 19, end_no_claim: 25, leave_firm_out_of_limits: 101,
    leave_firm_out_of_applications: 49, ignore_saved_below_limits: 1,
}  # fmt: skip
"""Faults, each with the number of a world in which it shows."""


def play(number: int) -> set[str]:
    """Returns the kinds of what is found in the world of this number."""
    return {finding.kind for finding in Course(random_world(number)).play().findings}


@pytest.mark.parametrize("plant", FAULTS)
def test_a_planted_fault_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert play(FAULTS[plant])


def test_whoever_the_shim_is_asked_about_later_in_the_same_slice_was_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fault turns priorities round. With several decisions in a slice, the shim is asked about the more important
    one after the other one has its room."""
    cycle, importance = Engine.cycle, vars(Allocation)["turn_priority"].fget
    monkeypatch.setattr(Engine, "cycle", lambda engine, now, budget: cycle(engine, now, 50 * budget))
    monkeypatch.setattr(Allocation, "turn_priority", property(lambda ask: -importance(ask)))
    assert play(104) == {"4 priority"}


@pytest.mark.long
@pytest.mark.parametrize("plant", FAULTS)
def test_planted_faults_are_found_often(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    """Each shows in at least four of 120 worlds."""
    shown = 0
    for number in range(120):
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            found = play(number)
        shown += bool(found and found - play(number))
        if shown == 4:
            return
    pytest.fail(f"shown in {shown} worlds")
