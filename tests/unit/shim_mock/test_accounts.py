"""The simulated cluster's own books."""

from __future__ import annotations

from kornel.shim_mock.model.accounts import Accounts, BelowGuarantee
from kornel.shim_mock.queues import QueueLimits, ancestors, read_queues

ONE = {"vcore": 1000}


def books(guaranteed: int = 2000) -> Accounts:
    accounts = Accounts({"root": QueueLimits(), "root.a": QueueLimits({"vcore": guaranteed})}, ["root.a"])
    for _ in range(3):
        accounts.book_task("root.a", ONE, waited_s=0.1, at_s=1.0)
    return accounts


def test_amounts_are_kept_for_every_queue_above() -> None:
    """What a leaf uses counts for its ancestors too."""
    accounts = books()
    assert accounts.queues["root.a"].used == accounts.queues["root"].used == {"vcore": 3000}


def test_a_victim_counts_until_it_is_gone_but_not_for_the_guarantee() -> None:
    """A chosen task is still used, and no longer net; once gone it is neither."""
    accounts = books()
    accounts.book_victim("root.a", ONE, key="k", at_s=2.0)
    account = accounts.queues["root.a"]
    assert (account.used["vcore"], account.usage_net_of_victims("vcore")) == (3000, 2000)
    accounts.remove_task("root.a", ONE, victim=True, at_s=3.0)
    assert (account.used["vcore"], account.usage_net_of_victims("vcore"), account.preempting["vcore"]) == (
        2000,
        2000,
        0,
    )
    assert accounts.preemptions == [(2.0, "root.a")]
    assert not accounts.below_guarantee


def test_a_decision_that_breaks_a_guarantee_is_noted() -> None:
    """The moment a decision leaves a queue below its guarantee, it is written down with the numbers."""
    accounts = books(guaranteed=3000)
    accounts.book_victim("root.a", ONE, key="k", at_s=2.0)
    assert accounts.below_guarantee == [BelowGuarantee("root.a", "vcore", 2000, 3000, "k")]


def test_a_type_that_the_victim_does_not_use_is_not_its_fault() -> None:
    """Being short of a type that the victim holds none of is no breach by this decision."""
    accounts = Accounts({"root.a": QueueLimits({"memory": 5})}, ["root.a"])
    accounts.book_task("root.a", ONE, waited_s=0, at_s=0)
    accounts.book_victim("root.a", ONE, key="k", at_s=1)
    assert not accounts.below_guarantee


def test_when_a_queue_is_served() -> None:
    """A queue is served at its guarantee, or when only tasks wait that no node could hold."""
    accounts = Accounts({"root.a": QueueLimits({"vcore": 2000})}, ["root.a"])
    account = accounts.queues["root.a"]
    accounts.plan_tasks("root.a", 3)
    assert not account.is_served
    for hopeless in (False, False, True):
        accounts.book_ask("root.a", ONE, hopeless=hopeless, at_s=0)
    assert not account.is_served
    accounts.plan_tasks("root.a", -3)
    assert not account.is_served
    for _ in range(2):
        accounts.remove_ask("root.a", ONE, hopeless=False)
    assert account.is_served
    accounts.book_ask("root.a", ONE, hopeless=False, at_s=0)
    assert not account.is_served
    for _ in range(2):
        accounts.book_task("root.a", ONE, waited_s=0, at_s=1)
    assert account.is_served


def test_a_pause_shows_as_a_step() -> None:
    """Samples bracket a pause, so that a line through them does not slope where nothing happened."""
    accounts = books()
    accounts.book_task("root.a", ONE, waited_s=0, at_s=9.0)
    accounts.finish(10.0)
    assert [(sample.at_s, sample.used["root.a"].get("vcore", 0)) for sample in accounts.samples[-4:]] == [
        (1.0, 3000),
        (9.0, 3000),
        (9.0, 4000),
        (10.0, 4000),
    ]


def test_queues_are_read_from_the_configuration() -> None:
    """Paths are lower-cased and full, with or without an explicit root; a broken text yields nothing."""
    explicit = (
        "partitions: [{name: default, queues: [{name: root, queues: [{name: A, resources: {max: {vcore: 1}}}]}]}]"
    )
    implicit = "partitions: [{name: default, queues: [{name: A, resources: {max: {vcore: 1}}}]}]"
    assert read_queues(explicit)["root.a"] == read_queues(implicit)["root.a"] == QueueLimits({}, {"vcore": 1000})
    assert read_queues("partitions: [") == read_queues("") == read_queues("text") == {}
    assert read_queues("partitions: &x [{name: default, queues: &q [{name: a, queues: *q}]}]")
    assert ancestors("root.a.b") == ["root.a.b", "root.a", "root"]
