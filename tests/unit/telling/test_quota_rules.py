"""Suppositions about limits are refused where a configuration that said so would be."""

from __future__ import annotations

import pytest

from kornel.core.domain.commands import CommandRefused
from kornel.core.telling.reader import Reader
from kornel.core.telling.what_if.supposition import SupposeQuota
from tests.scenarios.stage import Stage
from tests.supposing import suppose

TREE = (
    "queue root.p max={f=20} guaranteed={f=10} parent",
    "queue root.p.a max={f=15} guaranteed={f=6}",
    "queue root.p.b guaranteed={f=4}",
    "node n1 f=40",
)


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (SupposeQuota("root.p.a", {"f": 5}, {}), "guaranteed f 6 is above its max f 5"),
        (SupposeQuota("root.p.a", {"f": 25}, {}), "max f 25 is above the max f 20 of root.p"),
        (SupposeQuota("root.p", {"f": 12}, {}), "queue root.p.a: max f 15 is above the max f 12 of root.p"),
        (
            SupposeQuota("root.p.a", {}, {"f": 7}),
            "the queues below root.p have f 11 guaranteed, more than its own f 10",
        ),
        (SupposeQuota("root.p", {}, {"f": 9}), "the queues below root.p have f 10 guaranteed, more than its own f 9"),
    ],
)
def test_what_no_configuration_could_say_is_refused(question: SupposeQuota, why: str) -> None:
    stage = Stage()
    stage.play(list(TREE))
    with pytest.raises(CommandRefused, match=why):
        suppose(Reader(stage.engine, lambda: stage.now_ns)["default"], question)


@pytest.mark.parametrize(
    "question",
    [
        SupposeQuota("root.p.a", {"f": 6}, {}),
        SupposeQuota("root.p", {"f": None}, {"f": 12}),
        SupposeQuota("root.p.b", {"f": 20}, {"f": 3}),
    ],
)
def test_what_a_configuration_could_say_is_answered(question: SupposeQuota) -> None:
    stage = Stage()
    stage.play(list(TREE))
    assert suppose(Reader(stage.engine, lambda: stage.now_ns)["default"], question).complete
