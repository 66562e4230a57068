"""What is kept for waiting asks, as it is listed and explained (preemption.md B.7)."""

from __future__ import annotations

from kornel.core.domain.resources import Resources
from kornel.core.telling.allocations.explanation import AskReport, Blocker, BlockerKind
from kornel.core.telling.claims.claim_views import ClaimKind, ClaimReason, PlaceKind
from kornel.core.telling.explain import Named, UserNamed
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


def test_what_is_saved_below_limits_is_listed_for_each_of_them() -> None:
    """The ask of 3 lacks 2 below the max of its queue, and 2 below the limit of its user."""
    claims = list(waiting_below_limits().claims())
    assert [(claim.key, claim.place_kind, claim.place) for claim in claims] == [
        ("big", PlaceKind.QUEUE, "root.q"),
        ("big", PlaceKind.USER, "ann in root.q"),
    ]
    assert [claim.where for claim in claims] == ["queue root.q", "user ann in root.q"]
    for claim in claims:
        assert (claim.kind, claim.reason) == (ClaimKind.SAVED, ClaimReason.AGE)
        assert (claim.held, claim.missing) == (Resources({"vcore": 3000}), Resources({"vcore": 2000}))
        assert claim.lapses_ns is not None
        assert claim.lapses_ns - claim.since_ns >= 120 * MINUTE_NS


def test_a_claim_below_limits_without_progress_counts_while_it_keeps_others_back() -> None:
    """It is looked at every five minutes."""
    views = waiting_below_limits("cycles until=31m every=1m")
    assert {claim.idle_ns // MINUTE_NS for claim in views.claims()} == {30}


def test_a_claim_that_lapses_late_is_looked_at_as_often() -> None:
    """Nobody would be warned of it for an hour otherwise."""
    views = waiting_below_limits("cycles until=16m every=1m", properties="reservation.timeout=24h")
    assert {claim.idle_ns // MINUTE_NS for claim in views.claims()} == {15}


def test_explanations_name_who_saves_below_a_limit_and_until_when() -> None:
    views = waiting_below_limits()
    told = {(b.kind, b.name): b.detail for b in blockers_of(views, "small")}
    assert told == {
        (BlockerKind.LIMIT_RESERVED, "root.q"): (
            "what is free there has been held for big since 1970-01-01T00:00:05Z, because it has waited long; "
            "the claim lapses at 1970-01-01T02:00:05Z at the earliest"
        ),
    }
    told = {(b.kind, b.name): b.detail for b in blockers_of(views, "big")}
    assert told[BlockerKind.QUEUE_QUOTA, "root.q"] == (
        "not enough left of the limit; room has been collected there since 1970-01-01T00:00:05Z; "
        "the claim lapses at 1970-01-01T02:00:05Z at the earliest"
    )
    assert told[BlockerKind.USER_QUOTA, "user ann in root.q"] == told[BlockerKind.QUEUE_QUOTA, "root.q"]


def test_an_ask_that_must_run_where_another_must_is_told_of_it() -> None:
    views = reading(
        "node n1 vcore=4000",
        "app app1",
        "ask runs vcore=4000 required=n1",
        "cycle",
        "ask first vcore=4000 required=n1",
        "ask second vcore=4000 required=n1",
        "cycles until=6s every=1s",
    )
    told = {blocker.kind: blocker.detail for blocker in blockers_of(views, "second")}
    assert told[BlockerKind.REQUIRED_NODE_TAKEN] == (
        "room there has been held for first since 1970-01-01T00:00:01Z, because it must run there, "
        "until it is placed or withdrawn"
    )


def test_what_is_saved_below_limits_of_a_leaf_is_listed_at_it_and_at_its_user() -> None:
    """A driver of 2 waits for one of 3 that originators may hold, and her other ask for half of the leaf."""
    views = reading(
        "queue root.q max={vcore=6000} originator.max=50% minimum-user-limit-percent=50",
        "node n1 vcore=9000",
        "app A queue=root.q user=ann",
        "app B queue=root.q user=bob",
        "ask r1 app=B vcore=1000 originator",
        "ask r2 app=B vcore=1000 originator",
        "ask never app=B vcore=9000",
        "ask r3 app=A vcore=2000",
        "cycle",
        "ask driver app=A p=2 vcore=2000 originator",
        "ask task app=A p=1 vcore=2000",
        "cycles until=6s every=1s",
    )
    assert {(claim.key, claim.where) for claim in views.claims()} == {
        ("driver", "queue root.q"), ("driver", "user ann in root.q"),
    }  # fmt: skip
    explained = views.explain(UserNamed("ann"))
    assert explained is not None
    assert [(level.kind, level.name, level.max) for level in explained.levels] == [
        ("user", "ann", Resources({"vcore": 3000}))
    ]


def waiting_below_limits(*lines: str, properties: str = "") -> PartitionReader:
    """Reads a queue of 3 of which ann holds 2, where her ask of 3 saves the rest and an ask of 1 waits behind it."""
    return reading(
        f"queue root.q max={{vcore=3000}} {properties}",
        "limit root.q users=ann max={vcore=3000}",
        "node n1 vcore=9000",
        "app A queue=root.q user=ann",
        "app B queue=root.q user=bob",
        "ask r1 app=A vcore=1000",
        "ask r2 app=A vcore=1000",
        "ask r3 app=A vcore=1000",
        "cycle",
        "ask big app=A vcore=3000",
        "cycles until=4s every=1s",
        "release r1 app=A",
        "ask small app=B vcore=1000",
        "cycles until=6s every=1s",
        *lines,
    )


def blockers_of(views: PartitionReader, key: str) -> tuple[Blocker, ...]:
    report = views.explain(Named(key))
    assert isinstance(report, AskReport)
    return report.blockers


def test_gauges_count_claims_by_kind_and_reason_and_tell_the_longest_without_progress() -> None:
    """What is saved below two limits counts once, although it is listed for each of them."""
    (gauges,) = (found for found in waiting_below_limits("cycles until=31m every=1m").gauges(0) if found)
    assert {sort: count for sort, count in gauges.claims.counts.items() if count} == {("saved", "age"): 1}
    assert gauges.claims.longest_idle_ns // MINUTE_NS == 30
    (none,) = (found for found in reading("node n1 vcore=9000", "ask a vcore=1000", "cycle").gauges(0) if found)
    assert set(none.claims.counts.values()) == {0}
    assert none.claims.longest_idle_ns == 0


def test_a_question_to_the_shim_is_a_claim() -> None:
    views = reading("node n1 vcore=9000", "attach predicates", "app app1", "ask a vcore=1000", "cycle")
    (claim,) = views.claims()
    (gauges,) = (found for found in views.gauges(0) if found)
    assert (claim.kind, claim.reason) == (ClaimKind.FIRM, ClaimReason.ASKED)
    assert {sort: count for sort, count in gauges.claims.counts.items() if count} == {("firm", "asked"): 1}
