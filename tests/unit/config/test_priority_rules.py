"""Warnings of offsets that together reach the priorities of the system; none that is false (preemption.md G)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.config.reading import partition_text, queue, root, warnings

MILLION = 1_000_000


def offset(name: str, value: int, *children: Any, fence: bool = False, **more: Any) -> Any:
    properties = {"priority.offset": str(value)} | ({"priority.policy": "fence"} if fence else {})
    below = {"queues": list(children)} if children else {}
    return queue(name, properties=properties, **below, **more)


def said(*children: Any, **of_root: Any) -> list[str]:
    return warnings(partition_text(root(*children, **of_root)))


def test_an_offset_on_root_is_not_said_to_lift_anything() -> None:
    """It has no effect, whatever its size: that is all that is said."""
    for value in ("5", "1500000000", "2000000000"):
        (message,) = said(properties={"priority.offset": value})
        assert "has no effect" in message
        assert "lifts" not in message


def test_offsets_one_inside_the_other_add_up() -> None:
    """None of them is high by itself; the last one on the way up is named, with all that make up the sum."""
    (message,) = said(offset("a", 400 * MILLION, offset("b", 300 * MILLION, offset("c", 300 * MILLION))))
    assert "queues[0].properties['priority.offset']" in message
    assert (
        "root.a.b.c, root.a.b, root.a add up to 1000000000 and lift tasks of priority 1000000000 and above" in message
    )
    assert not said(offset("a", 400 * MILLION, offset("b", 300 * MILLION, offset("c", 299 * MILLION))))


def test_the_highest_of_several_children_counts() -> None:
    (message,) = said(offset("a", 600 * MILLION, offset("low", -5), offset("high", 500 * MILLION)))
    assert "root.a.high, root.a add up to 1100000000 and lift tasks of priority 900000000 and above" in message
    assert not said(offset("a", 600 * MILLION, offset("low", -500 * MILLION)))


def test_what_is_too_high_already_is_said_once() -> None:
    """The queues above could only say it again."""
    (message,) = said(offset("a", 10, offset("b", 1000 * MILLION)))
    assert "root" not in message.partition("offset 1000000000 lifts")[2]


@pytest.mark.parametrize(
    ("value", "above", "expected"),
    [
        (1500 * MILLION, 0, ""),
        (2000 * MILLION, 0, "makes all below the fence count among"),
        (1500 * MILLION, 499 * MILLION, ""),
        (1500 * MILLION, 500 * MILLION, "root.a.f, root.a add up to 2000000000: all below the fence count among"),
    ],
)
def test_behind_a_fence_only_its_own_offset_counts(value: int, above: int, expected: str) -> None:
    """The priorities below it are hidden, and so are the offsets there."""
    messages = said(offset("a", above, offset("f", value, offset("b", 900 * MILLION), fence=True)))
    assert len(messages) == bool(expected)
    assert all(expected in message for message in messages)


def test_queues_made_from_a_template_count() -> None:
    """Their offset comes on top of those of the queues above them."""
    template = {"properties": {"priority.offset": "500000000"}}
    (message,) = said(offset("a", 500 * MILLION, parent=True, childtemplate=template))
    assert "root.a.*, root.a add up to 1000000000" in message
    high = {"properties": {"priority.offset": "1000000000"}}
    (message,) = said(queue("a", parent=True, childtemplate=high))
    assert "priority.offset of the queues made from it: offset 1000000000 lifts" in message
