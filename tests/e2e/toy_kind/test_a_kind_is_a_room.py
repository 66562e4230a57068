"""A new kind of preemption is a folder and three lines: then everything that tells of kinds tells of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, expect

from tests.e2e.toy_kind.conftest import LINES, ROOT, ToyCore, environment, run_commands, with_lease
from tests.e2e.web.browser import visit
from tests.patience import PATIENCE_S

in_session = pytest.mark.asyncio(loop_scope="session")

REMEMBER = """
from kornel.core.domain.commands import RegisterManager
from kornel.core.engine.engine import Engine
from kornel.core.preemption.lease.lease_record import LeaseRecord
from kornel.core.snapshot.engines import restore_engine, write_engine
engine, restored = Engine(), Engine()
engine.apply(RegisterManager("rm"), 1)
engine.partition("[rm]default").records[LeaseRecord].ended_ns["k"] = 7
restore_engine(restored, write_engine(engine))
print(restored.partition("[rm]default").records[LeaseRecord].ended_ns)
"""
LAW = "it ran for longer than its lease, and its queue keeps what it is guaranteed (law 2)"


def test_it_takes_at_most_three_lines_outside_its_folder(tmp_path: Path) -> None:
    """Each of them is there once in the copy, and nothing else differs from the core."""
    assert sum(map(len, LINES.values())) <= 3
    with_lease(tmp_path)
    for name, added in LINES.items():
        copy = (tmp_path / name).read_text(encoding="utf-8").splitlines()
        ours = (ROOT / name).read_text(encoding="utf-8").splitlines()
        assert len(copy) == len(ours) + len(added)
        assert [copy.count(line) for line in added.values()] == [1] * len(added)


def test_a_snapshot_keeps_what_it_remembers(folder: Path) -> None:
    """An engine that was restored from one has the record of the kind, and nobody listed its class."""
    done = subprocess.run(
        [sys.executable, "-c", REMEMBER], cwd=folder, env=environment(folder), stdout=subprocess.PIPE, text=True,
        timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    assert done.stdout == "{'k': 7}\n"


@in_session
async def test_everything_tells_of_it(core: ToyCore, evicted: str) -> None:
    """Explain, the log, metrics, REST and the list of decisions: its name, its victims and its law."""
    told, waiting = run_commands(core.folder, *(("explain", key, "--grpc", core.grpc) for key in (evicted, "large")))
    assert "lease" in told
    assert LAW in told
    assert "preemption: would-help" in waiting
    assert "a lease ends" in waiting
    (line,) = core.logged("preemption decided")
    assert (line["kind"], line["outcome"], line["victims"], line["level"]) == ("lease", "TRIGGERED", ["k"], "info")
    async with httpx.AsyncClient(base_url=core.rest, timeout=PATIENCE_S) as http:
        metrics = (await http.get("/ws/v1/metrics")).text
        assert 'kornel_preemption_victims_total{kind="lease",laws="2"} 1.0' in metrics
        assert 'kornel_preemption_attempts_total{kind="lease",law="",outcome="TRIGGERED"} 1.0' in metrics
        assert 'kornel_preemption_victim_resources_total{kind="lease",resource="vcore"} 1000.0' in metrics
        (decision,) = (await http.get("/ws/v1/partition/default/preemptions")).json()["preemptions"]
        assert (decision["kind"], decision["outcome"], decision["law"]) == ("lease", "TRIGGERED", LAW)
        assert [victim["allocationKey"] for victim in decision["victims"]] == ["k"]
        kinds = {kind["name"]: kind for kind in (await http.get("/ws/v1/preemption-kinds")).json()["kinds"]}
        assert list(kinds) == [
            "required-node",
            "quota",
            "guarantee",
            "within",
            "monitor",
            "lease",
            "by-hand",
            "governor",
        ]
        assert (kinds["lease"]["laws"], kinds["lease"]["law"]) == ([2], LAW)


def test_the_configuration_knows_its_section_and_its_name(folder: Path, tmp_path: Path) -> None:
    """Its keys are checked as those of every other kind are, and it may be left out of the policies."""
    cases = (
        ("lease: {longest_ms: 5}", ": checksum"),
        ("policies: [lease, quota]", ": checksum"),
        ("lease: {longest_ms: 0}", "lease.longest_ms"),
        ("lease: {shortest_ms: 5}", "lease.shortest_ms"),
        ("policies: [leash]", "required-node, quota, guarantee, within, monitor, lease"),
    )
    files = [tmp_path / f"queues-{number}.yaml" for number in range(len(cases))]
    for file, (written, _) in zip(files, cases, strict=True):
        file.write_text(f"partitions: [{{queues: [], preemption: {{{written}}}}}]", encoding="utf-8")
    told = run_commands(folder, *(("config", "check", str(file)) for file in files))
    for (written, wanted), text in zip(cases, told, strict=True):
        assert wanted in text, written


@pytest.mark.long
@in_session
async def test_the_page_shows_it(core: ToyCore, evicted: str, browser: Browser) -> None:
    """A lane, a row, a colour and a choice of its own; the decision has its law."""
    async with visit(browser, core.rest + "/") as shown:
        await shown.view("preemption")
        row = shown.page.get_by_role("grid", name="Decisions to preempt").get_by_role("row").first
        for text in ("Lease", evicted, "its lease", "Preempted"):
            await expect(row).to_contain_text(text)
        await expect(row.locator(".kind")).to_have_attribute("data-colour", "rose")
        await expect(shown.page.get_by_text("1 decision, 1 victim")).to_be_visible()
        await shown.page.get_by_label("Kind", exact=True).select_option("monitor")
        await expect(shown.page.get_by_text("No allocation was preempted.")).to_be_visible()
        await shown.page.get_by_label("Kind", exact=True).select_option("lease")
        await row.get_by_text("Preempted").click()
        await expect(shown.page.locator("#panel")).to_contain_text(LAW)
        shown.check()
