"""What is derived where a queue declares no guarantee, as ``kornel config check`` says it."""

from __future__ import annotations

from typing import Any

from kornel.core.config.derived import derived_guarantees
from kornel.core.config.loader import load
from tests.scenarios.preemption.monitor_stage import configuration


def said(queues: dict[str, dict[str, Any]], **settings: Any) -> list[str]:
    return derived_guarantees(load(configuration(queues, **settings)))


def owed(amount: int) -> dict[str, Any]:
    return {"resources": {"guaranteed": {"f": amount}}}


def test_a_level_counts_what_its_children_declare() -> None:
    queues = {"p": {}, "p.a": owed(30), "p.b": owed(10), "q": owed(5)}
    assert said(queues) == ["root.p: guaranteed f 40, which is what the queues below it declare"]


def test_leaves_without_a_guarantee_share_in_that_of_their_parent() -> None:
    queues = {"p": owed(40), "p.a": owed(30), "p.b": {}, "p.c": {}}
    assert said(queues) == [
        "root.p.b: has a share of what root.p is guaranteed of f and no queue below it declares with root.p.c",
        "root.p.c: has a share of what root.p is guaranteed of f and no queue below it declares with root.p.b",
    ]


def test_a_level_in_between_passes_the_share_on() -> None:
    queues: dict[str, dict[str, Any]] = {"p": owed(40), "p.m": {}, "p.m.a": {}}
    assert said(queues) == [
        "root.p.m: has a share of what root.p is guaranteed of f and no queue below it declares",
        "root.p.m.a: has a share of what root.p is guaranteed of f and no queue below it declares",
    ]


def test_nothing_is_derived_where_all_is_declared_or_the_monitor_is_off() -> None:
    complete = {"p": owed(40), "p.a": owed(30), "p.b": owed(10)}
    assert said(complete) == []
    assert said({"p": {}, "p.a": owed(30)}, enabled=False) == []
