"""The preemption switches of a partition: T12, config.md 2.7, preemption.md 0.2 and E.1."""

from __future__ import annotations

import pytest

from kornel.core.config.loader import load
from kornel.core.config.model import PreemptionConfig
from kornel.core.domain.settings import Budget, GovernorSettings, GuaranteeMode, VictimBound
from tests.unit.config.reading import errors, only

BOUNDS = {
    "guarantee": VictimBound(128, 1_000),
    "within": VictimBound(128, 1_000),
    "required-node": VictimBound(128, 1_000),
    "quota": VictimBound(interval=1_000),
}


def read(preemption: str) -> PreemptionConfig:
    return only(load(text(preemption))).preemption


def text(preemption: str) -> str:
    return f"partitions:\n  - queues: []\n    preemption: {preemption}\n"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("", (True, False)),
        ("{}", (True, False)),
        ("{enabled: ~}", (True, False)),
        ("{enabled: false}", (False, False)),
        ("{enabled: true}", (True, False)),
        ("{quotapreemptionenabled: true}", (True, True)),
    ],
)
def test_t12_switches(written: str, expected: tuple[bool, bool]) -> None:
    """Unset switches have their defaults: guarantee-driven on, quota off."""
    found = read(written)
    assert (found.enabled, found.quota_enabled) == expected


def test_defaults() -> None:
    """Without a word about preemption everything is at its default."""
    found = read("{}")
    assert found.policies == ("required-node", "quota", "guarantee", "within", "monitor")
    assert found == PreemptionConfig(policies=found.policies, governor=GovernorSettings(victims=BOUNDS))


def test_everything_set() -> None:
    """Every key reaches its field."""
    written = (
        "{guaranteemode: strict, coexist: yes, policies: [guarantee, required-node], cost: default, governor: {},"
        " cycle: {interval_ms: 250, limit: 0.5, batch: 3}}"
    )
    assert read(written) == PreemptionConfig(
        guarantee_mode=GuaranteeMode.STRICT,
        coexist=True,
        policies=("guarantee", "required-node"),
        cycle_interval_ns=250 * 10**6,
        cycle_limit=0.5,
        cycle_batch=3,
        governor=GovernorSettings(victims=BOUNDS),
    )


def test_governor_and_victims() -> None:
    """Every bound reaches its field; what is not given keeps its default."""
    written = (
        "{victim: {timeout: 90s}, governor: {window_ms: 60000, cluster: {victims: 9}, queue: {lost: {vcore: 2, f: 3}},"
        " application: {victims: 0}, cooldown_ms: 5000, loop: {window_ms: 0, returns: 1}, shadow: [quota, guarantee]}}"
    )
    found = read(written)
    assert found.victim_timeout_ns == 90 * 10**9
    assert found.governor == GovernorSettings(
        victims=BOUNDS,
        window_ns=60 * 10**9,
        cluster=Budget(9),
        queue=Budget(10_000, {"vcore": 2000, "f": 3}),
        application=Budget(0),
        cooldown_ns=5 * 10**9,
        loop_window_ns=0,
        loop_returns=1,
        shadow=frozenset({"quota", "guarantee"}),
    )


def test_bounds_on_victims() -> None:
    """By kind; an enforced max serves no ask, so it has no bound for one."""
    written = "{governor: {victims: {guarantee: {ask: 3}, required-node: {ask: 0, interval: 9}, quota: {interval: 0}}}}"
    assert read(written).governor.victims == {
        "guarantee": VictimBound(3, 1_000),
        "within": VictimBound(128, 1_000),
        "required-node": VictimBound(0, 9),
        "quota": VictimBound(),
    }


def test_a_kind_that_is_not_listed_is_not_enforced() -> None:
    """The switch of lowered maxima and the list of policies come to one answer."""
    assert not read("{quotapreemptionenabled: true, policies: [guarantee]}").quota_enabled


