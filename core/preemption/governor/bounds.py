"""Judges what preemption may take by what the book says it has taken lately, and changes nothing (preemption.md K13).

The budgets bound how much it may take, how soon it may take from the same place again, and how often two queues may
take from each other in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kornel.core.domain.reasons import Outcome
from kornel.core.domain.settings import GovernorSettings
from kornel.core.state.records.governor_books import VICTIMS, GovernorBooks, Loss, Scope
from kornel.shared.readable_amounts import format_count, format_quantity

NAME: Final = "governor"
"""The name of the governor in decisions, where other decisions have the name of their kind."""
SECOND_NS: Final = 10**9


class Denial(NamedTuple):
    """The reason why victims may not be taken now. Before ``retry_ns``, the same plan would be denied again; ``None``:
    waiting does not help."""

    outcome: Outcome
    scope: Scope
    detail: str
    retry_ns: int | None


def judge_losses(
    settings: GovernorSettings,
    names: Sequence[str],
    books: GovernorBooks,
    losses: Sequence[Loss],
    preemptor: str,
    now_ns: int,
    decision: object = None,
) -> Denial | None:
    """Returns why *losses* may not be taken now for queue *preemptor* (empty: for no queue); ``None``: they may.
    *names* are those of the resource types.

    Losses by the same *decision* do not make each other wait. The cost grows with the victims and, for a denial or if
    something has left the window, with the entries of the window.
    """
    for queue in dict.fromkeys(loss.queue for loss in losses):
        denial = _cooling_down(settings, books, queue, now_ns, decision) or _check_loop(
            settings, books, preemptor, queue, now_ns
        )
        if denial is not None:
            return denial
    window = books.lately.as_of(now_ns - settings.window_ns)
    wanted: dict[Scope, dict[int, int]] = {}
    for loss in losses:
        for scope in loss.scopes:
            amounts = wanted.setdefault(scope, {})
            for measure, amount in loss.amounts:
                amounts[measure] = amounts.get(measure, 0) + amount
    budgets = settings.budgets
    for scope, amounts in wanted.items():
        budget = budgets[scope.kind]
        for measure, amount in amounts.items():
            most = (budget.victims or None) if measure == VICTIMS else budget.lost.get(names[measure])
            before = 0 if most is None else window.count_amount(scope, measure)
            if most is None or before + amount <= most:
                continue
            again_ns = window.find_entry(scope, measure, before + amount - most)
            return Denial(
                Outcome.BUDGET_SPENT,
                scope,
                _describe_budget(settings, names, scope, measure, before, amount, most),
                None if again_ns is None else again_ns + settings.window_ns,
            )
    return None


def _cooling_down(
    settings: GovernorSettings, books: GovernorBooks, queue: str, now_ns: int, decision: object
) -> Denial | None:
    last = books.last_loss(queue) if settings.cooldown_ns else None
    if last is None or (decision is not None and last[1] == decision):
        return None
    until_ns = last[0] + settings.cooldown_ns
    if now_ns >= until_ns:
        return None
    waited, pause = (now_ns - last[0]) / SECOND_NS, settings.cooldown_ns / SECOND_NS
    detail = f"{queue} was preempted {waited:g} s ago, the pause is {pause:g} s"
    return Denial(Outcome.COOLING_DOWN, Scope("queue", queue), detail, until_ns)


def _check_loop(
    settings: GovernorSettings, books: GovernorBooks, preemptor: str, queue: str, now_ns: int
) -> Denial | None:
    """Returns a denial if taking from *queue* for *preemptor* would be one turn too many between the two."""
    window_ns, returns = settings.loop_window_ns, settings.loop_returns
    turns = books.turns_since(now_ns - window_ns, preemptor, queue) if preemptor and window_ns else ()
    if not turns or turns[-1].preemptor == preemptor or len(turns) <= returns:
        return None
    detail = (
        f"{preemptor} and {queue} preempted each other in {len(turns)} turns within "
        f"{window_ns / SECOND_NS:g} s, {returns} returns are allowed"
    )
    # Another turn is allowed once enough of the oldest turns have left the window.
    forgotten = turns[len(turns) - returns - 1]
    return Denial(Outcome.LOOP, Scope("queue", queue), detail, forgotten.last_ns + window_ns)


def _describe_budget(
    settings: GovernorSettings, names: Sequence[str], scope: Scope, measure: int, before: int, wanted: int, most: int
) -> str:
    if measure == VICTIMS:
        said = f"{format_count(wanted, 'victim')} wanted, {before} of {most}"
    else:
        name = names[measure]
        asked, taken, whole = (format_quantity(name, amount) for amount in (wanted, before, most))
        said = f"{asked} resource-seconds of {name} wanted, {taken} of {whole}"
    return f"{scope}: {said} taken within {settings.window_ns / SECOND_NS:g} s"
