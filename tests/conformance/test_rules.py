"""``kornel-conformance rule``: what reports cite can be read by whoever runs the kit."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from kornel.conformance.case import all_cases
from kornel.conformance.cli import app
from kornel.conformance.rules import CASES, CONTRACT, UnknownRule, read_page, show_case, show_rule
from kornel.conformance.shim.checks import ALL_CHECKS


def test_every_rule_the_kit_cites_is_shown() -> None:
    """Of cases and of checks, as the table of a report has it."""
    rules = [case.rule for case in all_cases()] + [check.rule for check in ALL_CHECKS]
    for rule in rules:
        shown = show_rule(rule)
        assert shown.startswith(("## ", "### "))
        assert len(shown.splitlines()) > 2, rule


def test_every_case_of_the_kit_is_in_the_contract() -> None:
    """Under its number, and no other is."""
    listed = read_page(CONTRACT).sections[CASES].items
    assert [int(number) for number in listed] == [one.number for one in all_cases()]
    assert show_case(83).startswith("83. G app, pending k")


def test_a_section_comes_with_those_below_it() -> None:
    """And with nothing of the next one, and no anchors."""
    shown = show_rule("8")
    assert shown.startswith("## 8 AllocationRequest")
    assert "### 8.3 " in shown
    assert "9 Foreign" not in shown
    assert "{#" not in shown
    assert show_rule("protocol.md 8.2") == show_rule("8.2")
    assert "8.3" not in show_rule("8.2").splitlines()[0]


def test_a_row_comes_with_the_heading_of_its_table() -> None:
    shown = show_rule("protocol.md 16 DB-7")
    assert shown == show_rule("DB-7")
    heading, _, names, _, row = shown.splitlines()
    assert heading == "## 16 Where Kornel differs from upstream"
    assert names.startswith("| # |")
    assert row.startswith("| DB-7 |")


def test_other_pages_have_rules_too() -> None:
    """Those that the contract names."""
    assert show_rule("rest.md 8").startswith("## 8 State dump")
    assert "| K14 |" in show_rule("preemption.md K14")
    assert show_rule("preemption.md D.4").startswith("### D.4 Timer")


@pytest.mark.parametrize("words", ["", "protocol.md", "99", "8.99", "nowhere.md 3", "../protocol.md 3", "17 DB-7"])
def test_what_is_not_written_is_told(words: str) -> None:
    with pytest.raises(UnknownRule):
        show_rule(words)


def test_the_command_prints_a_rule() -> None:
    """By its place, by a case and by a check."""
    run = CliRunner().invoke
    assert run(app, ["rule", "8.2"]).output.startswith("### 8.2 A known key, sent again")
    by_case = run(app, ["rule", "--case", "83"]).output
    assert by_case.startswith("83. G app")
    assert "### 8.2 A known key, sent again" in by_case
    by_check = run(app, ["rule", "--case", "s7"]).output
    assert by_check.startswith("S7: confirms the release of a victim")
    assert "### 10.3 Handshakes" in by_check


@pytest.mark.parametrize("arguments", [[], ["99"], ["--case", "999"], ["--case", "abc"], ["--case", "S99"]])
def test_the_command_says_what_it_does_not_know(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["rule", *arguments]).exit_code == 2
