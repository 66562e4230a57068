"""The machine that does whatever a shim can do: Hypothesis drives it, a seed drives it, and it finds planted bugs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kornel.core.domain.commands import RegisterManager
from kornel.core.engine import lifecycle
from kornel.core.engine.gangs import pools
from kornel.core.engine.intake import allocation_intake, application_intake, node_intake, release_intake
from kornel.core.engine.scheduling import vetting
from kornel.core.model.allocations import Allocation, AskGroup, Reservation
from kornel.core.model.applications import Application
from kornel.core.model.claims import Claims
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.users import Account
from kornel.core.preemption import eviction, slices
from kornel.core.preemption.guarantee.attempts import gang_plans
from kornel.core.state.asks import moves, questions
from kornel.core.state.books import ledger
from kornel.core.state.waiting import admission, inquiries, places, waking
from tests.examples import mark_rest_long, scale_examples
from tests.properties.machine import driver, journal
from tests.properties.machine.cluster import VARIANTS, configuration
from tests.properties.machine.dice import Dice
from tests.properties.machine.registry import RULES, Rule
from tests.properties.machine.world import RM, World

NUMBERS: Final = st.lists(st.integers(0, 2**16 - 1), max_size=24)


class _Machine(RuleBasedStateMachine):
    """A world; the rules are added below, one method for each."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @initialize(variant=st.integers(0, VARIANTS - 1))
    def register(self, variant: int) -> None:
        self.world.send(RegisterManager(RM, configuration(variant)))

    def teardown(self) -> None:
        if self.world.contract.rm_id:
            self.world.remove_everything()


def _method(chosen: Rule) -> object:
    def perform(self: _Machine, numbers: list[int]) -> None:
        chosen.perform(self.world, Dice.of(numbers))

    perform.__name__ = chosen.name
    return rule(numbers=NUMBERS)(perform)


