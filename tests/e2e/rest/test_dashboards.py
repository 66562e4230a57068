"""Whatever dashboard and alerts ask for is really exported: metrics, labels, and the values they are held against."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kornel.core.domain.effects import PreemptionDecided, VictimRecord
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.journal.snapshot_keeper import SnapshotStatus
from kornel.core.metrics.exposition import Exposition
from kornel.core.service.managers.standing import Standing
from kornel.core.service.metrics.metrics import Durations
from kornel.shim_client import Device, devices_attribute
from tests.e2e.rest.shim import TREE, rest_cluster
from tests.exposition import parse, types
from tests.promql import OF_THE_SCRAPE, grouped_by, label_values, selectors

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/kornel.json").read_text())
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]

UPSTREAM_DASHBOARD = (
    "yunikorn_scheduler_container_allocation_attempt_total",
    "yunikorn_scheduler_application_submission_total",
    "yunikorn_scheduler_application_total",
    "yunikorn_scheduler_vcore_node_usage_total",
    "yunikorn_scheduler_memory_node_usage_total",
    "yunikorn_scheduler_pods_node_usage_total",
    "yunikorn_scheduler_ephemeral_storage_node_usage_total",
    "yunikorn_scheduler_scheduling_latency_milliseconds",
    "yunikorn_scheduler_trynode_latency_milliseconds",
    "yunikorn_scheduler_trypreemption_latency_milliseconds",
)
"""Marked D in the table of rest.md 6."""


PREEMPTED = PreemptionDecided(
    0, "[rm-1]default", "guarantee", "k9", "app", "root.a.a1", Outcome.TRIGGERED, "", "n1",
    (VictimRecord("v", "other", "root.default", "n1", Resources({"vcore": 1}), 0),),
)  # fmt: skip


@dataclass(frozen=True)
class History:
    """A history that is doing well."""

    stored: int = 7
    committed: int = 5
    dropped: int = 0
    refused: int = 0
    set_aside: int = 0
    queued: int = 0
    spool_bytes: int = 10
    spool_limit: int = 100
    problem: str = ""
    last_commit_ns: int = 10**18


@dataclass
class Written:
    """A journal that is written."""

    epoch: int = 2
    last_record: int = 20
    last_durable: int = 10
    sets_waiting: int = 1
    problem: str = ""
    bytes_written: int = 1_000
    commits: Durations = field(default_factory=lambda: Durations((0.01,)))
    snapshots: SnapshotStatus = field(default_factory=lambda: SnapshotStatus(15, 10**9, 1_000, 0.5))


@dataclass
class Exported:
    """Metrics by their names in queries, with the values of each label."""

    kinds: dict[str, str]
    labels: dict[str, dict[str, set[str]]] = field(default_factory=dict)


@pytest.fixture
async def exported() -> Exported:
    """What a core with a history and a shared journal exports once something runs."""
    async with rest_cluster() as cluster:
        tree = TREE.replace("    queues:\n      - name: root", "    topology: [rack]\n    queues:\n      - name: root")
        await cluster.register(tree + "                resources: {max: {memory: 100, vcore: 2}}\n")
        await cluster.node("n1", attributes={"rack": "r1", **devices_attribute([Device("0")])}, vcore=10, memory=100)
        await cluster.submit("app", queue="root.a.a1")
        await cluster.ask("k1", vcore=1, memory=5)
        await cluster.ask("waits", vcore=10)
        await cluster.ask("above-max", fields={"nodeID": "n1"}, memory=96)
        await cluster.run_and_finish("other")
        server = cluster.core.server
        server.measures.decisions.observe([PREEMPTED])
        text = Exposition(
            replace(server.metrics.sources, history=History, journal=Written, standing=Standing(shared=True))
        ).render()
    found = Exported(types(text.decode()))
    for sample in parse(text.decode()):
        labels = found.labels.setdefault(sample.name, {})
        for name, value in sample.labels:
            labels.setdefault(name, set()).add(value)
    return found


def questions() -> Iterator[tuple[str, str, str]]:
    """(who asks, expression, legend)."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target["legendFormat"]
    for rule in RULES:
        yield rule["alert"], rule["expr"], rule["annotations"]["summary"].replace("$labels.", "")
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            found = label_values(variable["definition"])
            assert found is not None
            yield variable["name"], found[0], f"{{{{{found[1]}}}}}"


async def test_everything_that_is_asked_for_is_exported(exported: Exported) -> None:
    for who, expression, legend in questions():
        known = set(OF_THE_SCRAPE)
        for metric, matchers in selectors(expression):
            if metric in ("up", "kornel_lease_age_seconds"):  # Of a leader that shares its journal with others.
                continue
            assert metric in exported.labels, f"{who}: {metric} is not exported"
            labels = exported.labels[metric]
            known |= set(labels)
            for label, operator, value in matchers:
                assert label in labels.keys() | OF_THE_SCRAPE, f"{who}: {metric} has no label {label}"
                if operator == "=" and "$" not in value and label in labels:
                    assert value in labels[label], f"{who}: {label} of {metric} is never {value}"
                elif operator == "=~" and "$" not in value and label in labels:
                    assert any(re.fullmatch(value, each) for each in labels[label]), f"{who}: {value} matches nothing"
        assert grouped_by(expression) <= known, f"{who}: groups by a label that is not there"
        shown = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", legend))
        left = grouped_by(expression) | {label for label in known if not grouped_by(expression)}
        assert shown <= left | OF_THE_SCRAPE, f"{who}: shows a label that is not there"


async def test_every_metric_of_ours_has_a_panel_or_an_alert(exported: Exported) -> None:
    """Nobody looks at what is not on the page; these are for other uses."""
    elsewhere = {
        "kornel_build_info",
        "kornel_command_seconds",
        "kornel_configuration_changed_timestamp_seconds",
        "kornel_event_ring_capacity",
        "kornel_event_ring_entries",
        "kornel_group_lookups_total",
        "kornel_history_committed_timestamp_seconds",
        "kornel_journal_bytes_total",
        "kornel_journal_epoch",
        "kornel_manager_configuration_version",
        "kornel_preemption_wasted_resource_seconds_total",
        "kornel_streams_total",
    }
    asked = {re.sub(r"_bucket$", "", each.metric) for _, expression, _ in questions() for each in selectors(expression)}
    ours = {name for name in exported.kinds if name.startswith("kornel_")}
    assert ours - asked - elsewhere == set()
    assert elsewhere - ours == set()


async def test_what_upstreams_dashboard_asks_for_is_exported(exported: Exported) -> None:
    assert [name for name in UPSTREAM_DASHBOARD if name not in exported.kinds] == []


async def test_the_page_of_metrics_names_every_one_of_ours_and_every_alert(exported: Exported) -> None:
    named = set(re.findall(r"`(\w+)", (DEPLOY.parent / "docs/metrics.md").read_text()))
    assert {name for name in exported.kinds if name.startswith("kornel_")} - named == set()
    assert {rule["alert"] for rule in RULES} - named == set()


def test_the_dashboard_can_be_provisioned() -> None:
    """IDs are unique, nothing overlaps, nothing depends on one particular Grafana."""
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        covered = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & covered, panel["title"]
        cells |= covered
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
            assert panel["description"], panel["title"]
    assert "__inputs" not in DASHBOARD
    assert DASHBOARD.get("id") is None
