"""Too many resource types, on every path by which one may come: who is refused, who is not, and what is given back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

import pytest

from kornel.core.config.loader import load
from kornel.core.config.text.problems import ConfigError
from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationRef,
    CommandRefused,
    NodeAction,
    UpdateApplications,
    UpdateConfiguration,
)
from kornel.core.domain.effects import Allocated, AllocationRejected, ApplicationAccepted, NodeAccepted, NodeRejected
from kornel.core.domain.reasons import Ignored
from kornel.core.domain.resources import MAX_TYPES, Resources
from kornel.core.engine.configuration import offered_types
from kornel.core.engine.configuration.configure import CLEANER_INTERVAL_NS
from kornel.core.model.shapes import ASKED_TYPES, OTHER_TYPES, ResourceTypes, Shape
from kornel.core.state.books import audit
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.reader import Reader
from tests.driven_core import DrivenCore

PARTITION: Final = "[rm]default"
SECOND: Final = 10**9


class Core(DrivenCore):
    """An engine with one node of 100 cores and an application *a*, at second 1000."""

    def __init__(self, config: str = "") -> None:
        super().__init__(config or configuration(), now_ns=1_000 * SECOND)
        self.ignored: list[tuple[Ignored, str]] = []
        self.engine.observe_ignored(lambda cause, item: self.ignored.append((cause, item)))
        self.add_node("n1", vcore=100)
        self.add_application("a")

    def add_application(self, name: str, **tags: str) -> object:
        (effect,) = self.application(name, user="bob", tags=(("namespace", name), *tags.items()))
        return effect

    def add_node(self, name: str, action: NodeAction = NodeAction.CREATE, **amounts: int) -> object:
        effects = self.node(name, amounts or None, action)
        return effects[0] if effects else None

    def ask(self, key: str, node: str = "", owner: str = "a", **amounts: int) -> list[AllocationRejected]:
        """The refusals that come of it."""
        effects = self.submit(owner, [key], amounts, node_id=node)
        return [effect for effect in effects if isinstance(effect, AllocationRejected)]

    def pass_s(self, seconds: int = 1) -> dict[str, str]:
        """Who was placed where within *seconds*."""
        placed: dict[str, str] = {}
        for _ in range(seconds):
            self.now_ns += SECOND
            placed |= {e.spec.key: e.node_id for e in self.cycle() if isinstance(e, Allocated)}
        assert audit.check(self.state) == []
        return placed

    def fill(self, left: int = 0) -> None:
        """Have a closed node offer so many types that only *left* more can be."""
        count = MAX_TYPES - self.state.types.offered - left
        assert isinstance(self.add_node("full", NodeAction.CREATE_DRAIN, **made_up(count, first=10_000)), NodeAccepted)


def configuration(**maximum: int) -> str:
    return json.dumps(
        {
            "partitions": [
                {
                    "name": "default",
                    "placementrules": [{"name": "tag", "value": "namespace", "create": True}],
                    "queues": [
                        {
                            "name": "root",
                            "submitacl": "*",
                            "queues": [{"name": "limited", "resources": {"max": maximum}}] if maximum else [],
                        }
                    ],
                }
            ]
        }
    )


def made_up(count: int, first: int = 0) -> dict[str, int]:
    return {f"example.com/made-up-{number}": 1 for number in range(first, first + count)}


def test_made_up_types_of_asks_lock_nobody_out() -> None:
    """The case of issue 13, 11: 1,024 made-up types wait in one user's asks, and a node with a new type joins."""
    core = Core()
    for number, name in enumerate(made_up(MAX_TYPES)):
        assert core.ask(f"hostile-{number}", vcore=1, **{name: 1}) == []
    assert core.ask("waits", vcore=1, gpu=1) == []
    assert core.pass_s() == {}
    assert len(core.state.types.names) <= ASKED_TYPES + 5
    assert isinstance(core.add_node("n2", vcore=4, gpu=8), NodeAccepted)
    assert core.ask("comes", vcore=1, gpu=1) == []
    assert core.pass_s() == {"waits": "n2", "comes": "n2"}
    update = UpdateConfiguration("rm", configuration(gpu=4, tpu=1))
    assert core.apply(update) == []
    assert core.ask("late", owner="a", vcore=1, gpu=7) == []
    assert core.pass_s() == {}


