"""What is kept for waiting asks, as it is listed and explained (preemption.md B.7)."""

from __future__ import annotations

from kornel.core.domain.resources import Resources
from kornel.core.telling.claims.claim_views import ClaimKind, ClaimReason
from kornel.core.telling.reader import PartitionReader
from tests.reading import read
from tests.scenarios.stage import Stage

MINUTE_NS = 60 * 10**9


def reading(*lines: str) -> PartitionReader:
    stage = Stage()
    stage.play(list(lines))
    return read(stage.engine, "[rm-1]default", stage.now_ns)


def test_room_saved_by_age_says_what_is_missing_and_when_it_lapses() -> None:
    """A node of 4 of which 3 are used: an ask of 4 collects what ends there."""
    views = reading(
        "queue root.q",
        "node n1 vcore=4000",
        "run r queue=root.q node=n1 vcore=3000",
        "ask big queue=root.q vcore=4000",
        "cycles until=1m every=1s",
    )
    (claim,) = views.claims()
    assert (claim.key, claim.kind, claim.reason, claim.place) == ("big", ClaimKind.SAVED, ClaimReason.AGE, "n1")
    assert (claim.held, claim.missing) == (Resources({"vcore": 4000}), Resources({"vcore": 3000}))
    assert claim.lapses_ns is not None
    assert claim.lapses_ns - claim.since_ns >= 120 * MINUTE_NS


def test_room_for_which_a_victim_leaves_is_firm_and_does_not_lapse() -> None:
    views = reading(
        "queue root.v",
        "queue root.q guaranteed={vcore=1000} preemption.delay=1s",
        "node n1 vcore=1000",
        "run v1 queue=root.v node=n1 vcore=1000",
        "ask a queue=root.q vcore=1000 other=yes",
        "cycles until=3s every=1s",
    )
    (claim,) = views.claims()
    assert (claim.key, claim.kind, claim.reason) == ("a", ClaimKind.FIRM, ClaimReason.PREEMPTION)
    assert (claim.victims, claim.lapses_ns) == (1, None)