@pytest.mark.parametrize(
    ("written", "path", "message"),
    [
        ("{enabled: true, policies: [quota]}", "enabled", "does not list guarantee"),
        ("{quotapreemptionenabled: true, policies: [guarantee]}", "quotapreemptionenabled", "does not list quota"),
        ("{monitor: {enabled: true}, policies: [guarantee]}", "monitor", "does not list monitor"),
        ("{cycle: {limit: 0}}", "cycle.limit", "nobody preempts for a guarantee"),
    ],
)
def test_settings_without_effect_are_warned_of(written: str, path: str, message: str) -> None:
    """A switch that the list of policies overrules, and a limit that lets nobody preempt, are said."""
    (problem,) = load(text(written)).warnings
    assert problem.path == f"partitions[0].preemption.{path}"
    assert message in problem.message


def test_policies_left_out_by_default_switches_are_no_news() -> None:
    """Who leaves a policy out and sets no switch for it wants just that."""
    assert load(text("{policies: [required-node]}")).warnings == ()


def test_monitor_has_all_its_parameters() -> None:
    """A configured monitor has every parameter, at its default where it is not given."""
    assert read("{monitor: {enabled: true, per_round: 1, contract: strict}}").sections["monitor"] == {
        "enabled": True, "observe_only": False, "balance": False, "reserved_first": False, "conservative": False,
        "interval_ms": 3000, "max_wait_ms": 15000, "dead_zone": 0.1, "per_round": 1.0, "natural_factor": 0.2,
        "originator_reserve": 0.0, "contract": "strict", "queue_priority": False, "queue_priority_wait_ms": 60000,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("{enabled: maybe}", "enabled"),
        ("{quotapreemptionenabled: 'true'}", "quotapreemptionenabled"),
        ("{guaranteemode: Strict}", "guaranteemode"),
        ("{cost: cheapest}", "cost"),
        ("{policies: [guarantee, storm]}", "policies[1]"),
        ("{policies: [quota, quota]}", "policies[1]"),
        ("{policies: quota}", "policies"),
        ("{cycle: {interval_ms: 0}}", "cycle.interval_ms"),
        ("{cycle: {batch: 0}}", "cycle.batch"),
        ("{cycle: {limit: 1.1}}", "cycle.limit"),
        ("{cycle: {limit: -0.1}}", "cycle.limit"),
        ("{cycle: {speed: 1}}", "cycle.speed"),
        ("{governor: {budget: 1}}", "governor.budget"),
        ("{governor: {window_ms: 0}}", "governor.window_ms"),
        ("{governor: {queue: {victims: -1}}}", "governor.queue.victims"),
        ("{governor: {application: {share: 1}}}", "governor.application.share"),
        ("{governor: {cluster: {lost: {vcore: lots}}}}", "governor.cluster.lost.vcore"),
        ("{governor: {shadow: [guarantee, storm]}}", "governor.shadow[1]"),
        ("{governor: {loop: {returns: never}}}", "governor.loop.returns"),
        ("{governor: {victims: {guarantee: {ask: -1}}}}", "governor.victims.guarantee.ask"),
        ("{governor: {victims: {quota: {ask: 1}}}}", "governor.victims.quota.ask"),
        ("{governor: {victims: {monitor: {interval: 1}}}}", "governor.victims.monitor"),
        ("{victim: {timeout: soon}}", "victim.timeout"),
        ("{victim: {timeout: 0s}}", "victim.timeout"),
        ("{monitor: {interval_ms: 0}}", "monitor.interval_ms"),
        ("{monitor: {max_wait_ms: -1}}", "monitor.max_wait_ms"),
        ("{monitor: {dead_zone: -0.1}}", "monitor.dead_zone"),
        ("{monitor: {per_round: 1.5}}", "monitor.per_round"),
        ("{monitor: {natural_factor: 2}}", "monitor.natural_factor"),
        ("{monitor: {originator_reserve: .nan}}", "monitor.originator_reserve"),
        ("{monitor: {contract: loose}}", "monitor.contract"),
        ("{monitor: {kill: true}}", "monitor.kill"),
        ("{monitor: true}", "monitor"),
    ],
)
def test_refused(written: str, path: str) -> None:
    """Unknown words and keys and numbers out of range are refused at their place."""
    (problem,) = errors(text(written))
    assert problem.path == f"partitions[0].preemption.{path}"
