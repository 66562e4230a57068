"""Alert rules, judged by promtool: each fires when it should, and not a little before."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from kornel.core.domain.health import CLAIM_CHECK
from kornel.core.service.managers.health import _CHECKS

PROMETHEUS = Path(__file__).parents[3] / "deploy/prometheus"
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load((PROMETHEUS / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
}

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is not installed"
)


class Case(NamedTuple):
    """Series by name, a value a minute in promtool's notation, with which an alert fires after an hour, or does not."""

    alert: str
    fires: dict[str, str]
    quiet: dict[str, str]


ERRORS, CONSISTENCY, SHIM_CHECK = (
    f'kornel_health_check{{number="{number}",check="{check}"}}'
    for number, check in ((0, "Scheduling errors"), (4, "Consistency of data"), (9, "Resource manager check"))
)
"""As they are scraped; the last one fails with the shim alone, which KornelNoShim tells."""

CLAIM_SERIES = f'kornel_health_check{{number="10",check="{CLAIM_CHECK}"}}'
"""As it is scraped; it only warns, which KornelClaimStalled tells."""

ATTEMPTS = "kornel_preemption_attempts_total"


def slow(name: str) -> dict[str, str]:
    """All durations of histogram *name* are above a second."""
    return {f'{name}_bucket{{le="0.01"}}': "0x60", f'{name}_bucket{{le="1"}}': "0x60"} | {
        f'{name}_bucket{{le="{le}"}}': "0+10x60" for le in ("5", "+Inf")
    }


def quick(name: str) -> dict[str, str]:
    """All durations of histogram *name* are below 10 ms."""
    return {f'{name}_bucket{{le="{le}"}}': "0+10x60" for le in ("0.01", "1", "5", "+Inf")}


def alone(alert: str, series: str, fires: str, quiet: str) -> Case:
    """Alert on the values of one series."""
    return Case(alert, {series: fires}, {series: quiet})


def once(alert: str, series: str) -> Case:
    """Alert on a counter: it grew within the last minutes; it grew long ago."""
    return alone(alert, series, "0x57 1x3", "0 1x60")


