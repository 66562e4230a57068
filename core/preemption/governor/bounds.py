"""Prevents storms of preemption (preemption.md K13).

It bounds how much preemption may take, how soon it may take from the same place again, and how often two queues may
take from each other in turn. A plan that the laws allow is judged here right before it is applied. Earlier losses are
passed in as values; this module remembers nothing. Preemption on required nodes is never judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from kornel.core.domain.readable_amounts import format_count, format_quantity
from kornel.core.domain.reasons import Outcome
from kornel.core.model.shapes import Pairs

NAME: Final = "governor"
"""The name of the governor in decisions, where other decisions have the name of their kind."""
SECOND_NS: Final = 10**9


class Scope(NamedTuple):
    """A place where preemption is counted: ``cluster`` (no name), ``queue`` (path of a leaf) or ``application``
    (ID)."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else self.kind


CLUSTER: Final = Scope("cluster")


class Loss(NamedTuple):
    """The cost of taking ``victims`` victims of one application. ``lost`` is in resource-seconds by type index, in base
    units."""

    queue: str
    application: str
    lost: Pairs = ()
    victims: int = 1


class Taken(NamedTuple):
    """An earlier loss: its time and its cost."""

    at_ns: int
    loss: Loss


class Turn(NamedTuple):
    """A turn between two queues that take from each other: *preemptor* took from the other one, the last time at
    ``last_ns``."""

    last_ns: int
    preemptor: str


class Past(Protocol):
    """The record of what preemption has taken lately."""

    @property
    def taken(self) -> Iterable[Taken]:
        """The losses within the window, the oldest first."""
        ...

    def count_victims(self, scope: Scope) -> int:
        """Returns how many victims *scope* lost within the window."""
        ...

    def lost_seconds(self, scope: Scope, t: int) -> int:
        """Returns the resource-seconds of type *t* that *scope* lost within the window."""
        ...

    def last_loss(self, queue: str) -> tuple[int, object] | None:
        """Returns when *queue* last lost a victim, and by which decision; ``None``: not lately."""
        ...

    def turns_between(self, one: str, other: str) -> Sequence[Turn]:
        """Returns the turns within the loop window in which two queues took from each other, the oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class Allowance:
    """A budget: the most ``victims`` (0: any number), and the most resource-seconds by type index."""

    victims: int = 0
    lost: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of :class:`kornel.core.domain.settings.GovernorSettings`, converted to base units."""

    window_ns: int
    allowances: Mapping[str, Allowance]
    """The budgets by kind of scope."""
    cooldown_ns: int
    loop_window_ns: int
    loop_returns: int
    names: Sequence[str]
    """The names of the resource types."""


class Denial(NamedTuple):
    """The reason why victims may not be taken now. Before ``retry_ns``, the same plan would be denied again; ``None``:
    waiting does not help."""

    outcome: Outcome
    scope: Scope
    detail: str
    retry_ns: int | None


def scopes_of(loss: Loss) -> tuple[Scope, Scope, Scope]:
    """Returns every scope in which *loss* counts."""
    return (CLUSTER, Scope("queue", loss.queue), Scope("application", loss.application))


def judge_losses(
    limits: Limits, past: Past, losses: Sequence[Loss], preemptor: str, now_ns: int, decision: object = None
) -> Denial | None:
    """Returns why *losses* may not be taken now for queue *preemptor* (empty: for no queue); ``None``: they may.

    Losses by the same *decision* do not make each other wait. The cost grows with the victims and, for a denial, with
    the entries of the window.
    """
    queues = list(dict.fromkeys(loss.queue for loss in losses))
    for queue in queues:
        denial = _cooling_down(limits, past, queue, now_ns, decision) or _check_loop(limits, past, preemptor, queue)
        if denial is not None:
            return denial
    victims: dict[Scope, int] = {}
    lost: dict[Scope, dict[int, int]] = {}
    for loss in losses:
        for scope in scopes_of(loss):
            victims[scope] = victims.get(scope, 0) + loss.victims
            if loss.lost:
                amounts = lost.setdefault(scope, {})
                for t, amount in loss.lost:
                    amounts[t] = amounts.get(t, 0) + amount
    for scope, count in victims.items():
        allowance = limits.allowances[scope.kind]
        if allowance.victims and past.count_victims(scope) + count > allowance.victims:
            return _check_budget(limits, past, scope, None, past.count_victims(scope), count, allowance.victims)
        for t, amount in lost.get(scope, {}).items():
            most = allowance.lost.get(t)
            if most is not None and past.lost_seconds(scope, t) + amount > most:
                return _check_budget(limits, past, scope, t, past.lost_seconds(scope, t), amount, most)
    return None


def _cooling_down(limits: Limits, past: Past, queue: str, now_ns: int, decision: object) -> Denial | None:
    last = past.last_loss(queue) if limits.cooldown_ns else None
    if last is None or (decision is not None and last[1] == decision):
        return None
    until_ns = last[0] + limits.cooldown_ns
    if now_ns >= until_ns:
        return None
    waited, pause = (now_ns - last[0]) / SECOND_NS, limits.cooldown_ns / SECOND_NS
    detail = f"{queue} was preempted {waited:g} s ago, the pause is {pause:g} s"
    return Denial(Outcome.COOLING_DOWN, Scope("queue", queue), detail, until_ns)


def _check_loop(limits: Limits, past: Past, preemptor: str, queue: str) -> Denial | None:
    """Returns a denial if taking from *queue* for *preemptor* would be one turn too many between the two."""
    turns = past.turns_between(preemptor, queue) if preemptor and limits.loop_window_ns else ()
    if not turns or turns[-1].preemptor == preemptor or len(turns) <= limits.loop_returns:
        return None
    detail = (
        f"{preemptor} and {queue} preempted each other in {len(turns)} turns within "
        f"{limits.loop_window_ns / SECOND_NS:g} s, {limits.loop_returns} returns are allowed"
    )
    # Another turn is allowed once enough of the oldest turns have left the window.
    forgotten = turns[len(turns) - limits.loop_returns - 1]
    return Denial(Outcome.LOOP, Scope("queue", queue), detail, forgotten.last_ns + limits.loop_window_ns)


def _check_budget(
    limits: Limits, past: Past, scope: Scope, t: int | None, before: int, wanted: int, most: int
) -> Denial:
    window = limits.window_ns / SECOND_NS
    if t is None:
        said = f"{format_count(wanted, 'victim')} wanted, {before} of {most}"
    else:
        name = limits.names[t]
        asked, taken, whole = (format_quantity(name, amount) for amount in (wanted, before, most))
        said = f"{asked} resource-seconds of {name} wanted, {taken} of {whole}"
    detail = f"{scope}: {said} taken within {window:g} s"
    return Denial(Outcome.BUDGET_SPENT, scope, detail, _room_again(limits, past, scope, t, before + wanted - most))


def _room_again(limits: Limits, past: Past, scope: Scope, t: int | None, over: int) -> int | None:
    """Returns the time when enough losses have left the window to reduce the total by *over*; ``None``: never."""
    for taken in past.taken:
        if scope in scopes_of(taken.loss):
            over -= taken.loss.victims if t is None else sum(amount for u, amount in taken.loss.lost if u == t)
            if over <= 0:
                return taken.at_ns + limits.window_ns
    return None
