"""The scripted core: good shims conform, and of a broken one it names what is broken and nothing else."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kornel.conformance.outcome import Result, Verdict
from kornel.conformance.report import as_json, verdict_line
from kornel.conformance.shim.checks import select_checks
from kornel.conformance.shim.process import CommandFailed
from kornel.conformance.shim.runner import judge_shim
from kornel.conformance.shim.stage import Patience
from tests.examples import mark_rest_long
from tests.patience import PATIENCE_S
from tests.prepared import python

ROOT = Path(__file__).parents[2]
PATIENCE = Patience(start_s=PATIENCE_S, deadline_s=PATIENCE_S, settle_s=0.3, watch_s=4.0)
IMPATIENT = Patience(start_s=PATIENCE_S, deadline_s=15.0, settle_s=0.3, watch_s=4.0)
"""For shims that never do something: the kit waits for it as long as this, so it costs time but no processor."""
SCENARIO = """
name: for-the-kit
queues: {partitions: [{name: default, queues: [{name: root, submitacl: "*", queues: [{name: a}]}]}]}
nodes: [{name: node, count: 3, resources: {vcore: 4}}]
applications:
  - {id: one, queue: root.a, tasks: [{name: worker, count: 5, resources: {vcore: 1}, restart: true}]}
  - {id: two, queue: root.a, tasks: [{name: worker, count: 3, resources: {vcore: 1}}]}
  # Never comes to it: a run whose tasks have all come ends as soon as nothing more can happen.
  - {id: later, queue: root.a, tasks: [{name: worker, count: 1, at: 5m, resources: {vcore: 1}}]}
