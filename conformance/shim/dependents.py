"""A session in which the core asks the same questions before and after each placement.

If a placement turns a yes into a no, both asks depend on placements: one of them has a rule that matches the other one.
The kit knows no rules, but sees this from outside. Asks that the shim has not called dependent are placed first: if a
rule of another ask matches one of them, the shim has overlooked it.
"""

from __future__ import annotations

from typing import Final

from kornel.conformance.shim.stage import Stage
from kornel.si.v1 import si_pb2 as si

MOST_ASKS: Final = 12
"""The most asks about which is asked, again after each placement."""
MOST_PLACEMENTS: Final = 5


async def compare_answers(stage: Stage) -> None:
    """Expects that no placement changes the answer about another ask, unless both were called dependent."""
    await stage.wait_until_ready("S35", running=False)
    questions, books = stage.core.questions, stage.core.books
    await stage.wait_until(lambda: questions.wanted and len(_list_asks(stage)) > 1)
    await stage.watch_briefly()
    if not questions.wanted:
        return
    allowed = await _ask_about_all(stage)
    for _ in range(MOST_PLACEMENTS):
        waiting = [ask for ask in _list_asks(stage) if allowed.get(ask.allocationKey)]
        dependent = {ask.allocationKey for ask in waiting if questions.is_dependent(ask)}
        waiting.sort(key=lambda ask: ask.allocationKey in dependent)
        if len(waiting) < 2:
            break
        placed = waiting.pop(0).allocationKey
        node = min(allowed[placed])
        stage.core.place_ask(books.asks[placed], node)
        await stage.watch_briefly()
        answers = await _ask_about_all(stage)
        for ask in waiting:
            key = ask.allocationKey
            if node in allowed[key] and key in answers and node in books.list_rooms(ask):
                _judge_pair(stage, placed, key, dependent, changed=node not in answers[key])
        allowed = answers


def _judge_pair(stage: Stage, placed: str, key: str, dependent: set[str], *, changed: bool) -> None:
    """Judge whether *placed* and *key* were called dependent. *changed*: the placement turned the answer about *key*
    into a no."""
    for each in (placed, key):
        if each in dependent:
            stage.findings.mark_kept("S35")
        elif changed:
            stage.findings.mark_broken("S35", f"{key} may not run beside {placed}, and {each} was not called dependent")


async def _ask_about_all(stage: Stage) -> dict[str, set[str]]:
    """Returns the nodes on which each waiting ask may run, without the asks about which there was no answer."""
    allowed: dict[str, set[str]] = {}
    for ask in _list_asks(stage):
        rooms = stage.core.books.list_rooms(ask)
        if rooms:
            question = stage.core.questions.ask_about(ask, rooms)
            await stage.wait_until(question.is_answered)
            if question.refused is not None:
                allowed[question.key] = set(rooms) - question.refused.keys()
    return allowed


def _list_asks(stage: Stage) -> list[si.Allocation]:
    """Returns the waiting asks that belong to no gang."""
    asks = [ask for ask in stage.core.books.asks.values() if not ask.placeholder and not ask.taskGroupName]
    return asks[:MOST_ASKS]
