"""The table of the laws that bind each kind of preemption (preemption.md A.0)."""

from __future__ import annotations

from core.domain.laws import LAWS_OF
from core.laws.verdict import Law
from core.policies.preemption.registry import POLICIES
from core.telling.preemption.preempted_work import LAWS


def test_every_kind_that_takes_room_is_there() -> None:
    """Kinds that can be configured, and those that explanations name."""
    assert set(LAWS_OF) == set(POLICIES) == set(LAWS)


def test_the_numbers_are_those_of_laws_in_order() -> None:
    for laws in LAWS_OF.values():
        numbers = [int(number) for number in laws.split()]
        assert numbers == sorted(set(numbers))
        assert set(numbers) <= {int(law.removeprefix("law ")) for law in Law if law.startswith("law ")}