def test_a_made_up_type_is_named_as_long_as_there_are_few() -> None:
    """Pending amounts show the type of somebody who waits for a node that is to come; all beyond are shown as one."""
    core = Core()
    core.ask("a1", gpu=3)
    core.pass_s()
    resources = core.state.types.to_resources
    assert dict(resources(core.state.root.pending)) == {"gpu": 3}
    core.ask("a2", **made_up(ASKED_TYPES))
    shown = dict(resources(core.state.root.pending))
    assert shown["gpu"] == 3
    assert shown[OTHER_TYPES] == 1
    core.release("a", "a2")
    core.ask("a3", tpu=1)
    assert dict(resources(core.state.root.pending)) == {"gpu": 3, "tpu": 1}


def test_who_waits_for_a_type_without_a_name_is_served_when_it_comes() -> None:
    """By a node, an update of one, and with the amount that was asked for."""
    core = Core()
    core.ask("hostile", **made_up(ASKED_TYPES))
    core.ask("a1", vcore=1, gpu=3)
    core.ask("a2", vcore=1, tpu=3)
    core.pass_s()
    core.add_node("n2", vcore=10, gpu=2)
    assert core.pass_s() == {}
    core.add_node("n3", vcore=10, gpu=3)
    assert core.pass_s() == {"a1": "n3"}
    core.add_node("n1", NodeAction.UPDATE, vcore=10, tpu=4)
    assert core.pass_s() == {"a2": "n1"}
    assert dict(core.state.types.to_resources(core.state.root.used)) == {"vcore": 2, "gpu": 3, "tpu": 3}


def test_a_max_counts_for_who_waited_for_its_type_before() -> None:
    core = Core()
    core.add_application("limited")
    core.ask("hostile", **made_up(ASKED_TYPES))
    core.ask("a1", owner="limited", vcore=1, gpu=3)
    core.pass_s()
    core.apply(UpdateConfiguration("rm", configuration(gpu=2)))
    core.add_node("n2", vcore=10, gpu=8)
    assert core.pass_s() == {}
    core.apply(UpdateConfiguration("rm", configuration(gpu=4)))
    assert core.pass_s() == {"a1": "n2"}


def test_a_node_too_many_is_refused_alone() -> None:
    core = Core()
    core.fill(left=1)
    before = list(core.state.types.names)
    refused = core.add_node("n2", vcore=1, new=1, newer=1)
    assert isinstance(refused, NodeRejected)
    assert refused.reason == (
        "invalid-resource: node n2: more than 1024 resource types in one partition: 2 are new, 1 may be"
    )
    assert core.state.types.names == before
    assert isinstance(core.add_node("n3", vcore=1, new=1), NodeAccepted)
    assert core.add_node("n3", NodeAction.UPDATE, vcore=1, newer=1) is None
    assert core.ignored == [(Ignored.INVALID_RESOURCE, "n3")]
    assert dict(core.state.types.to_resources(core.state.nodes["n3"].capacity)) == {"vcore": 1, "new": 1}


def test_a_refused_node_leaves_no_types() -> None:
    """What runs on it names too many: neither its capacity nor its work is known afterwards."""
    core = Core()
    core.fill(left=2)
    running = (AllocationSpec("r1", "a", PARTITION, Resources(made_up(3)), node_id="n2"),)
    (refused,) = core.node("n2", {"vcore": 1, "new": 1}, existing=running)
    assert isinstance(refused, NodeRejected)
    assert refused.reason.startswith("invalid-resource: what runs on n2: more than 1024")
    assert audit.check(core.state) == []
    assert isinstance(core.add_node("n3", one=1, two=1), NodeAccepted)


