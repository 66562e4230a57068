"""Random worlds, episodes of the random machine and scenarios, heard for what their engine decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kornel.core.domain import effects
from kornel.core.domain.effects import Effect, PreemptionDecided
from kornel.core.engine.engine import CycleResult, Engine
from kornel.core.state.options import EngineOptions
from tests.oracles.claims.scene import Scene
from tests.oracles.plain_waking import waking_everybody
from tests.properties.claims.course import Course
from tests.properties.claims.random_worlds import World
from tests.properties.machine import driver
from tests.properties.machine import world as machine
from tests.scenarios.language import Scenario
from tests.scenarios.stage import Stage

WHOLE: Final = 10**6
"""A budget with which one slice decides all that can be decided now. Smaller ones let the tries of those who gain
nothing put decisions off."""

Decision = tuple[Any, ...]
"""A time, and what was decided then."""


class Difference(NamedTuple):
    """The first decisions in which two ways of waking differ; ``None``: there is none any more."""

    number: int
    own: Decision | None
    plain: Decision | None


def decided(effect: Effect) -> Decision:
    """Returns what *effect* decides, as far as waking must not change it; empty: nothing of that kind.

    Left out is that an ask could not be placed, because the number of its tries decides when that is told.
    """
    match effect:
        case effects.Allocated(spec, node, _):
            return ("allocated", spec.application_id, spec.key, node)
        case effects.Released(_, application, key, why, _):
            return ("released", application, key, int(why))
        case effects.AskReleased(_, application, key, _, _):
            return ("withdrawn", application, key)
        case effects.AllocationRejected() | effects.ApplicationRejected():
            return (type(effect).__name__, repr(effect))
        case PreemptionDecided() if effect.victims:
            return ("preempted", effect.key, *(victim.key for victim in effect.victims))
    return ()


def compare(play: Callable[[], Sequence[Decision]]) -> Difference | None:
    """Plays twice, with the engine's waking and with plain waking. Returns the first difference."""
    own = play()
    with waking_everybody():
        plain = play()
    for number, (one, other) in enumerate(zip(own, plain, strict=False)):
        if one != other:
            return Difference(number, one, other)
    number = min(len(own), len(plain))
    if len(own) == len(plain):
        return None
    return Difference(number, *(each[number] if len(each) > number else None for each in (own, plain)))


class HeardCourse(Course):
    """A world of claims whose decisions are kept and not judged."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.heard: list[Decision] = []
        self.engine = _WholeSlices(EngineOptions(reservation_percent=self.world.percent))

    def play_out(self) -> list[Decision]:
        """Plays the world, and returns all decisions."""
        self.play()
        return self.heard

    def _hear(self, heard: Iterable[Effect]) -> None:
        heard = list(heard)
        self.heard += ((self.scene.now, *what) for effect in heard if (what := decided(effect)))
        super()._hear(heard)

    def _judge_placed(self, before: Scene, places: dict[str, str]) -> Scene:
        self.busy = True
        for key, node in places.items():
            self.scene.running[key] = (self.scene.waiting.pop(key, before.waiting[key]), node)
        return before

    def _judge_victims(self, before: Scene, decisions: list[PreemptionDecided]) -> None:
        self.busy = True

    def _judge_quiet(self) -> None:
        pass


class HeardWorld(machine.World):
    """A world of the random machine whose decisions are kept; its books are not compared."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = _WholeSlices()
        self.heard: list[Decision] = []

    def _count(self, effects: list[Effect]) -> None:
        super()._count(effects)
        self.heard += ((self.now_ns, *what) for effect in effects if (what := decided(effect)))

    def _check(self, *, settled: bool) -> None:
        pass


class HeardStage(Stage):
    """The stage of a scenario, whose decisions are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Decision] = []
        self.engine = _Heard(lambda effect: self.heard.append((self.now_ns, *decided(effect))))

    def _check(self) -> None:
        pass


class _WholeSlices(Engine):
    """An engine that decides in one slice all that it can decide."""

    def cycle(self, now_ns: int, budget: int) -> CycleResult:
        return super().cycle(now_ns, WHOLE if budget else 0)


class _Heard(Engine):
    """An engine that tells *listener* of its effects."""

    def __init__(self, listener: Callable[[Effect], None]) -> None:
        super().__init__()
        self._listener = listener

    def _take_effects(self) -> list[Effect]:
        taken = super()._take_effects()
        for effect in taken:
            if decided(effect):
                self._listener(effect)
        return taken


def compare_world(world: World) -> Difference | None:
    """Returns the first difference in a world of claims."""
    return compare(lambda: HeardCourse(world).play_out())


def compare_episode(seed: str, steps: int) -> Difference | None:
    """Returns the first difference in an episode of the random machine."""

    def play() -> Sequence[Decision]:
        world = HeardWorld()
        driver.episode(seed, steps, world)
        return world.heard

    return compare(play)


def compare_scenario(scenario: Scenario) -> Difference | None:
    """Returns the first difference in a scenario."""

    def play() -> Sequence[Decision]:
        stage = HeardStage()
        for block in scenario.blocks:
            stage.play(block.inputs)
        return stage.heard

    return compare(play)


def shrink(world: World, same: Callable[[Difference], bool] = lambda _: True) -> World:
    """Returns a world with fewer of everything in which the ways of waking still differ."""

    def differs(tried: World) -> bool:
        try:
            found = compare_world(tried)
        except (KeyError, IndexError, AssertionError, ValueError):
            return False
        return found is not None and same(found)

    shrunk = True
    while shrunk:
        shrunk = False
        for field in ("events", "running", "applications", "nodes", "queues"):
            at = 0
            while at < len(getattr(world, field)):
                whole = getattr(world, field)
                fewer = replace(world, **{field: (*whole[:at], *whole[at + 1 :])})
                if differs(fewer):
                    world, shrunk = fewer, True
                else:
                    at += 1
        for at, event in enumerate(world.events):
            for number in range(len(event.tasks)):
                tasks = (*event.tasks[:number], *event.tasks[number + 1 :])
                events = (*world.events[:at], replace(event, tasks=tasks), *world.events[at + 1 :])
                if tasks and differs(replace(world, events=events)):
                    world, shrunk = replace(world, events=events), True
                    break
    return world
