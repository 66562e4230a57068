"""The table, the record and the plot of the benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kornel.shim_mock.load.workload import Workload
from tests.bench import pages, plot, record
from tests.bench.table import Row, line

RATES = Row("P2", "asks", "/s", [20_000, 30_000, 40_000], 30_000, ceilings=[100_000, 100_000, 100_000])
GROWTH = Row("P4", "cost with 100 nodes to 10", "x", [1.2], 1.5, at_most=True, points={10: 4.0, 100: 4.8})


def test_a_row_says_median_ratio_and_part_of_the_echo() -> None:
    assert (RATES.value, RATES.ratio, RATES.met, RATES.of_ceiling) == (30_000, 1.0, True, 0.3)
    assert "30,000 /s" in line(RATES, 1_234_567)
    assert "30%" in line(RATES, 1_234_567)
    assert "1235k" in line(RATES, 1_234_567)


@pytest.mark.parametrize(
    ("value", "target", "at_most", "met"),
    [(9.0, 10.0, False, False), (10.0, 10.0, False, True), (10.0, 10.0, True, True), (11.0, 10.0, True, False)],
)
def test_a_target_is_met_when_reached(value: float, target: float, *, at_most: bool, met: bool) -> None:
    row = Row("P1", "what", "ms", [value], target, at_most)
    assert row.met is met
    assert ("met" if met else "MISSED") in line(row, 1e6)


def test_a_record_is_added_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are files of their own, read back oldest first; the plot is drawn from the latest full one."""
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    monkeypatch.setattr(plot, "PLOT", tmp_path / "growth.svg")
    assert plot.draw() is None
    path = record.add(record.document([RATES, GROWTH], quick=False, steps_per_s=(1.0, 2.0)))
    (found,) = record.all_of_them()
    assert found == json.loads(path.read_text())
    assert [row["of_ceiling"] for row in found["rows"]] == [0.3, None]
    drawn = plot.draw()
    assert drawn is not None
    picture = drawn.read_text()
    assert picture.count("<circle") == len(GROWTH.points)
    assert ">number of nodes<" in picture


def test_committed_records_can_be_read() -> None:
    for found in record.all_of_them():
        assert {"taken", "commit", "python", "rows"} <= set(found)


def test_the_rows_of_the_latest_record_can_be_told_apart() -> None:
    """Tables are read row by row, and found in by name."""
    names = [(row["number"], row["what"]) for row in json.loads(pages.latest().read_text())["rows"]]
    assert len(set(names)) == len(names)


def test_a_nested_workload_asks_the_same_of_the_same_number_of_leaves() -> None:
    """P2 flat and nested differ in nothing but the tree."""
    flat, nested = Workload(asks=300), Workload(asks=300, queues=(10, 10))
    assert (flat.leaves[0], nested.leaves[0], len(flat.leaves)) == ("root.q0", "root.q0.q0", len(nested.leaves))
    assert list(flat.ask_messages("rm")) == list(nested.ask_messages("rm"))


def test_pages_take_their_tables_from_a_record() -> None:
    """Rows whose figures the record has are renewed, and what is around them stays."""
    nodes = Row("P4", "P2 engine alone, cost with 100,000 nodes to 1,000", "x", [1.2], 1.5, at_most=True)
    found = record.document([RATES, nodes], quick=False, steps_per_s=(1.0, 2.0))
    before = (
        "The complete record is `docs/bench/old.json`.\n\n"
        "| What | Measured |\n|---|---|\n| an idle core | 7 % |\n\n"
        "| With | The cost of one |\n|---|---|\n| 100,000 nodes instead of 1,000 | 9 times |\n| others | 3 times |\n\n"
        "End.\n"
    )
    after = before.replace("old.json", "new.json").replace("9 times", "1.20 times")
    assert pages.page(before, found, "new.json") == after
    text = pages.journal("Before.\n\n| # | Workload | Value |\n|---|---|---|\n| P1 | gone | 1 |\n\nAfter.\n", found)
    assert text == f"Before.\n\n{record.markdown(found)}\n\nAfter.\n"
    with pytest.raises(ValueError, match="no table begins"):
        pages.journal("Nothing.", found)


def test_the_pages_have_the_tables_that_a_record_renews() -> None:
    """A page that lost one would show old figures for ever."""
    latest = pages.latest()
    found = json.loads(latest.read_text())
    pages.journal(pages.JOURNAL.read_text(), found)
    assert latest.name in pages.page(pages.PAGE.read_text(), found, latest.name)


def test_what_was_measured_again_takes_the_place_of_the_former() -> None:
    """A workload that takes long may be recorded at another time; all others stay, in their order."""
    again = Row("P2", "asks", "/s", [50_000], 30_000)
    first, second = (record.document(rows, quick=False, steps_per_s=(1.0, 2.0)) for rows in ([RATES, GROWTH], [again]))
    joined = pages.join([first, second])
    assert [(row["number"], row["value"]) for row in joined["rows"]] == [("P2", 50_000), ("P4", 1.2)]
    assert joined["taken"] == first["taken"]