CASES = (
    Case("KornelDown", {'up{job="yunikorn"}': "1x57 0x3"}, {'up{job="yunikorn"}': "1x60", 'up{job="x"}': "0x60"}),
    Case(
        "KornelNoShim",
        {"kornel_manager_registered": "1x60", "kornel_streams_open": "3x60", "kornel_manager_gone": "0x50 1x10"},
        {"kornel_manager_registered": "1x57 0x3", "kornel_manager_gone": "0x60"},
    ),
    alone("KornelNoShim", "kornel_manager_registered", "0x60", "1x60"),
    Case(
        "KornelNoShim",
        {"kornel_manager_registered": "0x60", "kornel_leader": "1x60"},
        {"kornel_manager_registered": "0x60", "kornel_leader": "0x60"},
    ),
    once("KornelEngineFault", "kornel_engine_faults_total"),
    alone("KornelEngineFault", "kornel_metrics_partitions_unreadable", "0x58 1x2", "0x60"),
    Case("KornelUnhealthy", {CONSISTENCY: "1x55 0x5", SHIM_CHECK: "1x60"}, {CONSISTENCY: "0x58 1x2"}),
    Case("KornelUnhealthy", {CONSISTENCY: "0x60", CLAIM_SERIES: "1x60"}, {CONSISTENCY: "1x60", CLAIM_SERIES: "0x60"}),
    Case(
        "KornelUnhealthy",
        {"kornel_healthy": "0x60", ERRORS: "0x60", CONSISTENCY: "0x60", SHIM_CHECK: "0x60"},
        {"kornel_healthy": "0x60", ERRORS: "1x60", CONSISTENCY: "1x60", SHIM_CHECK: "0x60"},
    ),
    alone("KornelHealthStale", "kornel_health_checked_timestamp_seconds", "60x60", "0+60x60"),
    alone("KornelCallsRefused", 'kornel_calls_refused_total{reason="unauthenticated"}', "0+120x60", "0+30x60"),
    alone("KornelClockSet", "kornel_clock_ahead_seconds", "0x50 -3600x10", "2x60"),
    Case(
        "KornelSchedulingSlow",
        slow("kornel_scheduling_slice_seconds"),
        quick("kornel_scheduling_slice_seconds"),
    ),
    Case("KornelEventLoopLag", slow("kornel_event_loop_lag_seconds"), quick("kornel_event_loop_lag_seconds")),
    Case(
        "KornelNothingPlaced",
        {
            "kornel_asks_pending": "5x60",
            "kornel_nodes": "3x60",
            'yunikorn_scheduler_container_allocation_attempt_total{state="allocated"}': "9x60",
        },
        {
            "kornel_asks_pending": "5x60",
            "kornel_nodes": "3x60",
            'yunikorn_scheduler_container_allocation_attempt_total{state="allocated"}': "0+1x60",
        },
    ),
    Case(
        "KornelAllocationErrors",
        {'yunikorn_scheduler_container_allocation_attempt_total{state="error"}': "0x55 1x5"},
        {'yunikorn_scheduler_container_allocation_attempt_total{state="rejected"}': "0x55 1x5"},
    ),
    alone("KornelQueueAboveMax", 'kornel_queue_above_max{queue="root.a",resource="vcore"}', "30x60", "_x40 30x20"),
    Case(
        "KornelMaxNotEnforced",
        {f'{ATTEMPTS}{{kind="quota",outcome="NONE"}}': "0x57 1x3", "kornel_queues_above_max": "1x60"},
        {f'{ATTEMPTS}{{kind="quota",outcome="NONE"}}': "0x57 1x3", "kornel_queues_above_max": "0x60"},
    ),
    alone("KornelPreemptedForNothing", "kornel_preemption_triggered_oldest_seconds", "0x50 0+60x10", "0x55 0+60x5"),
    Case(
        "KornelPreemptorsGone",
        {'kornel_preemption_triggered_asks_total{result="gone"}': "0x30 1x30"},
        {'kornel_preemption_triggered_asks_total{result="placed"}': "0x30 1x30"},
    ),
    alone("KornelVictimsStuck", "kornel_preemption_stuck_victims", "0x45 1x15", "0x55 1x5"),
    alone("KornelClaimStalled", "kornel_claims_longest_stalled_seconds", "0x40 0+60x20", "0x48 0+60x12"),
    Case(
        "KornelPreemptionBudgetSpent",
        {'kornel_governor_budget_used_ratio{scope="cluster",resource="victims"}': "0x55 1x5"},
        {
            'kornel_governor_budget_used_ratio{scope="cluster",resource="victims"}': "0.99x60",
            'kornel_governor_budget_used_ratio{scope="queue",resource="victims"}': "1x60",
        },
    ),
    once("KornelPreemptionLoop", f'{ATTEMPTS}{{kind="governor",outcome="LOOP"}}'),
    once("KornelLawBroken", "kornel_law_violations_total"),
    alone("KornelCallbackSilent", "kornel_callback_silence_seconds", "0x50 0+60x10", "9x60"),
    Case("KornelCallbackSlow", slow("kornel_callback_seconds"), quick("kornel_callback_seconds")),
    Case(
        "KornelResponsesPileUp",
        {"kornel_response_queue_entries": "51x60", "kornel_response_queue_limit": "100x60"},
        {"kornel_response_queue_entries": "49x60", "kornel_response_queue_limit": "100x60"},
    ),
    once("KornelResponsesDropped", "kornel_response_overflows_total"),
    alone("KornelConfigurationFileBad", "kornel_configuration_file_problem", "0x50 1x10", "0x60"),
    alone("KornelRollbackHolds", "kornel_configuration_rollback_holds", "0x20 1x40", "0x40 1x20"),
    once("KornelConfigurationRefused", 'kornel_configurations_total{origin="file",result="refused"}'),
    alone("KornelJournalProblem", "kornel_journal_problem", "0x50 1x10", "0x60"),
    alone("KornelSnapshotsFail", "kornel_journal_snapshot_problem", "0x20 1x40", "0x30 1x5 0x25"),
    alone("KornelNoLeader", "kornel_leader", "1x58 0x2", "0x59 1"),
    Case(
        "KornelLeaseOld",
        {"kornel_leader": "1x60", "kornel_lease_age_seconds": "0.3x56 2 0.3x4"},
        {"kornel_leader": "0x60", "kornel_lease_age_seconds": "0.3x56 2 0.3x4"},
    ),
    alone("KornelLeaderChanges", "kornel_leader_changes_total", "1x50 2 3 4 5 6 7 8 9 10 11", "1x58 2 3"),
    alone("KornelStandbyUnfit", "kornel_standby_unfit", "0x59 1", "0x60"),
    alone("KornelStandbyBehind", "kornel_standby_behind_seconds", "0x50 60x10", "0.1x59 60"),
    Case("KornelJournalSlow", slow("kornel_journal_commit_seconds"), quick("kornel_journal_commit_seconds")),
    Case(
        "KornelHistorySpoolFilling",
        {"kornel_history_spool_bytes": "51x60", "kornel_history_spool_limit_bytes": "100x60"},
        {"kornel_history_spool_bytes": "49x60", "kornel_history_spool_limit_bytes": "100x60"},
    ),
    alone("KornelHistoryProblem", "kornel_history_problem", "0x50 1x10", "0x57 1x3"),
    alone("KornelHistorySetAside", "kornel_history_set_aside", "0x50 1x10", "0x60"),
    once("KornelHistoryLost", 'kornel_history_records_total{result="dropped"}'),
    once("KornelEventClientsDropped", "kornel_event_streams_dropped_total"),
)