duration: 10m
"""

SCENARIO_WITH_DEVICES = SCENARIO.replace(
    "vcore: 4}}", "vcore: 4}, devices: [{id: a}, {id: b}, {id: c}, {id: d}]}"
).replace("restart: true", "restart: true, devices: {count: 1}")


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shims are programs of their own and find our packages by this."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(ROOT)


def module(name: str, *arguments: str) -> list[str]:
    return [python(), "-m", name, *arguments, "--core", "{address}"]


async def judge(command: Sequence[str], *checks: str, patience: Patience = PATIENCE) -> dict[str, Result]:
    results = await judge_shim(command, select_checks(checks), patience)
    return {result.case.id: result for result in results}


def ids(results: dict[str, Result], verdict: Verdict) -> list[str]:
    return [check for check, result in results.items() if result.verdict is verdict]


def told(results: dict[str, Result]) -> str:
    return "; ".join(f"{check}: {result.reason}" for check, result in results.items() if result.reason)


async def test_example_conforms() -> None:
    """The example does all that a shim without gangs and recovered nodes can do."""
    results = await judge(module("kornel.shim_client.example"))
    assert not ids(results, Verdict.FAIL), told(results)
    assert ids(results, Verdict.UNSEEN) == ["S8", "S9", "S29", "S34", "S35"]
    assert verdict_line(list(results.values()), "checks") == "35 checks: 30 pass, 5 not seen, 0 fail: conforms"


async def test_simulated_cluster_conforms(tmp_path: Path) -> None:
    """So does the simulated cluster, which comes back to a core that was restarted, and has no gangs here."""
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(SCENARIO)
    results = await judge(module("kornel.shim_mock", "run", str(scenario)))
    assert not ids(results, Verdict.FAIL), told(results)
    assert ids(results, Verdict.UNSEEN) == ["S8", "S9", "S29", "S34", "S35"]


@pytest.mark.parametrize(("never", "broken"), [("nothing", []), ("TIMEOUT", ["S8"]), ("PLACEHOLDER_REPLACED", ["S9"])])
async def test_gang_is_seen(never: str, broken: list[str]) -> None:
    """Of a shim with placeholders both of their handshakes are judged."""
    gang = ("S3", "S5", "S8", "S9")
    results = await judge(module("tests.conformance.gang_shim", "--never", never), *gang, patience=IMPATIENT)
    assert ids(results, Verdict.FAIL) == broken, told(results)
    assert not ids(results, Verdict.UNSEEN)


@pytest.mark.parametrize(
    ("way", "broken", "unseen"),
    mark_rest_long(
        [
            ("nothing", [], []),
            ("judges_at_once", ["S34"], []),
            ("calls_nothing_dependent", ["S35"], ["S34"]),
            ("overlooks_rules_of_others", ["S35"], ["S34"]),
            ("assumes", [], []),
            ("acknowledges", [], ["S34"]),
        ],
        keep=3,
    ),
)
async def test_rules_are_seen(way: str, broken: list[str], unseen: list[str]) -> None:
    """Of a shim that answers questions it is judged in which order, and whether it says what depends on what."""
    checks = ("S2", "S3", "S5", "S7", "S20", "S21", "S31", "S32", "S34", "S35")
    results = await judge(module("tests.conformance.rule_shim", way), *checks, patience=IMPATIENT)
    assert ids(results, Verdict.FAIL) == broken, told(results)
    assert ids(results, Verdict.UNSEEN) == unseen, told(results)


@pytest.mark.parametrize(
    ("way", "broken"),
    mark_rest_long([("never_confirms", ["S7"]), ("asks_too_soon", ["S5", "S20"]), ("dies_of_unknown_fields", ["S12"])]),
)
async def test_what_is_broken_is_named(way: str, broken: list[str]) -> None:
    """Out of all checks, only those that the shim breaks fail."""
    results = await judge(module("tests.conformance.broken_shims", way), patience=IMPATIENT)
    assert ids(results, Verdict.FAIL) == broken, told(results)


@pytest.mark.parametrize(
    ("way", "check", "broken"),
    mark_rest_long(
        [
            ("dies_of_a_second_new", "S10", ["S10"]),
            ("registers_after_a_break", "S15", ["S17"]),
            ("forgets_what_runs", "S21", ["S20", "S21"]),
            ("ends_what_runs", "S32", ["S32"]),
            ("gives_up_on_its_asks", "S22", ["S22"]),
            ("forgets_what_it_sent", "S28", ["S28"]),
            ("knows_nothing_of_epochs", "S28", []),
            ("ignores_sigterm", "S25", ["S25"]),
            ("confirms_as_stopped", "S10", ["S7"]),
            ("dies_of_unknown_types", "S13", ["S13"]),
            ("dies_of_unknown_states", "S14", ["S14"]),
            ("dies_of_a_break", "S15", ["S15"]),
            ("dies_of_a_break", "S16", ["S16"]),
            ("forgets_devices", "S29", ["S29"]),
            ("confirms_twice", "S30", ["S30"]),
            ("doubles_what_runs", "S31", ["S31"]),
            ("reports_what_has_ended", "S32", ["S32"]),
            ("claims_too_much", "S33", ["S33"]),
            ("uses_two_names", "S25", ["S2"]),
            ("ends_slowly_of_a_refusal", "S22", ["S22"]),
            ("gives_up_beside_its_work", "S24", ["S24"]),
            ("creates_no_node", "S26", ["S26"]),
            ("asks_for_nothing", "S26", ["S26"]),
            ("comes_back", "S27", ["S27"]),
            ("ends_at_once", "S25", ["S25"]),
        ],
        keep=8,
    ),
)
async def test_each_provocation_finds_its_shim(way: str, check: str, broken: list[str]) -> None:
    """The session of *check* and the first one show what is broken."""
    always = [f"S{number}" for number in (1, 2, 3, 4, 5, 6, 7, 17, 18, 19, 20)]
    chosen = [each for each in always if check in ("S15", "S21") or int(each[1:]) < 17]
    results = await judge(module("tests.conformance.broken_shims", way), *chosen, check, patience=IMPATIENT)
    assert ids(results, Verdict.FAIL) == broken, told(results)
    for each in broken:
        # It is the session that says what the shim did not bear, not what it wrote last.
        assert re.match(r"in session [\w ]+: ", results[each].reason)


async def test_devices_are_seen(tmp_path: Path) -> None:
    """Shims that want devices are judged by what they report of them."""
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(SCENARIO_WITH_DEVICES)
    for command in (
        module("tests.conformance.broken_shims", "wants_devices"),
        module("kornel.shim_mock", "run", str(scenario)),
    ):
        results = await judge(command, "S20", "S21", "S29", patience=IMPATIENT)
        assert ids(results, Verdict.PASS) == ["S20", "S21", "S29"], told(results)


async def test_a_shim_that_answers_no_question_does_not_conform() -> None:
    """Nothing of it runs, so most checks see nothing."""
    results = await judge(module("tests.conformance.rule_shim", "never_answers"), "S7", "S26", patience=IMPATIENT)
    assert ids(results, Verdict.FAIL) == ["S26"], told(results)
    assert results["S26"].reason.endswith("the shim answered no question, so most checks do not apply")
    assert ids(results, Verdict.UNSEEN) == ["S7"]


async def test_a_long_cleanup_after_a_refusal_is_no_pass() -> None:
    """Nothing but its status tells such a shim from a good one, so the kit watches for long unless told otherwise."""
    results = await judge(
        module("tests.conformance.broken_shims", "ends_very_slowly_of_a_refusal"), "S22", patience=Patience()
    )
    assert ids(results, Verdict.FAIL) == ["S22"]
    assert results["S22"].reason == "in session refused UpdateNode: it ended with status 1"


async def test_a_pass_after_a_refusal_says_how_long_was_watched() -> None:
    """A shim might still end later than that."""
    results = await judge(module("kornel.shim_client.example"), "S22", "S24", patience=IMPATIENT)
    # It may have been longer.
    for check, more in (("S22", ""), ("S24", ", and to confirm a release")):
        seen = re.fullmatch(rf"seen to run on for (\d+) s{more}", results[check].reason)
        assert seen is not None, results[check].reason
        assert int(seen[1]) >= IMPATIENT.watch_s
    assert f'"reason": "{results["S22"].reason}"' in as_json([results["S22"]])


async def test_a_command_that_does_not_exist() -> None:
    """It is not a shim that fails."""
    with pytest.raises(CommandFailed, match="cannot start no-such-shim"):
        await judge(["no-such-shim"])


async def test_a_program_that_is_no_shim() -> None:
    """It fails the first check with its last words, and nothing else is tried."""
    results = await judge([sys.executable, "-c", "raise SystemExit('not today')"])
    assert ids(results, Verdict.FAIL) == ["S1"]
    reason = "in session first: the shim did not register: it ended with status 1, and wrote last: not today"
    assert results["S1"].reason == reason
    assert len(asyncio.all_tasks()) == 1
