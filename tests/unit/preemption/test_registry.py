"""The records of the kinds of preemption say of each kind what everybody reads there (preemption.md A.0, H)."""

from __future__ import annotations

import pytest

from kornel.core.domain import preemption_kinds
from kornel.core.domain.reasons import Outcome
from kornel.core.laws.verdict import Law
from kornel.core.preemption.guarantee.rules.cost import COSTS
from kornel.core.preemption.kind import Kind
from kornel.core.preemption.registry import KINDS, SOURCES, kind_called, laws_of


def test_the_kinds_run_in_the_order_of_the_rules() -> None:
    """Who must run on a node comes first, then lowered maxima, then guarantees, and the monitor last (H)."""
    assert [kind.name for kind in KINDS] == ["required-node", "quota", "guarantee", "within", "monitor"]
    assert [kind.name for kind in KINDS] == list(preemption_kinds.NAMES)


def test_the_configuration_names_the_orders_of_victims() -> None:
    assert preemption_kinds.GUARANTEE.orders == tuple(COSTS)


def test_the_laws_of_each_kind_are_those_of_the_table() -> None:
    """A.0: a required node asks for importance alone, an enforced max serves nobody, the periodic policy pools."""
    assert laws_of("guarantee") == "1 2 3 4 5 6 7"
    assert laws_of("required-node") == "1 6"
    assert laws_of("quota") == "1 2 5"
    assert laws_of("monitor") == "1 2 4 5 6 7"
    assert laws_of("governor") == ""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_numbers_are_those_of_laws_in_order(kind: Kind) -> None:
    assert list(kind.laws) == sorted(set(kind.laws))
    assert set(kind.laws) <= {int(law.removeprefix("law ")) for law in Law if law.startswith("law ")}
    assert kind.allowed_by


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_somebody_leaves_by_every_kind(kind: Kind) -> None:
    """A kind of which no outcome makes victims leave takes nobody's room."""
    assert any(ending.leaves for ending in kind.outcomes.values())
    assert not kind.ending_of(Outcome.SHADOW).leaves
    assert not kind.ending_of(Outcome.NOTIFIED).leaves


def test_a_name_that_nobody_has_is_no_kind() -> None:
    """The history of an older core may hold one."""
    assert kind_called("storm") is None
    assert laws_of("storm") == ""


def test_the_governor_is_told_of_but_is_no_kind() -> None:
    assert kind_called("governor") is None
    assert SOURCES["governor"].ending_of(Outcome.LOOP).words == ""
