"""The table of an ask's places, walked over every pair of place and move."""

from __future__ import annotations

from itertools import product

import pytest

from kornel.core.domain.ask_places import MOVES, AskMove, AskPlace

NOWHERE, WAITING, POOLED, RESERVED, HELD, REFUSED, REPLACING, PLACED, PREEMPTED, RELEASED, GONE = AskPlace

EXPECTED = {
    NOWHERE: {
        AskMove.WAIT: WAITING, AskMove.POOL: POOLED, AskMove.RESERVE: RESERVED, AskMove.PLACE: PLACED,
        AskMove.END: GONE, AskMove.GATHER: WAITING,
    },
    WAITING: {
        AskMove.RESERVE: RESERVED, AskMove.HOLD: HELD, AskMove.REFUSE: REFUSED, AskMove.PLACE: PLACED,
        AskMove.STEP_OUT: NOWHERE, AskMove.END: GONE,
    },
    POOLED: {
        AskMove.REPLACE: REPLACING, AskMove.PLACE: PLACED, AskMove.STEP_OUT: NOWHERE, AskMove.END: GONE,
    },
    RESERVED: {AskMove.HOLD: HELD, AskMove.REFUSE: REFUSED, AskMove.GIVE_BACK: NOWHERE},
    HELD: {AskMove.PLACE: PLACED, AskMove.DISAGREE: NOWHERE},
    REFUSED: {
        AskMove.RESERVE: RESERVED, AskMove.HOLD: HELD, AskMove.REFUSE: REFUSED, AskMove.PLACE: PLACED,
        AskMove.FORGIVE: NOWHERE,
    },
    REPLACING: {AskMove.PLACE: PLACED, AskMove.UNDO: NOWHERE},
    PLACED: {
        AskMove.RETURN: NOWHERE, AskMove.END: GONE, AskMove.PREEMPT: PREEMPTED, AskMove.RELEASE: RELEASED,
    },
    PREEMPTED: {AskMove.END: GONE},
    RELEASED: {AskMove.END: GONE},
    GONE: {},
}  # fmt: skip
"""By place, as one would tell the life of an ask; the table of the code goes by move."""


@pytest.mark.parametrize(("place", "move"), list(product(AskPlace, AskMove)))
def test_every_pair_of_place_and_move(place: AskPlace, move: AskMove) -> None:
    """A move leads where the table says, and nowhere from every other place."""
    assert MOVES[move].get(place) is EXPECTED[place].get(move)


def test_what_is_gone_stays_gone() -> None:
    """No move leads away from the end, and from everywhere else some do."""
    leading = {place for targets in MOVES.values() for place in targets}
    assert leading == set(AskPlace) - {AskPlace.GONE}


def test_every_place_can_be_reached_and_left_for_the_end() -> None:
    """From each place some moves in a row lead to the end, and from nowhere to each place."""
    steps = {place: {MOVES[move][place] for move in AskMove if place in MOVES[move]} for place in AskPlace}

    def reached(start: AskPlace) -> set[AskPlace]:
        found, ahead = {start}, [start]
        while ahead:
            new = steps[ahead.pop()] - found
            found |= new
            ahead += new
        return found

    assert reached(AskPlace.NOWHERE) == set(AskPlace)
    assert all(AskPlace.GONE in reached(place) for place in AskPlace)
