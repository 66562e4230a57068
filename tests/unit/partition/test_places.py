"""One function moves an ask, and only as the table allows (:mod:`kornel.core.domain.ask_places`)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kornel.core.domain.ask_places import AskMove, AskPlace, IllegalMove
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.places import move_ask
from tests.scenarios.stage import Stage

ROOT = Path(__file__).parents[3]


def partition(*lines: str) -> PartitionState:
    stage = Stage()
    stage.play(["queue root.a", "node n1 vcore=2", "app app1", *lines])
    return stage.state


def test_an_ask_without_room_waits_with_its_equals() -> None:
    """It is offered, then parked until a node has room, and placed when one has."""
    state = partition("ask k vcore=5")
    ask = state.requests["k"]
    assert ask.place is AskPlace.WAITING
    assert ask.group is not None
    assert ask.group.waits_for is None
    assert (ask.pool, ask.held_on, ask.refused_on) == (None, None, None)


def test_a_placed_ask_is_in_no_group() -> None:
    """What it was in while it waited is forgotten."""
    state = partition("ask k vcore=1", "cycle")
    ask = state.requests["k"]
    assert ask.place is AskPlace.PLACED
    assert (ask.group, ask.where) == (None, None)


def test_an_illegal_move_changes_nothing() -> None:
    """A move that does not apply is a bug of ours, which is found where it is made."""
    state = partition("ask k vcore=1")
    ask = state.requests["k"]
    group = ask.group
    with pytest.raises(IllegalMove, match="UNDO does not apply to k, which is WAITING"):
        move_ask(state, ask, AskMove.UNDO)
    assert ask.place is AskPlace.WAITING
    assert ask.group is group


def test_nobody_else_changes_a_place() -> None:
    """Only :func:`move_ask` assigns the place of an ask, and its record where it begins."""
    assigning = {
        path.relative_to(ROOT).as_posix()
        for folder in ("domain", "engine", "laws", "model", "policies", "state")
        for path in (ROOT / "core" / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "place" and isinstance(node.ctx, ast.Store)
    }
    assert assigning == {"core/model/allocations.py", "core/state/waiting/places.py"}
