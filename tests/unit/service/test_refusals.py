"""What a core refused is remembered, each kind for itself, and logged without flooding the log."""

from __future__ import annotations

from typing import Any

from structlog import get_logger
from structlog.testing import capture_logs

from kornel.core.domain.effects import AllocationRejected, ApplicationRejected, Effect, NodeAccepted, NodeRejected
from kornel.core.service.configuration.configuration_history import ConfigurationHistory, Origin
from kornel.core.service.events.refusals import KEPT_OF_KIND, LINES_AT_ONCE, RefusalKeeper, RefusalKind
from kornel.core.service.machine.clock import SECOND_NS, ManualClock

HERE = "[rm-1]default"


class Site:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.keeper = RefusalKeeper(clock=self.clock, logger=get_logger())

    def see(self, *effects: Effect) -> list[Any]:
        """What is logged about *effects*."""
        with capture_logs() as lines:
            self.keeper.of_manager(lambda: "rm-1").observe(effects)
        return lines


def refused_ask(key: str, partition: str = HERE) -> AllocationRejected:
    return AllocationRejected(key, "app", f"no-resources: ask {key} wants nothing", False, partition)


def test_a_refusal_says_what_why_when_and_whose() -> None:
    site = Site()
    node = NodeRejected("n1", "node-exists: node 'n1' is registered", HERE)
    application = ApplicationRejected("app", "no-queue: no rule places it: root.x", "[rm-1]other", "root.x", "ann")
    lines = site.see(NodeAccepted("n0"), node, application, refused_ask("k"))
    found = site.keeper.newest()
    assert [(each.number, each.kind, each.name) for each in found] == [
        (3, RefusalKind.ASK, "k"),
        (2, RefusalKind.APPLICATION, "app"),
        (1, RefusalKind.NODE, "n1"),
    ]
    assert found[1][1:] == (
        site.clock.now_ns(), RefusalKind.APPLICATION, "app", "rm-1", "[rm-1]other", "app", "root.x", "ann",
        "no-queue", "no rule places it: root.x",
    )  # fmt: skip
    assert [(line["event"], line["name"], line["reason"], line["rm_id"]) for line in lines] == [
        ("node refused", "n1", "node-exists", "rm-1"),
        ("application refused", "app", "no-queue", "rm-1"),
        ("ask refused", "k", "no-resources", "rm-1"),
    ]


def test_a_flood_of_one_kind_leaves_the_others() -> None:
    site = Site()
    site.see(NodeRejected("n1", "node-exists: n1", HERE))
    site.see(*(refused_ask(f"k-{at}") for at in range(KEPT_OF_KIND + 7)))
    asks = site.keeper.newest([RefusalKind.ASK])
    assert len(asks) == KEPT_OF_KIND
    assert (asks[0].name, asks[-1].name) == (f"k-{KEPT_OF_KIND + 6}", "k-7")
    assert site.keeper.counts == {RefusalKind.ASK: KEPT_OF_KIND + 7, RefusalKind.NODE: 1}
    assert site.keeper.newest()[-1].name == "n1"


def test_the_log_has_a_line_for_some_and_a_count_of_the_rest() -> None:
    site = Site()
    lines = site.see(*(refused_ask(f"k-{at}") for at in range(LINES_AT_ONCE + 30)))
    assert len(lines) == LINES_AT_ONCE
    site.clock.advance(10 * SECOND_NS)
    lines = site.see(refused_ask("later"))
    assert [line["event"] for line in lines] == ["more entries refused", "ask refused"]
    assert lines[0]["entries"] == 30


def test_a_partition_has_its_own_and_configurations() -> None:
    site = Site()
    site.see(refused_ask("here"), refused_ask("there", "[rm-1]other"))
    history = ConfigurationHistory()
    site.keeper.version_added(
        history.add(at_ns=5, origin=Origin.UPDATE, rm_id="rm-1", text="x", reason="line 1: no root", principal="ann")
    )
    site.keeper.version_added(history.add(at_ns=6, origin=Origin.UPDATE, rm_id="rm-1", text="y"))
    assert [each.name for each in site.keeper.newest(partition=HERE)] == ["1", "here"]
    refused = site.keeper.newest([RefusalKind.CONFIGURATION])
    assert [(each.at_ns, each.user, each.reason, each.message) for each in refused] == [
        (5, "ann", "bad-configuration", "line 1: no root")
    ]


def test_names_without_end_are_cut() -> None:
    site = Site()
    site.see(AllocationRejected("k" * 100_000, "a" * 100_000, "name-too-long: " + "x" * 100_000, False, "p" * 100_000))
    assert len("".join(map(str, site.keeper.newest()[0]))) < 10_000
