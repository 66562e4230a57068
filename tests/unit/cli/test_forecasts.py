"""What the command line says about what would happen, and about what happened to an application."""

from __future__ import annotations

from kornel.cli.text.explain import render_explanation, render_forecast
from kornel.v1 import explain_pb2 as pb
from kornel.v1.events_pb2 import DecisionVictim


def test_a_member_that_needs_no_victims_finds_room() -> None:
    """It belongs to a gang in which others need some."""
    first = pb.ForecastPreemption(key="what-if-1", node_id="n1", kind="guarantee")
    second = pb.ForecastPreemption(
        key="what-if-2", node_id="n2", kind="guarantee", victims=[pb.ForecastVictim(key="v1")]
    )
    lines = render_forecast(pb.WhatIfResponse(preemptions=[first, second], complete=True), 0).splitlines()
    assert "what-if-1 finds room on n1" in lines
    assert any(line.startswith("what-if-2 preempts (guarantee)") and line.endswith("v1 leaves n2") for line in lines)


def test_what_waits_anyway_is_only_counted() -> None:
    """Of 601 lines of a change of limits, 598 were asks that waited before; sums by queue, user and application come
    first, then the victims, the most important in front."""
    anyway = [
        pb.ForecastWait(key=f"w{at}", application_id=f"a{at}", queue="root.a", ask_count=2, already=True)
        for at in range(300)
    ]
    waits = pb.ForecastWait(key="new", application_id="b", queue="root.b", user="bob", ask_count=3, reason="room")
    victims = [
        pb.ForecastVictim(key="v1", application_id="x", queue="root.x", user="ann", priority=7),
        pb.ForecastVictim(key="v2", application_id="x", queue="root.x", user="ann", originator=True),
    ]
    preempts = pb.ForecastPreemption(key="p", application_id="b", queue="root.b", user="bob", victims=victims)
    answer = pb.WhatIfResponse(preemptions=[preempts], waiting=[*anyway, waits], complete=True)
    lines = render_forecast(answer, 0).splitlines()
    assert lines[0].endswith("3 would wait, 600 would go on waiting, 2 allocations would have to leave")
    assert len(lines) < 30
    for line in (
        "root.b  0       1        3     0",
        "ann   0       0        0     2",
        "x            0       0        0     2",
    ):
        assert any(each.strip() == line for each in lines), (line, lines)
    leaving = [line.split()[0] for line in lines if "root.x" in line and "ann" in line]
    assert leaving == ["v2", "v1"]


def test_what_waits_anyway_is_told_last() -> None:
    """As something that goes on, not as a consequence."""
    anyway = pb.ForecastWait(key="old", application_id="a", queue="root.a", ask_count=2, reason="room", already=True)
    waits = pb.ForecastWait(key="new", application_id="b", queue="root.b", ask_count=1, reason="room")
    lines = render_forecast(pb.WhatIfResponse(waiting=[anyway, waits], complete=True), 0).splitlines()
    assert any(line.startswith("new would wait: room") for line in lines)
    assert lines[-1].startswith("old and 1 more like it go on waiting: room")


def test_many_victims_of_an_application_have_a_line_each() -> None:
    """Twenty paragraphs that say the same would drown the rest."""
    victims = [
        pb.PreemptedWork(
            victim=DecisionVictim(key=f"v{at}", node_id="n1"), at_ns=10**9, kind="guarantee",
            taken_by=f"p{at}", taken_by_queue="root.b", law="law 4",
        )
        for at in range(20)
    ]  # fmt: skip
    report = pb.ApplicationReport(application_id="app", preempted=victims)
    text = render_explanation(pb.ExplainResponse(application=report), 6 * 10**9)
    assert "law 4" not in text
    rows = [line.split() for line in text.splitlines()[-20:]]
    assert rows[7] == ["v7", "5s", "ago", "guarantee", "p7", "root.b"]


def test_what_waits_for_the_same_reason_is_told_once() -> None:
    """Whether each of them saves room on a node of its own or not."""
    waits = [
        pb.ForecastWait(key=f"w{at}", application_id="a", queue="root.a", ask_count=at, reason="room", already=True)
        for at in range(1, 15)
    ]
    other = pb.ForecastWait(key="x", application_id="b", queue="root.a", ask_count=1, reason="room", already=True)
    lines = render_forecast(pb.WhatIfResponse(waiting=[*waits, other], complete=True), 0).splitlines()
    assert [line.split(" go")[0] for line in lines if " go on waiting:" in line] == ["w1 and 104 more like it"]
    assert lines[-1].startswith("x goes on waiting: room")


def test_an_answer_that_was_cut_short_names_bounds() -> None:
    """More may preempt than were found, and fewer wait."""
    preempts = pb.ForecastPreemption(key="p", kind="guarantee", victims=[pb.ForecastVictim(key="v")])
    waits = pb.ForecastWait(key="w", ask_count=7)
    answer = pb.WhatIfResponse(preemptions=[preempts], waiting=[waits], notes=["cut short"])
    assert render_forecast(answer, 0).splitlines()[0] == (
        "0 asks placed at once, 1 or more by preemption, up to 7 would wait, 1 allocation or more would have to leave"
    )


def test_many_who_preempt_alike_have_one_line() -> None:
    """The table of victims says for whom each leaves."""
    preempts = [
        pb.ForecastPreemption(
            key=f"p{at}", application_id="a", kind="guarantee", node_id="n1", victims=[pb.ForecastVictim(key=f"v{at}")]
        )
        for at in range(30)
    ]
    lines = render_forecast(pb.WhatIfResponse(preemptions=preempts, complete=True), 0).splitlines()
    assert [line.split(" from ")[0] for line in lines if "preempt (" in line] == ["p0 and 29 more preempt (guarantee)"]
    assert {(row[0], row[-1]) for row in map(str.split, lines[-30:])} == {(f"v{at}", f"p{at}") for at in range(30)}
