"""Keys without effect where they stand are named (preemption.md D.2, D.3)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.config.reading import all_warnings, errors, idle, partition_text, queue, root, warnings

DELAY = {"quota.preemption.delay": "5m"}
ON = {"quotapreemptionenabled": True}
MAX = {"memory": "5"}
UNDER_RESOURCES = {"resources": {"quota.preemption.delay": "300", "max": MAX}}


def text(*queues: Any, on: bool = True, **top: Any) -> str:
    return partition_text(root(*queues, **top), **({"preemption": ON} if on else {}))


@pytest.mark.parametrize(
    ("written", "named"),
    [
        pytest.param(text(queue("a", m=MAX, properties=DELAY)), "", id="in order"),
        pytest.param(text(queue("a", m=MAX, properties=DELAY), on=False), "quotapreemptionenabled", id="no switch"),
        pytest.param(text(queue("a", queue("b", m=MAX), properties=DELAY)), "", id="a max below"),
        pytest.param(text(queue("a", m=MAX), properties=DELAY), "", id="inherited from root"),
        pytest.param(text(queue("a", queue("b"), properties=DELAY)), "root.a is never above a max", id="no max"),
        pytest.param(text({"name": "a", **UNDER_RESOURCES}), "", id="beside the max"),
        pytest.param(
            text({"name": "a", "resources": {"quota.preemption.delay": "300"}, "queues": [queue("b", m=MAX)]}),
            "it has no max",
            id="beside no max, which concerns nobody below",
        ),
        pytest.param(text(queue("a", m=MAX, properties={"quota.preemption.delay": "0"}), on=False), "", id="0: off"),
        pytest.param(
            text(queue("a", m=MAX, properties={"quota.preemption.miss": "5"})), "['quota.preemption.miss']", id="miss"
        ),
        pytest.param(
            text(queue("a", m=MAX, properties={"quota.preemption.timer": "adjust"})), "has a quota.preemption.delay",
            id="timer",
        ),
        pytest.param(
            text(queue("a", queue("b", m=MAX, properties=DELAY), properties={"quota.preemption.miss": "5"})), "",
            id="miss for a delay below",
        ),
        pytest.param(
            text(queue("a", parent=True, childtemplate={"properties": {"quota.preemption.miss": "5"}})),
            "quota.preemption.miss in a template", id="in a template",
        ),
        pytest.param(text(properties={"preemption.policy": "fence"}), "fences nothing off", id="a fence on root"),
        pytest.param(text(properties={"preemption.policy": "disabled"}), "", id="disabled on root is inherited"),
        pytest.param(text(properties={"priority.policy": "fence"}), "fences nothing off", id="priority fence on root"),
        pytest.param(
            text(properties={"preemption.min-runtime": "5m", "preemption.min-runtime.most": "4m"}),
            "for as long already", id="a longest time that is shorter",
        ),
        pytest.param(
            text(properties={"preemption.min-runtime": "5m", "preemption.min-runtime.most": "6m"}), "",
            id="a longest time that is longer",
        ),
        pytest.param(text(properties={"preemption.max-wait": "5m"}), "no queue has", id="nothing to wait for"),
        pytest.param(
            text(queue("a", properties={"preemption.min-runtime": "5m"}), properties={"preemption.max-wait": "5m"}), "",
            id="something to wait for",
        ),
    ],
)  # fmt: skip
def test_keys_without_effect(written: str, named: str) -> None:
    """The warning says why; a key that does something has none."""
    found = idle(written)
    assert len(found) == bool(named)
    assert not named or named in found[0]


@pytest.mark.parametrize(
    ("below", "expected"),
    [
        pytest.param([("b", 2), ("c", 3)], "max equals what is guaranteed below it", id="all of the max"),
        pytest.param([("b", 2), ("c", 2)], "", id="less"),
    ],
)
def test_a_max_that_the_children_are_guaranteed(below: list[tuple[str, int]], expected: str) -> None:
    """What is guaranteed below a queue counts where the queue itself declares nothing."""
    children = [queue(name, g={"memory": str(amount)}) for name, amount in below]
    found = warnings(text(queue("a", *children, m=MAX, properties=DELAY)))
    assert len(found) == bool(expected)
    assert not expected or expected in found[0]


WITHIN = {"preemption.within": "priority"}
UNSORTED = {"application.sort.priority": "disabled"}


@pytest.mark.parametrize(
    ("queues", "error"),
    [
        pytest.param(
            queue("a", properties=WITHIN | UNSORTED), "needs application.sort.priority enabled", id="unsorted"
        ),
        pytest.param(
            queue("p", queue("a", properties=UNSORTED), properties=WITHIN), "in queue root.p.a", id="inherited"
        ),
        pytest.param(
            queue("p", parent=True, properties=WITHIN, childtemplate={"properties": UNSORTED}), "root.p", id="template"
        ),
        pytest.param(queue("a", properties={"preemption.within": "fair"}), "fair is not offered", id="not offered"),
    ],
)
def test_preemption_within_a_queue_that_cannot_be_is_refused(queues: Any, error: str) -> None:
    """Where priorities do not count, what is freed for one ask would go to others."""
    (found,) = errors(text(queues))
    assert error in found.message


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        pytest.param(WITHIN | {"preemption.policy": "disabled"}, "preemption.policy is disabled", id="disabled"),
        pytest.param({"preemption.within.gap": "5"}, "does not preempt within it", id="gap alone"),
        pytest.param(WITHIN | {"preemption.within.gap": "5", "preemption.policy": "fence"}, "", id="in order"),
    ],
)
def test_preemption_within_a_queue_that_never_happens_is_named(properties: dict[str, str], named: str) -> None:
    """A fence on the leaf does not stop it."""
    found = all_warnings(text(queue("a", properties=properties)))
    assert (named in found[0]) if named else not found
