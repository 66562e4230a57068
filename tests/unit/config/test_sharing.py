"""What two configurations have in common becomes the same objects."""

from __future__ import annotations

import pytest

from kornel.core.config.comparison import share_equal_parts
from kornel.core.config.loader import load
from kornel.core.config.model import QueueConfig
from tests.unit.config.reading import find, only, partition_text, queue, root

OLD = (
    queue("a", queue("x", m={"memory": "5"}), queue("y")),
    queue("b", queue("z", submitacl="*")),
)


def shared(*queues: object, **keys: object) -> tuple[QueueConfig, QueueConfig]:
    """The root of OLD and that of the new queues after sharing."""
    old = load(partition_text(root(*OLD)))
    new = load(partition_text(root(*queues), **keys))
    result = share_equal_parts(new, old)
    assert result == new, "sharing changes no meaning"
    return only(old).root, only(result).root


def test_equal_configurations_share_everything() -> None:
    """The same queues written again are the old queues, wherever they stand in the text."""
    old, new = shared(*OLD)
    assert new is old


@pytest.mark.parametrize(
    "changed",
    [
        queue("x", m={"memory": "6"}),
        queue("x", m={"memory": "5"}, submitacl="bob"),
        queue("x", m={"memory": "5"}, properties={"priority.offset": "1"}),
        queue("x", m={"memory": "5"}, maxapplications=3),
        queue("x", m={"memory": "5"}, limits=[{"users": ["bob"], "maxapplications": 1}]),
        queue("x", queue("new"), m={"memory": "5"}),
    ],
)
def test_only_the_path_to_a_change_is_new(changed: dict[str, object]) -> None:
    """A queue that differs makes new ones of the queues above it, and of nothing else."""
    old, new = shared(queue("a", changed, queue("y")), OLD[1])
    assert new is not old
    assert find(new, "a") is not find(old, "a")
    assert find(new, "a.x") is not find(old, "a.x")
    assert find(new, "a.y") is find(old, "a.y")
    assert find(new, "b") is find(old, "b")


def test_a_property_that_is_inherited_changes_the_queues_below() -> None:
    """Equal text is not enough: what counts is what a queue comes to."""
    old, new = shared(queue("a", *OLD[0]["queues"], properties={"preemption.delay": "5s"}), OLD[1])
    assert find(new, "a.x") is not find(old, "a.x")
    assert find(new, "b") is find(old, "b")


def test_a_queue_that_is_gone() -> None:
    """The queue above is new, the siblings are the old ones."""
    old, new = shared(queue("a", OLD[0]["queues"][0]), OLD[1])
    assert find(new, "a") is not find(old, "a")
    assert find(new, "a.x") is find(old, "a.x")


def test_partitions_are_told_apart_by_name() -> None:
    """A partition of another name shares nothing."""
    old, new = shared(*OLD, name="gpu")
    assert new is not old
    assert new == old