def test_what_runs_may_not_name_too_many() -> None:
    """Reported work, load of others, and a new size of what runs; an ask may name what it likes."""
    core = Core()
    core.ask("runs", vcore=1)
    core.pass_s()
    core.fill(left=1)
    for key, node in (("reported", "n1"), ("runs", "")):
        (refused,) = core.ask(key, node, vcore=1, **made_up(2))
        assert refused.reason.startswith(f"invalid-resource: {key}: more than 1024 resource types")
    (refused,) = core.submit("", ["foreign"], made_up(2), node_id="n1", foreign=True)
    assert isinstance(refused, AllocationRejected)
    assert core.ask("ask", vcore=1, **made_up(2)) == []
    assert core.pass_s() == {}
    assert core.ask("runs", vcore=1, **made_up(1)) == []
    core.pass_s()


def test_tags_of_applications_leave_half_of_the_types_to_others() -> None:
    core = Core()
    quotas = json.dumps({"resources": {name: {"value": 1} for name in made_up(500)}})
    more = json.dumps({"resources": {name: {"value": 1} for name in made_up(500, first=500)}})
    assert isinstance(core.add_application("b", **{"namespace.resourcequota": quotas}), ApplicationAccepted)
    assert isinstance(core.add_application("c", **{"namespace.resourcequota": more}), ApplicationAccepted)
    assert len(core.state.queues["root.b"].max) == 500
    assert not core.state.queues["root.c"].max
    assert core.state.types.offered <= MAX_TYPES // 2
    assert isinstance(core.add_node("n2", **made_up(500, first=2_000)), NodeAccepted)