def _promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)


def test_checks_are_called_what_the_core_calls_them() -> None:
    assert [f'kornel_health_check{{number="{number}",check="{_CHECKS[number][0]}"}}' for number in (0, 4, 9)] == [
        ERRORS,
        CONSISTENCY,
        SHIM_CHECK,
    ]


@needs_promtool
def test_a_shim_that_is_gone_has_one_alert(tmp_path: Path) -> None:
    """Everything that a core shows then, and nothing else is told."""
    gone = {
        'up{job="yunikorn"}': "1x60",
        "kornel_manager_registered": "1x60",
        "kornel_manager_gone": "1x60",
        "kornel_healthy": "0x60",
        ERRORS: "1x60",
        CONSISTENCY: "1x60",
        SHIM_CHECK: "0x60",
    }
    test = {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in gone.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "1h",
                "exp_samples": [{"labels": '{alertname="KornelNoShim"}', "value": 1}],
            }
        ],
    }
    wanted = {"rule_files": [str(PROMETHEUS / "alerts.yaml")], "evaluation_interval": "1m", "tests": [test]}
    file = tmp_path / "case.yaml"
    file.write_text(yaml.safe_dump(wanted))
    judged = _promtool("test", "rules", str(file))
    assert judged.returncode == 0, judged.stdout + judged.stderr


@needs_promtool
def test_promtool_finds_no_fault() -> None:
    for what, name in (("rules", "alerts.yaml"), ("config", "prometheus.yml")):
        checked = _promtool("check", what, str(PROMETHEUS / name))
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_has_a_case() -> None:
    assert {case.alert for case in CASES} == set(RULES)


@pytest.mark.parametrize("rule", list(RULES.values()), ids=list(RULES))
def test_every_alert_says_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"].endswith(".")


def _judge(cases: tuple[Case, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    """Returns what promtool says of *cases*: each alert fires where it should, and not where all is quiet.

    It evaluates every rule of a file each minute, so each case has a file with its own.
    """
    files = []
    for number, case in enumerate(cases):
        rules = folder / f"rules-{number}.yaml"
        rules.write_text(yaml.safe_dump({"groups": [{"name": "kornel", "rules": [RULES[case.alert]]}]}))
        tests = [
            {
                "interval": "1m",
                "input_series": [{"series": series, "values": values} for series, values in given.items()],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{case.alert}",alertstate="firing"}}) or vector(0)',
                        "eval_time": "1h",
                        "exp_samples": [{"labels": "{}", "value": expected}],
                    }
                ],
            }
            for given, expected in ((case.fires, 1), (case.quiet, 0))
        ]
        wanted = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}
        file = folder / f"case-{number}.yaml"
        file.write_text(yaml.safe_dump(wanted))
        files.append(str(file))
    return _promtool("test", "rules", *files)


@pytest.fixture(scope="module")
def all_pass(tmp_path_factory: pytest.TempPathFactory) -> bool:
    """Tells whether promtool finds no fault in all cases together; only otherwise it is asked about each."""
    return _judge(CASES, tmp_path_factory.mktemp("cases")).returncode == 0


@needs_promtool
@pytest.mark.parametrize("case", CASES, ids=[case.alert for case in CASES])
def test_an_alert_fires_when_it_should(case: Case, all_pass: bool, tmp_path: Path) -> None:
    if not all_pass:
        judged = _judge((case,), tmp_path)
        assert judged.returncode == 0, judged.stdout + judged.stderr
