"""Where an ask stands, in plain values."""

from __future__ import annotations

from kornel.core.domain.commands import AnswerCallbacks, AttachCallbacks, PredicatesAnswer
from kornel.core.domain.effects import PredicatesAsked
from kornel.core.engine.engine import Engine
from kornel.core.model.not_placed import Failure
from kornel.core.state.asks import reservations
from kornel.core.telling.allocations.explanation import AskReport
from kornel.core.telling.explain import AskStanding, Named
from kornel.core.telling.reader import Reader
from tests.reading import read
from tests.scenarios.stage import Stage

PARTITION = "[rm-1]default"


def report(engine: Engine, key: str) -> AskReport | None:
    return read(engine, PARTITION).explain(AskStanding(key))


def standing(engine: Engine, key: str) -> tuple[str, str, str, str]:
    found = report(engine, key)
    assert found is not None
    return found.application_id, found.queue, found.state, found.node_id


def test_every_state_an_ask_can_be_in() -> None:
    """Allocated and Reserved name their node, Pending has none, and what is not known is not explained."""
    stage = Stage()
    stage.play(
        ["node n1", "app app1", "ask small", "cycle", "ask big vcore=99000", "foreign f node=n1 vcore=1", "cycle"]
    )
    assert standing(stage.engine, "small") == ("app1", "root.a", "Allocated", "n1")
    assert standing(stage.engine, "big") == ("app1", "root.a", "Pending", "")
    big = report(stage.engine, "big")
    assert big is not None
    assert [(failure.message, failure.times) for failure in big.failures] == [
        ("No node has enough room for vcore=99", 1)
    ]
    assert report(stage.engine, "f") is None
    assert report(stage.engine, "unknown") is None
    assert Reader(stage.engine).get("[rm-1]other") is None


def test_a_reserved_ask_names_the_node_that_is_kept_for_it() -> None:
    """A reservation is for one node, and an ask has at most one."""
    stage = Stage()
    stage.play(["node n1", "node n2", "app app1", "ask big vcore=99000"])
    state = stage.engine.partition(PARTITION)
    assert state is not None
    reservations.reserve_node(state, state.requests["big"], state.nodes["n2"], 5)
    assert standing(stage.engine, "big") == ("app1", "root.a", "Reserved", "n2")


def test_an_ask_that_waits_for_an_answer_is_held() -> None:
    """While the shim is asked, the node has its room set aside; what the shim refuses with is a failure."""
    stage = Stage()
    stage.play(["node n1", "app app1", "cycle"])
    engine = stage.engine
    engine.apply(AttachCallbacks("rm-1", predicates=True), 10)
    stage.play(["ask k"])
    (asked,) = [effect for effect in engine.cycle(20, 10).effects if isinstance(effect, PredicatesAsked)]
    assert standing(engine, "k") == ("app1", "root.a", "Held", "n1")
    refusal = PredicatesAnswer(asked.question, (("n1", "taint"),))
    engine.apply(AnswerCallbacks("rm-1", predicates=(refusal,)), 30)
    found = report(engine, "k")
    assert found is not None
    assert (found.state, found.node_id) == ("Pending", "")
    assert Failure("taint", 1, 30) in found.failures


def test_an_explanation_tells_nobody_of_a_limit() -> None:
    """With events on, it writes none and takes none away: the next cycle says that the max is in the way."""
    stage = Stage()
    stage.play(["queue root.a max={vcore=3000}", "node n1", "app app1"])
    stage.engine.record_events()
    stage.play(["attach events", "ask k vcore=2000", "cycle", "ask w vcore=2000"])
    state = stage.engine.partition("[rm-1]default")
    assert state is not None
    report = read(stage.engine, "[rm-1]default", stage.now_ns).explain(Named("w"))
    assert isinstance(report, AskReport)
    assert report.blockers
    assert state.effects == []
    assert any("event REQUEST w" in answer for answer in stage.play(["cycle"]))