def test_types_are_given_back_with_the_queue_that_named_them() -> None:
    core = Core()
    quotas = json.dumps({"resources": {name: {"value": 1} for name in made_up(500)}})
    core.add_application("b", **{"namespace.resourcequota": quotas})
    assert core.state.types.offered > 500
    core.apply(UpdateApplications("rm", remove=(ApplicationRef("b", PARTITION),)))
    core.add_node("n2", **made_up(20, first=1_000))
    core.pass_s(2 * CLEANER_INTERVAL_NS // SECOND)
    assert "root.b" not in core.state.queues
    assert core.state.types.offered < 50
    assert isinstance(core.add_node("n3", **made_up(900, first=2_000)), NodeAccepted)


def test_types_of_nodes_and_work_that_are_gone_are_given_back() -> None:
    """Sixty generations of nodes with fifty types each, and work that ran there: the last is accepted, too."""
    core = Core()
    for generation in range(60):
        amounts = made_up(50, first=50 * generation)
        name = next(iter(amounts))
        assert isinstance(core.add_node(f"g{generation}", vcore=10, **amounts), NodeAccepted), generation
        core.add_application(f"app-{generation}")
        core.ask(f"t{generation}", owner=f"app-{generation}", vcore=1, **{name: 1})
        assert core.pass_s() == {f"t{generation}": f"g{generation}"}
        gone = ApplicationRef(f"app-{generation}", PARTITION)
        core.apply(UpdateApplications("rm", remove=(gone,)))
        core.add_node(f"g{generation}", NodeAction.DECOMISSION)
    assert len(core.state.types.names) <= MAX_TYPES + ASKED_TYPES + 1
    assert dict(core.state.types.to_resources(core.state.root.used)) == {}


def test_a_configuration_with_too_many_types_is_refused_with_its_place() -> None:
    names = made_up(MAX_TYPES)
    with pytest.raises(ConfigError) as caught:
        Core(configuration(**names))
    (problem,) = caught.value.problems
    assert "is one resource type too many" in problem.message
    assert problem.expected == "at most 1024 in one partition"
    assert problem.line == 1
    assert problem.column > 10_000


def test_a_configuration_that_does_not_fit_beside_the_nodes_changes_nothing() -> None:
    core = Core()
    core.fill(left=3)
    before = list(core.state.types.names)
    update = UpdateConfiguration("rm", configuration(**made_up(4)))
    (refused,) = Reader(core.engine).configuration_preview().impact_of(load(update.config)).refused
    assert refused == "partition default: more than 1024 resource types in one partition: 4 are new, 3 may be"
    with pytest.raises(CommandRefused, match="partition default: more than 1024 resource types"):
        core.apply(update)
    assert core.state.types.names == before
    assert "root.limited" not in core.state.queues
    core.apply(UpdateConfiguration("rm", configuration(**made_up(3))))
    assert len(core.state.queues["root.limited"].max) == 3


def test_a_configuration_that_replaces_types_is_refused_with_the_way_to_apply_it() -> None:
    """First without the new ones: what nothing names any more makes room at the next tidying."""
    core = Core()
    old, new = made_up(5), made_up(6, first=500_000)
    core.apply(UpdateConfiguration("rm", configuration(**old)))
    core.fill(left=2)
    update = UpdateConfiguration("rm", configuration(**new))
    advice = (
        "it leaves out 5 that the configuration in force names: apply it without the new ones first,"
        " and with them 10 s later, when what nothing uses has been forgotten"
    )
    (refused,) = Reader(core.engine).configuration_preview().impact_of(load(update.config)).refused
    assert refused.endswith(f"6 are new, 2 may be; {advice}")
    with pytest.raises(CommandRefused, match=re.escape(advice)):
        core.apply(update)
    core.apply(UpdateConfiguration("rm", configuration()))
    with pytest.raises(CommandRefused, match=r"6 are new, 2 may be$"):
        core.apply(update)
    core.pass_s(CLEANER_INTERVAL_NS // SECOND)
    core.apply(update)
    assert len(core.state.queues["root.limited"].max) == 6


def test_budgets_of_the_governor_count_too() -> None:
    """They were looked up when somebody was preempted first, which is too late to refuse them."""
    core = Core()
    core.fill(left=1)
    document = json.loads(configuration())
    document["partitions"][0]["preemption"] = {"governor": {"cluster": {"lost": dict.fromkeys(made_up(2), "5")}}}
    with pytest.raises(CommandRefused, match="2 are new, 1 may be"):
        core.apply(UpdateConfiguration("rm", json.dumps(document)))


def test_an_ask_names_only_so_many_types() -> None:
    """No node could ever have them all."""
    core = Core()
    assert not core.ask("most", **made_up(MAX_TYPES))
    (refused,) = core.ask("more", **made_up(MAX_TYPES + 1))
    assert refused.reason == "invalid-resource: more: more than 1024 resource types"
    asked = Resources(dict.fromkeys(made_up(1_025), 1))
    effects = core.application("gang", tags=(("namespace", "a"),), placeholder_ask=asked)
    assert "placeholderAsk has more than 1024 resource types" in str(effects)
    assert list(core.state.requests) == ["most"]


def test_long_demands_are_forgotten_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they name counts, not only how many there are."""
    monkeypatch.setattr(offered_types, "BYTES_KEPT", 200_000)
    core = Core()
    core.ask("stays", **dict.fromkeys(made_up(200), 1))
    for number in range(20):
        core.ask("changes", **dict.fromkeys(made_up(100), number + 1))
        assert len(core.state.types.known_shapes()) <= 10
    core.pass_s(2 * CLEANER_INTERVAL_NS // SECOND)
    assert len(core.state.types.known_shapes()) <= 10
    core.add_node("n2", **dict.fromkeys(made_up(200), 20))
    assert core.pass_s() == {"stays": "n2"}


def test_demands_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offered_types, "DEMANDS_KEPT", 50)
    core = Core()
    core.ask("stays", gpu=1)
    for number in range(1, 200):
        core.ask("changes", memory=number)
    core.pass_s(2 * CLEANER_INTERVAL_NS // SECOND)
    assert len(core.state.types.known_shapes()) < 10
    core.add_node("n2", gpu=1, memory=500)
    assert core.pass_s() == {"stays": "n2", "changes": "n2"}


def characters_kept(state: PartitionState) -> int:
    """The letters of all types in all demands that anything of *state* still refers to."""
    found = dict.fromkeys((*state.types.known_shapes().values(), *state.too_large, *state.no_room))
    found |= dict.fromkeys(shape for held in state.holders.values() for shape in held)
    return sum(len(name) for shape in found for name in shape.resources)


def long_names(count: int, first: int = 0) -> dict[str, int]:
    """Types with names of a thousand letters."""
    return {f"{number:07}-{'x' * 992}": 1 for number in range(first, first + count)}


@pytest.mark.parametrize("offered", [False, True])
def test_demands_of_withdrawn_asks_are_bounded_by_their_size(*, offered: bool) -> None:
    """Forty demands with a million letters each, in no time: whether their types are made up for each of them, or are
    those of a node and only the amounts differ."""
    core = Core()
    if offered:
        assert isinstance(core.add_node("n2", vcore=10, **long_names(1_000)), NodeAccepted)
    core.ask("stays", vcore=1, gpu=1)
    for number in range(40):
        names = long_names(1_000, first=0 if offered else 1_000 * number)
        core.ask("changes", vcore=1, **dict.fromkeys(names, 2 + number))
        core.engine.cycle(core.now_ns, 1_000)
        core.release("a", "changes")
        assert characters_kept(core.state) <= 16_000_000, number
    core.add_node("n3", vcore=1, gpu=1)
    assert core.pass_s() == {"stays": "n3"}


def test_large_demands_do_not_stay_after_the_next_tidying() -> None:
    """They wait together, so that none may be forgotten, and are then withdrawn. Nobody sends anything after that."""
    core = Core()
    for number in range(20):
        core.ask(f"k{number}", vcore=1, **long_names(1_000, first=1_000 * number))
    core.engine.cycle(core.now_ns, 1_000)
    assert characters_kept(core.state) > 20_000_000
    for number in range(20):
        core.release("a", f"k{number}")
    core.pass_s(2 * CLEANER_INTERVAL_NS // SECOND)
    assert characters_kept(core.state) <= 16_000_000


def test_forgetting_looks_at_few_asks_for_each_that_was_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """3,000 wait, and none of their demands can be forgotten, however many others come and go."""
    monkeypatch.setattr(offered_types, "BYTES_KEPT", 10_000)
    looked_at: list[int] = []
    keep_only = ResourceTypes.keep_only

    def note_pass(types: ResourceTypes, shapes: Iterable[Shape]) -> None:
        looked_at.append(len(core.state.requests) + len(types.known_shapes()))
        keep_only(types, shapes)

    monkeypatch.setattr(ResourceTypes, "keep_only", note_pass)
    core = Core()
    for number in range(3_000):
        core.ask(f"stays-{number}", memory=1 + number)
    before = sum(looked_at)
    assert before <= 40 * 3_000
    for number in range(1_000):
        core.ask("changes", memory=1, disk=1 + number)
        core.release("a", "changes")
    assert len(looked_at) > 1
    assert sum(looked_at) - before <= 40 * 1_000
    assert len(core.state.types.known_shapes()) >= 3_000


@pytest.mark.parametrize("vcore", [1, 10**6])
def test_what_was_found_out_about_demands_is_forgotten_with_them(monkeypatch: pytest.MonkeyPatch, vcore: int) -> None:
    """Whether a node could hold them or none, as long as nobody asks for them any more."""
    monkeypatch.setattr(offered_types, "DEMANDS_KEPT", 5)
    core = Core()
    core.add_node("n1", NodeAction.UPDATE, vcore=200)
    core.ask("full", vcore=200)
    core.pass_s()
    core.ask("stays", vcore=150)
    for number in range(1, 30):
        core.ask(f"made-up-{number}", vcore=vcore + number, **{f"example.com/{number}": 1})
        core.ask(f"plain-{number}", vcore=vcore + number)
        core.pass_s()
        core.release("a", f"made-up-{number}")
        core.release("a", f"plain-{number}")
    core.pass_s(2 * CLEANER_INTERVAL_NS // SECOND)
    state = core.state
    assert len(state.types.known_shapes()) <= 5
    assert len(state.too_large) + sum(map(len, state.holders.values())) + len(state.no_room) <= 2 * 5
    core.release("a", "full")
    assert core.pass_s() == {"stays": "n1"}
