"""Gives gangs that preempt as units their turns in a round: which of their victims go next, at the pace of the monitor.

Plans for gangs are made outside the rounds, with a place for every member. A round judges what is left of each anew,
and carries out one turn of it before it looks at single asks: its victims get notice and leave like all others of the
monitor, and what they leave is held for the members. Rules: preemption.md B.11, E.5.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from math import ceil, floor

from kornel.core.model.allocations import Allocation, sum_amounts
from kornel.core.model.nodes import Node
from kornel.core.preemption.monitor.selection.candidates import Candidate, Want
from kornel.core.preemption.monitor.selection.places import Planner
from kornel.core.preemption.monitor.selection.round import Round
from kornel.core.preemption.plan import GangPlan


def plan_units(run: Round, planner: Planner) -> Generator[int, None, None]:
    """Selects the next turn of every unit whose plan stands, as far as none before it in this round uses the same
    nodes."""
    touched: set[Node | None] = set()
    for unit in run.memory.units:
        yield 4 * len(unit.plan.places)
        turn = unit.choose_turn(run.view, partial(_is_within_pace, run, unit.plan))
        if turn is None:
            run.selection.fallen.append(unit)
            continue
        nodes = {place.node for place in turn.places} | {victim.node for victim in turn.victims}
        going = {victim: planner.candidate_for(victim) for victim in turn.victims}
        known = {victim: candidate for victim, candidate in going.items() if candidate is not None}
        # A leaf from which nothing is taken now, because its max is being enforced, gives the unit its turn later.
        if len(known) == len(going) and touched.isdisjoint(nodes) and _fits_round(run, turn):
            touched |= nodes
            run.selection.units.append((unit, turn))
            _commit_turn(run, planner, turn, known)


def _is_within_pace(run: Round, plan: GangPlan, victims: Sequence[Allocation]) -> bool:
    """Tells whether *victims* are no more than may go in one turn for *plan* (preemption.md E.3 no. 4)."""
    settings, cluster, all_of_them = run.settings, run.picture.cluster, sum_amounts(plan.victims)
    for t, amount in sum_amounts(victims).items():
        within = min(all_of_them[t], floor(settings.per_round * cluster.get(t, 0)))
        if amount > ceil(max(1, within) * settings.natural_factor):
            return False
    return True


def _fits_round(run: Round, turn: GangPlan) -> bool:
    """Tells whether the victims of *turn* fit what one round may select, as one place does."""
    return not turn.victims or run.selection.fits(sum_amounts(turn.victims), sum_amounts(turn.members))


def _commit_turn(run: Round, planner: Planner, turn: GangPlan, going: dict[Allocation, Candidate]) -> None:
    leaf = run.picture.of[turn.application.queue]
    for place in turn.places:
        planner.commit(Want(place.ask, leaf, []), place.node, [going[victim] for victim in place.victims])
        planner.choice.promised.add(place.node)
