"""Reports of a run: a table for people, JUnit XML and JSON for programs, and one line with the verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from rich.console import Console
from rich.markdown import Markdown
from rich.markup import escape
from rich.table import Table

from kornel.conformance.outcome import Checked, Result, Verdict
from kornel.shared.visible import write_visibly

_STYLES: Final = {
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.GAP: "cyan",
    Verdict.UNSEEN: "yellow",
}


def nothing_failed(results: Iterable[Result]) -> bool:
    """Tells whether no result is a failure."""
    return not any(result.verdict is Verdict.FAIL for result in results)


def verdict_line(results: Sequence[Result], noun: str) -> str:
    """Returns the verdict in a line, such as "157 cases: 150 pass, 7 known gaps, 0 fail: conforms"."""
    counts = Counter(result.verdict for result in results)
    parts = [f"{counts[Verdict.PASS]} pass"]
    parts += [f"{gaps} known gap{'s' if gaps > 1 else ''}"] if (gaps := counts[Verdict.GAP]) else []
    parts += [f"{counts[Verdict.UNSEEN]} not seen"] if counts[Verdict.UNSEEN] else []
    parts.append(f"{counts[Verdict.FAIL]} fail")
    failed = ", ".join(result.case.id for result in results if result.verdict is Verdict.FAIL)
    end = f"does NOT conform: failed {failed}" if failed else "conforms"
    return f"{len(results)} {noun}: {', '.join(parts)}: {end}"


def print_report(console: Console, results: Sequence[Result], noun: str) -> None:
    """Prints the table and the verdict."""
    table = Table(box=None, pad_edge=False)
    for heading in ("id", "rule", "verdict"):
        table.add_column(heading, no_wrap=True)
    table.add_column("title", ratio=1)
    table.add_column("reason", ratio=1)
    for result in results:
        case = result.case
        verdict = f"[{_STYLES[result.verdict]}]{result.verdict}[/]"
        table.add_row(
            case.id, case.rule, verdict, escape(write_visibly(case.title)), escape(write_visibly(result.reason))
        )
    console.print(table)
    console.print(verdict_line(results, noun), soft_wrap=True, highlight=False)


def print_list(console: Console, cases: Sequence[Checked]) -> None:
    """Prints the list of all cases or checks."""
    for case in cases:
        line = f"{case.id:>3}  {case.group:<13} {case.rule:<21} {case.title}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_rule(console: Console, text: str) -> None:
    """Prints a rule: fitted to the width of a terminal, or unchanged if the output is no terminal."""
    if console.is_terminal:
        console.print(Markdown(text))
    else:
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def as_json(results: Iterable[Result]) -> str:
    """Returns a list of objects, one per case."""
    return json.dumps([_plain_values(result) for result in results], indent=2).replace("\x7f", "\\u007f")


def write_junit(path: Path, results: Sequence[Result], suite: str) -> None:
    """Writes JUnit XML. A case that is excused or unseen becomes a skipped test."""
    counts = Counter(result.verdict for result in results)
    root = ET.Element(
        "testsuite",
        name=suite,
        tests=str(len(results)),
        failures=str(counts[Verdict.FAIL]),
        errors="0",
        skipped=str(counts[Verdict.GAP] + counts[Verdict.UNSEEN]),
        time=f"{sum(result.took_s for result in results):.3f}",
    )
    for result in results:
        root.append(_test_case(result, suite))
    tree = ET.ElementTree(root)
    ET.indent(tree)
    path.parent.mkdir(parents=True, exist_ok=True)
    tree.write(path, encoding="utf-8", xml_declaration=True)


def _test_case(result: Result, suite: str) -> ET.Element:
    case = result.case
    element = ET.Element(
        "testcase",
        classname=f"{suite}.{case.group}",
        name=f"{case.id} {case.title}",
        time=f"{result.took_s:.3f}",
    )
    properties = ET.SubElement(element, "properties")
    ET.SubElement(properties, "property", name="rule", value=case.rule)
    if result.verdict is Verdict.PASS and result.reason:
        ET.SubElement(properties, "property", name="seen", value=write_visibly(result.reason))
    if result.verdict is Verdict.FAIL:
        ET.SubElement(element, "failure", message=write_visibly(result.reason))
    elif result.verdict is not Verdict.PASS:
        ET.SubElement(element, "skipped", message=write_visibly(f"{result.verdict}: {result.reason}"))
    return element


def _plain_values(result: Result) -> dict[str, object]:
    case = result.case
    return {
        "id": case.id,
        "group": case.group,
        "title": case.title,
        "rule": case.rule,
        "verdict": result.verdict.value,
        "reason": result.reason,
    }
