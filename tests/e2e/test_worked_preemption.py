"""A few of the worked preemption cases (preemption.md J.1, J.2, J.3), over real gRPC.

All of them run against the engine in ``tests/scenarios/preemption``. Here a shim reports the cluster, asks, is told who
has to leave, confirms, and is given the node.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from kornel.shim_client import CallbackHandler, PreemptionQuestion
from tests.e2e.preemption_wire import Shim, choose, running_shim
from tests.preemption_notation import Case, parse
from tests.scenarios.preemption.test_enforcement_cases import enforced
from tests.scenarios.preemption.test_worked_cases import configuration
from tests.waiting import until

HERE: Final = Path(__file__).parents[1] / "scenarios" / "preemption"
GUARANTEE: Final = parse(HERE.joinpath("guarantee.cases").read_text(encoding="utf-8"))
REQUIRED: Final = parse(HERE.joinpath("required_node.cases").read_text(encoding="utf-8"))
QUOTA: Final = parse(HERE.joinpath("quota.cases").read_text(encoding="utf-8"))


class Predicate(CallbackHandler):
    """Passes once all of *needed* have left."""

    def __init__(self, needed: frozenset[str]) -> None:
        self._needed = needed
        self.calls: list[tuple[tuple[str, ...], int]] = []

    async def preemption_predicates(self, question: PreemptionQuestion) -> int | None:
        self.calls.append((question.victims, question.start_index))
        for last in range(question.start_index, len(question.victims)):
            if self._needed <= set(question.victims[: last + 1]):
                return last
        return None


@pytest.mark.parametrize("case", choose(GUARANTEE, "J-B2", "J-B16", "J-B43", "J-B45", "J-B49", "J-B52", "J-B54"))
async def test_guarantee(case: Case) -> None:
    """Each ask takes exactly its victims; once all have left, it is on the node of the case."""
    predicate = Predicate(case.predicate) if case.predicate else None
    async with running_shim(configuration(case), predicate) as shim:
        await shim.set_up(case)
        for reservation in case.reservations:
            await shim.hold(reservation)
        await plays(shim, case)
        if predicate is not None:
            assert predicate.calls[0] == case.steps[0].call


@pytest.mark.parametrize("case", choose(REQUIRED, "J-R8", "J-R8-more", "order-originator"))
async def test_required_node(case: Case) -> None:
    """As above; an ask that its node could never hold is turned down or waits, and nobody leaves for it."""
    async with running_shim(configuration(case)) as shim:
        await shim.set_up(case)
        await plays(shim, case)


async def plays(shim: Shim, case: Case) -> None:
    gone: set[str] = set()
    for step in case.steps:
        await shim.ask(step.ask)
        if step.expected.victims:
            gone |= step.expected.victims
            await shim.lost(len(gone))
        else:
            await shim.core.settle()
        assert set(shim.victims()) == gone
    await shim.core.settle()
    assert sorted(shim.victims()) == sorted(gone)
    asks = {step.ask.key for step in case.steps}
    assert not asks & set(shim.placed), "no ask is placed while its victims are still there"
    await shim.confirm()
    waited_for = {step.ask.key: step.expected.node or "n1" for step in case.steps if step.expected.victims}
    await until(lambda: waited_for.keys() <= shim.placed.keys(), f"asks of {case.name} to be placed")
    assert {key: shim.placed[key] for key in waited_for} == waited_for
    await shim.core.settle()
    assert sorted(shim.victims()) == sorted(gone), "the confirmation takes nobody else"


@pytest.mark.parametrize("case", choose(QUOTA, "J-Q8", "J-Q12-miss-10", "J-Q36"))
async def test_quota(case: Case) -> None:
    """A max lowered over the wire takes exactly the victims of the case after its delay, and nobody else later."""
    assert case.enforced is not None
    before = {queue.path: queue.maximum for queue in case.before}
    changed = {case.enforced.queue: {}, **before}
    queues = tuple(replace(queue, maximum=changed.get(queue.path, queue.maximum)) for queue in case.queues)
    async with running_shim(enforced(replace(case, queues=queues), case)) as shim:
        await shim.set_up(case)
        await shim.client.update_configuration(enforced(case, case))
        await shim.core.settle()
        assert shim.victims() == []
        await shim.pass_seconds(1)
        await shim.lost(len(case.enforced.victims))
        assert sorted(shim.victims()) == sorted(case.enforced.victims)
        await shim.confirm()
        await shim.pass_seconds(100)
        assert sorted(shim.victims()) == sorted(case.enforced.victims), "a run is not repeated"