Machine = type("Machine", (_Machine,), {chosen.name: _method(chosen) for chosen in RULES})
TestAnySequence = Machine.TestCase  # type: ignore[attr-defined]
TestAnySequence.settings = settings(
    max_examples=scale_examples(80), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.long
def test_ten_thousand_steps() -> None:
    """Long random sequences break nothing, and nearly everything that can happen does."""
    tally = driver.run(10_000, seed=83, longest=1_000)
    assert tally.steps == 10_000
    assert tally.calls > tally.steps * 0.9
    happened = {
        "Allocated": 800, "Released:STOPPED_BY_RM": 600, "Released:PREEMPTED_BY_SCHEDULER": 20, "Released:TIMEOUT": 30,
        "Released:PLACEHOLDER_REPLACED": 10, "AskReleased": 1, "PreemptionDecided:TRIGGERED": 15,
        "PredicatesAsked": 200, "PreemptionPredicatesAsked": 5, "SchedulingFailed": 100,
        "ApplicationUpdated:Accepted": 100, "ApplicationUpdated:Completed": 20, "ApplicationUpdated:Expired": 20,
        "ApplicationUpdated:Failing": 2, "ApplicationUpdated:Resuming": 1,
        "ApplicationAccepted": 100, "NodeAccepted": 50, "refused:CommandRefused": 10, "refused:ConfigError": 2,
        "NodeRejected:node-exists": 10, "ApplicationRejected:application-exists": 10,
        "ApplicationRejected:no-queue": 5, "AllocationRejected:key-in-use": 3,
        "AllocationRejected:application-not-found": 50, "AllocationRejected:placeholder-without-group": 5,
        "AllocationRejected:max-allocations": 20,
    }  # fmt: skip
    rare = {kind: tally.seen.get(kind, 0) for kind, least in happened.items() if tally.seen.get(kind, 0) < least}
    assert not rare


def test_equal_seeds_do_the_same() -> None:
    """A run is a function of its seed: the calls and the answers are the same again."""
    runs: list[tuple[list[journal.Call], list[str] | None]] = []
    for _ in range(2):
        world = World()
        world.effects = []
        driver.episode("same", 300, world)
        runs.append((world.calls, world.effects))
    assert runs[0] == runs[1]


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    """A recorded run survives the file, and fails or passes as before."""
    world = driver.episode("journal", 300)
    path = tmp_path / "calls.jsonl"
    journal.write(path, world.calls, {"seed": "journal"})
    calls = journal.read(path)
    assert calls == world.calls
    assert driver.replay(calls) is None


def test_nothing_is_kept_of_what_was_removed() -> None:
    """Once all is removed and its timers have passed, no object of it is reachable from the engine."""
    kinds = (Allocation, Application, AskGroup, Node, Reservation)
    gc.collect()
    before = [sum(isinstance(thing, kind) for thing in gc.get_objects()) for kind in kinds]
    world = driver.episode("memory", 600)
    gc.collect()
    after = [sum(isinstance(thing, kind) for thing in gc.get_objects()) for kind in kinds]
    assert world.engine.rm_id == RM
    assert dict(zip(kinds, after, strict=True)) == dict(zip(kinds, before, strict=True))


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _deaf_to_draining(original: Callable[..., None]) -> Callable[..., None]:
    def handle(state: Any, spec: Any, now_ns: int) -> None:
        original(state, spec._replace(action=2) if spec.action == 3 else spec, now_ns)

    return handle


def _deaf_to_refusals(original: Callable[..., None]) -> Callable[..., None]:
    return lambda state, ask, nodes, _refused, now_ns: original(state, ask, nodes, {}, now_ns)


def _twice(original: Callable[..., None]) -> Callable[..., None]:
    def fire(state: Any, *arguments: Any, **named: Any) -> None:
        before = len(state.effects)
        original(state, *arguments, **named)
        state.effects.extend(state.effects[before:])

    return fire


def _give_up_at_once(_: Callable[..., None]) -> Callable[..., None]:
    def watch(state: Any, application: Any, _hold: Any, now_ns: int) -> None:
        gang_plans.call_off(state, application, "nothing has changed", now_ns)

    return watch


def _has_room_beside_nobody(_: Callable[..., bool]) -> Callable[..., bool]:
    return lambda node, pairs: all(node.free[t] >= amount for t, amount in pairs)


def _never_done(_: Callable[..., bool]) -> Callable[..., bool]:
    return lambda *_: True


PLANTED: Final[dict[str, tuple[object, str, Callable[[Any], Any]]]] = {
    "gangs are torn": (application_intake, "bind_members", lambda _: _nothing),
    "a plan of a gang is given up": (gang_plans, "_watch_hold", _give_up_at_once),
    "members are placed one by one": (places, "forms_unit", lambda _: lambda *_: False),
    "held room is open to all": (Node, "has_room", _has_room_beside_nobody),
    "room is claimed twice": (Claims, "room_beside", lambda _: lambda _claims, free, _without=None: free),
    "a full queue admits": (Queue, "admits", lambda _: lambda *_: True),
    "a victim that left stays booked": (ledger, "unbook_victim", lambda _: _nothing),
    "a freed node wakes nobody": (waking, "wake_for_node", lambda _: _nothing),
    "what was gained is told to nobody": (moves, "wake_waiting", lambda _: _nothing),
    "a node does not drain": (node_intake, "handle", _deaf_to_draining),
    "an operator's drain is forgotten": (node_intake, "_takes_work", lambda _: lambda node: not node.drained_by_shim),
    "a state is told twice": (lifecycle, "fire_event", _twice),
    "a withdrawn ask keeps its claim": (eviction, "forget_ask", lambda _: _nothing),
    "a release is not confirmed": (release_intake, "_is_echoed", lambda _: lambda _: False),
    "a full node takes more": (Node, "has_room", lambda _: Node.could_hold),
    "a timeout withdraws an ask": (release_intake, "_ends_ask", lambda _: lambda *_: True),
    "a reserved ask still waits": (places, "retract_group", lambda _: _nothing),
    "nobody is asked": (inquiries, "ask_predicates", lambda _: _nothing),
    "a refused node will do": (vetting, "_apply_answer", _deaf_to_refusals),
    "an answer that fits is lost": (questions, "wait_again", lambda _: _nothing),
    "a limit of a user admits": (Account, "admits", lambda _: lambda *_: True),
    "any number of applications runs": (Queue, "open", lambda _: lambda *_: True),
    "an ask does not wait for a placeholder": (pools, "_wait_for_placeholder", lambda _: _nothing),
    "a slot that frees is offered to nobody": (admission, "offer_slots", lambda _: _nothing),
    "a kind is busy for ever": (slices, "any_busy", _never_done),
    "one ask too few": (allocation_intake, "islice", lambda _: lambda found, most: islice(found, most - 1)),
}


RARE: Final = (
    "a plan of a gang is given up",
    "an operator's drain is forgotten",
    "any number of applications runs",
    "a slot that frees is offered to nobody",
    "held room is open to all",
    "a victim that left stays booked",
    "a node does not drain",
    "a withdrawn ask keeps its claim",
    "room is claimed twice",
    "a full queue admits",
    "a full node takes more",
)
"""Those that the machine looks for in long runs only, because it takes more than half a second to find each."""
SEED: Final = 3
SEEDS: Final = {"gangs are torn": 8}
"""By bug, the seed that finds it sooner."""


def test_a_planted_bug_has_its_place() -> None:
    """A function that was renamed takes its planted bug along: some of them run in the long part only."""
    assert all(callable(mutate(getattr(owner, name))) for owner, name, mutate in PLANTED.values())


@pytest.fixture
def planted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    owner, name, mutate = PLANTED[request.param]
    monkeypatch.setattr(owner, name, mutate(getattr(owner, name)))
    return str(request.param)


def find_bug(planted: str) -> driver.StepFailed:
    """Returns how the machine fails of a bug."""
    with pytest.raises(driver.StepFailed) as caught:
        driver.run(40_000, SEEDS.get(planted, SEED), longest=400)
    return caught.value


@pytest.mark.parametrize("planted", [bug for bug in PLANTED if bug not in RARE], indirect=True)
def test_a_planted_bug_is_found(planted: str) -> None:
    find_bug(planted)


@pytest.mark.parametrize("planted", mark_rest_long(reversed(PLANTED)), indirect=True)
def test_a_planted_bug_is_kept(planted: str, tmp_path: Path) -> None:
    """Most of the calls are left out, and what is left fails in the same way from the file."""
    failed, path = find_bug(planted), tmp_path / "failure.jsonl"
    kept = driver.keep(failed, SEED, path, seconds=0.5)
    error = driver.replay(journal.read(path))
    assert type(error) is type(failed.error), planted
    assert len(kept) < len(failed.calls)
