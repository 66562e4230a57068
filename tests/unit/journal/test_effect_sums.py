"""The text of effects, by whose sum two engines recognise each other."""

from __future__ import annotations

from kornel.core.domain.application_states import AppEvent, AppState
from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.effects import (
    Allocated,
    ApplicationAccepted,
    ApplicationUpdated,
    AsksRecorded,
    Effect,
    EventRecorded,
    NodeAccepted,
    PlacementsRecorded,
)
from kornel.core.domain.history.events import EventChange, EventDetail, EventType
from kornel.core.domain.resources import Resources
from kornel.core.journal.content.effect_sums import sum_effects, write_effects

ASKED = Resources({"vcore": 1})
SPEC = AllocationSpec("k", "app", "[rm]default", ASKED)
EVENT = EventRecorded(EventType.APP, "app", "", EventChange.ADD, EventDetail.NONE, 1, None, "")
ASK = AsksRecorded(1, ["app", "k", ASKED])
PLACEMENT = PlacementsRecorded(1, ["k", "app", "n1", "u", "root.q", ASKED])


def test_a_placement_says_its_key_application_and_node() -> None:
    """Alone, among others, and among events, which are left out."""
    placed = [Allocated(SPEC, "n1", ASKED), Allocated(SPEC._replace(key="ä"), "n2", ASKED)]
    text = "=\x1fk\x1fapp\x1fn1\x1f=\x1fä\x1fapp\x1fn2\x1f"
    assert write_effects(placed) == text
    assert write_effects([ASK, PLACEMENT, *placed, EVENT]) == text
    assert write_effects(iter([NodeAccepted("n1"), *placed])) == f"NodeAccepted\x1fn1\x1f{text}"


def test_what_differs_from_the_ask_is_said_too() -> None:
    """Other amounts, and which one of several it is; amounts that are equal are not."""
    more = Resources({"vcore": 2})
    equal = Resources({"vcore": 1})
    second = SPEC._replace(instance=2)
    effects: list[Effect] = [Allocated(SPEC, "n1", more), Allocated(SPEC, "n1", equal), Allocated(second, "n1", ASKED)]
    assert write_effects(effects) == (
        "=\x1fk\x1fapp\x1fn1\x1fResources(vcore=2)\x1f=\x1fk\x1fapp\x1fn1\x1f=\x1fk\x1fapp\x1fn1\x1f2\x1f"
    )


def test_applications_say_all_that_changed() -> None:
    """Members of enumerations are their texts, and numbers their digits: journals of earlier versions have these
    sums."""
    effects: list[Effect] = [
        ApplicationAccepted("app", "[rm]default", "root.q", "ann"),
        ApplicationUpdated("app", AppState.RUNNING, 7, AppEvent.RUN, "[rm]default", "root.q", "ann", 5),
        ApplicationUpdated("app", "Expired", 8, ""),
    ]
    assert write_effects(effects).split("\x1f") == [
        *("ApplicationAccepted", "app", "[rm]default", "root.q", "ann"),
        *("ApplicationUpdated", "app", "Running", "7", "runApplication", "[rm]default", "root.q", "ann", "5"),
        *("ApplicationUpdated", "app", "Expired", "8", "", "", "", "", "0"),
        "",
    ]


def test_nothing_decided_changes_no_sum() -> None:
    """Events alone are nothing decided."""
    assert write_effects([]) == write_effects([EVENT, ASK, PLACEMENT]) == ""
    assert sum_effects([EVENT], 17) == 17


def test_the_sum_of_parts_is_the_sum_of_the_whole() -> None:
    """So it does not matter in which calls an engine decided."""
    placed = [Allocated(SPEC._replace(key=f"k-{n}"), "n1", ASKED) for n in range(4)]
    whole = sum_effects(placed, 0)
    assert sum_effects(placed[2:], sum_effects(placed[:2], 0)) == whole
    assert sum_effects(placed[::-1], 0) != whole
