"""When a manager counts as gone, and what is said of what waits for it."""

from __future__ import annotations

from kornel.core.domain.resources import Resources
from kornel.core.service.machine.clock import SECOND_NS, ManualClock
from kornel.core.service.streams.presence import GRACE_NS, Presence, PresenceKeeper
from kornel.core.telling.allocations.explanation import (
    ApplicationReport,
    AskReport,
    BlockerKind,
    EqualAsks,
    Position,
    add_absence,
)

WAITS = AskReport("k", "app", "root.a", "Pending", "", 0, Resources({}), 0, position=Position(1, 1, 1, 1, 1, 1))
RUNS = AskReport("k", "app", "root.a", "Allocated", "n1", 0, Resources({}), 0)
GONE = Presence("rm", 0, 1_700_000_000 * SECOND_NS, gone=True)


def test_a_manager_that_restarts_is_not_gone() -> None:
    """Another stream opens within the grace. That it is gone is told once, and that it is back."""
    clock = ManualClock()
    told: list[bool] = []
    keeper = PresenceKeeper(clock, lambda found: told.append(found.gone))
    assert keeper.now is None
    keeper.note_registered("rm")
    clock.advance(GRACE_NS - 1)
    keeper.note_opened("rm")
    clock.advance(3 * GRACE_NS)
    keeper.note_closed("rm")
    clock.advance(GRACE_NS - 1)
    keeper.note_opened("rm")
    assert told == []
    keeper.note_closed("rm")
    clock.advance(3 * GRACE_NS)
    keeper.note_opened("rm")
    assert told == [True, False]


def test_only_streams_of_the_registered_manager_count() -> None:
    clock = ManualClock()
    keeper = PresenceKeeper(clock)
    keeper.note_registered("rm")
    keeper.note_opened("other")
    clock.advance(GRACE_NS)
    found = keeper.now
    assert found is not None
    assert (found.streams, found.gone) == (0, True)
    keeper.note_registered("other")
    found = keeper.now
    assert found is not None
    assert (found.streams, found.no_stream_since_ns, found.gone) == (1, None, False)


def test_a_registration_is_a_sign_of_life() -> None:
    clock = ManualClock()
    keeper = PresenceKeeper(clock)
    keeper.note_registered("rm")
    clock.advance(2 * GRACE_NS)
    keeper.note_registered("rm")
    assert keeper.now == Presence("rm", 0, clock.now_ns(), gone=False)
    keeper.note_registered("")
    clock.advance(2 * GRACE_NS)
    assert keeper.now is None


def test_a_manager_that_is_gone_is_the_first_thing_in_the_way() -> None:
    """Of what waits; what runs has nothing in its way."""
    found = add_absence(WAITS, GONE.rm_id, GONE.words)
    assert isinstance(found, AskReport)
    assert [blocker.kind for blocker in found.blockers] == [BlockerKind.SHIM_GONE]
    assert GONE._replace(gone=False).words == ""
    assert add_absence(RUNS, GONE.rm_id, GONE.words) is RUNS
    application = ApplicationReport(
        "app", "root.a", "Running", "ann", 3, 0, Resources({}), 1, (EqualAsks(3, WAITS),), (), ()
    )
    whole = add_absence(application, GONE.rm_id, GONE.words)
    assert isinstance(whole, ApplicationReport)
    assert whole.asks[0].first.blockers[0].name == "rm"
