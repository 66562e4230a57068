"""Issue 30, rows 11, 12, 13 and 24 over gRPC: layered guarantees, shims that refuse, answers that put nothing off.

Each row has queues, what runs where, what is asked for, a handler, and what comes of it in ten minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pytest

from kornel.shim_client import Ask, CallbackHandler, NoticeReply, PreemptionNotice
from kornel.shim_client.callbacks import PredicatesQuestion, PreemptionQuestion
from tests.e2e.harness import create
from tests.e2e.preemption_wire import Shim, running_shim
from tests.scenarios.preemption.monitor_stage import configuration

MONITOR: Final = {"per_round": 1, "natural_factor": 1}
GUARANTEES: Final = {"enabled": False}


class Selector(CallbackHandler):
    """Allows every ask on n3 alone, and says nothing about victims."""

    allowed: frozenset[str] = frozenset({"n3"})

    async def predicates(self, question: PredicatesQuestion) -> Mapping[str, str]:
        return {node: "selector" for node in question.node_ids if node not in self.allowed}


class Nowhere(Selector):
    allowed = frozenset()


class Promising(Selector):
    """Says yes to every question about victims, and no when the ask is to be placed."""

    async def preemption_predicates(self, question: PreemptionQuestion) -> int | None:
        return question.start_index


class Honest(Selector):
    async def preemption_predicates(self, question: PreemptionQuestion) -> int | None:
        return question.start_index if question.node_id in self.allowed else None


class HonestNowhere(Honest):
    allowed = frozenset()


class Stalling(CallbackHandler):
    """Answers each notice with the originators of the application."""

    async def preemption_notice(self, notice: PreemptionNotice) -> NoticeReply | None:
        return NoticeReply(instead=[f"driver-{number}" for number in range(5)])


class Row(NamedTuple):
    """*queues*: guarantee by path. *runs*: (queue, key, node), an originator if the key begins with ``driver``. *asks*:
    (queue, key, size). *victims* and *placed*: the keys of those that leave, once each, and of the asks that run in the
    end; the victims *at_most*, if others may have had to leave before the shim said no."""

    queues: dict[str, int]
    runs: list[tuple[str, str, str]]
    asks: list[tuple[str, str, int]]
    handler: type[CallbackHandler] | None
    settings: dict[str, Any]
    victims: set[str]
    placed: set[str]
    at_most: frozenset[str] = frozenset()


def fill(queue: str, node: str, count: int) -> list[tuple[str, str, str]]:
    return [(queue, f"{queue[-1]}-{node}-{number}", node) for number in range(count)]


FOUR: Final = [task for number in (3, 2, 1, 0) for task in fill("v", f"n{number}", 1)]
ALL_FOUR: Final = frozenset(key for _, key, _ in FOUR)
OWED: Final = {"v": 0, "q": 1}
ONE_ASK: Final = [("q", "ask", 1)]
ON_N3: Final = ({"v-n3-0"}, {"ask"})
ROWS: Final = {
    "11 an ask that law 4 refuses": Row(
        {"t": 8, "t.a": 3, "t.b": 1, "t.c": 0, "x": 1, "v": 0},
        [*fill("t.a", "n0", 3), *fill("t.b", "n0", 4), *fill("t.c", "n0", 2), *fill("v", "n0", 3)],
        [("t.c", "more", 2), ("x", "ask", 1)],
        None, MONITOR, {"v-n0-2"}, {"ask"},
    ),
    "12 refused everywhere": Row(OWED, FOUR, ONE_ASK, Nowhere, MONITOR, set(), set()),
    "12 refused everywhere, victims too": Row(OWED, FOUR, ONE_ASK, HonestNowhere, MONITOR, set(), set()),
    "12 allowed on n3": Row(OWED, FOUR, ONE_ASK, Selector, MONITOR, *ON_N3),
    "13 originators instead": Row(
        {"v": 5, "q": 5},
        [*((("v"), f"driver-{number}", "n0") for number in range(5)), *fill("v", "n0", 5)],
        [("q", f"ask-{number}", 1) for number in range(5)],
        Stalling, {"natural_factor": 0.2, "per_round": 0.2},
        {f"v-n0-{number}" for number in range(5)}, {f"ask-{number}" for number in range(5)},
    ),
    "24 no answers about victims": Row(OWED, FOUR, ONE_ASK, Selector, GUARANTEES, *ON_N3, ALL_FOUR),
    "24 yes about victims": Row(OWED, FOUR, ONE_ASK, Promising, GUARANTEES, *ON_N3, ALL_FOUR),
    "24 honest about victims": Row(OWED, FOUR, ONE_ASK, Honest, GUARANTEES, *ON_N3),
    "24 honest, refused everywhere": Row(OWED, FOUR, ONE_ASK, HonestNowhere, GUARANTEES, set(), set()),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
async def test_row(name: str) -> None:
    row = ROWS[name]
    queues: dict[str, dict[str, Any]] = {
        path: {"resources": {"guaranteed": {"f": amount}} if amount else {}} for path, amount in row.queues.items()
    }
    queues["root"] = {"properties": {"preemption.delay": "1s" if row.settings is GUARANTEES else "1000h"}}
    handler = None if row.handler is None else row.handler()
    async with running_shim(configuration(queues, **row.settings), handler) as shim:
        nodes = {node: 0 for _, _, node in row.runs}
        for _, _, node in row.runs:
            nodes[node] += 1
        await shim.client.create_nodes([create(node, f=size) for node, size in nodes.items()])
        await shim.add_applications((f"app-{path}", path) for path in row.queues if path != "t")
        await report_running(shim, row)
        await shim.client.submit_asks(
            [Ask(key, f"app-{path}", {"f": size}, allow_preempt_other=True) for path, key, size in row.asks]
        )
        await shim.core.settle()
        for _ in range(40):
            await shim.pass_seconds(15)
            await shim.confirm()
            await shim.core.settle()
        victims = shim.victims()
        assert len(victims) == len(set(victims))
        assert row.victims <= set(victims) <= (row.at_most or row.victims)
        assert {key for _, key, _ in row.asks if key in shim.placed} == row.placed


async def report_running(shim: Shim, row: Row) -> None:
    tasks = []
    for number, (path, key, node) in enumerate(row.runs):
        is_driver = key.startswith("driver")
        task = Ask(key, f"app-{path}", {"f": 1}, originator=is_driver, created_s=number + 1, partition="default")
        message = task.to_g3()
        message.nodeID = node
        tasks.append(message)
    await shim.client.report_allocations(tasks)
    await shim.core.settle()
