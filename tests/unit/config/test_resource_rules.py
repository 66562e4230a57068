"""Guaranteed, max and maxapplications over the tree: T15 to T24, V30 to V34, V60, B13, B14, B25, D.3."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kornel.core.config.loader import load
from kornel.core.config.text.problems import ConfigError
from tests.unit.config.reading import errors, find, load_root, partition_text, queue, root, warnings


def mem(amount: int) -> dict[str, str]:
    return {"memory": str(amount)}


def res(**amounts: int) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


ACCEPTED: dict[str, list[Any]] = {
    "T15 type undefined in max": [queue("a", g=res(vcore=11), m=mem(10))],
    "T18": [
        queue(
            "p",
            *[queue(name, g=res(memory=50, vcore=50), m=res(memory=80, vcore=80)) for name in "ab"],
            g=mem(100),
            m=res(memory=100, vcore=100),
        )
    ],
    "T20 siblings' max may exceed the parent's": [
        queue("p", queue("a", m=mem(750)), queue("b", m=mem(750)), m=mem(900))
    ],
    "T21 type not available": [queue("a", m=res(gpu=0))],
    "equal guaranteed and max": [queue("a", g=mem(5), m=mem(5))],
    "max tighter below": [queue("p", queue("a", m=mem(5)), m=mem(10))],
    "guaranteed sums up exactly": [queue("p", queue("a", g=mem(6)), queue("b", g=mem(4)), g=mem(10))],
    "child guarantees a type the parent does not": [queue("p", queue("a", g=res(gpu=1)), g=mem(10))],
    "empty mappings": [queue("a", g={}, m={})],
}

REFUSED: dict[str, tuple[list[Any], str]] = {
    "T15": ([queue("a", g=mem(11), m=mem(10))], "queues[0].resources.guaranteed.memory"),
    "T16": ([queue("p", queue("c", m=mem(11)), m=mem(10))], "queues[0].queues[0].resources.max.memory"),
    "T16 skipping a level": (
        [queue("p", queue("c", queue("g", m=mem(11))), m=mem(10))],
        "queues[0].queues[0].queues[0].resources.max.memory",
    ),
    "T17 above the parent's guaranteed": (
        [queue("p", queue("a", g=mem(6)), queue("b", g=mem(6)), g=mem(10))],
        "queues[0].resources.guaranteed.memory",
    ),
    "T17 above the parent's max": ([queue("p", queue("a", g=mem(6)), queue("b", g=mem(6)), m=mem(10))], "queues[0]"),
    "T17 above a max two levels up": (
        [queue("g", queue("p", queue("a", g=mem(6)), queue("b", g=mem(6))), m=mem(10))],
        "queues[0].queues[0]",
    ),
    "T19 hidden by a partly set guaranteed (B13)": (
        [queue("g", queue("p", queue("c", g=res(memory=6, vcore=5)), g=mem(10)), g=res(vcore=1, memory=100))],
        "queues[0].resources.guaranteed.vcore",
    ),
    "T21": ([queue("a", g=res(gpu=1), m=res(gpu=0))], "queues[0].resources.guaranteed.gpu"),
    "T24 bad quantity in a template (B3)": (
        [queue("p", parent=True, childtemplate={"resources": {"max": {"memory": "10m"}}})],
        "queues[0].childtemplate.resources.max.memory",
    ),
    "V30 bad quantity": ([queue("a", m={"memory": "1.5Gi"})], "queues[0].resources.max.memory"),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted(case: str) -> None:
    """These amounts fit together."""
    load_root(root(*ACCEPTED[case]))


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    """Each contradiction is reported once, at the amount that has to change."""
    queues, path = REFUSED[case]
    (problem,) = errors(partition_text(root(*queues)))
    assert problem.path == f"partitions[0].queues[0].{path}"


def test_error_tells_queue_and_both_amounts() -> None:
    """A contradiction names the queue by its full path, the type and both numbers."""
    (problem,) = errors(partition_text(root(queue("P", queue("C", m=mem(11)), m=mem(10)))))
    assert problem.message == "queue root.p.c: max memory 11 is above the max 10 of root.p"
    assert problem.expected == "at most 10"


@pytest.mark.parametrize(
    ("queues", "said"),
    [
        ([queue("a", g={"vcore": "13320m"}, m={"vcore": "13"})], "guaranteed vcore 13320m is above its max 13"),
        ([queue("a", queue("b", m=mem(3 << 30)), m=mem(5 << 29))], "max memory 3Gi is above the max 2560Mi of root.a"),
        (
            [queue("a", queue("b", g=mem(3 << 30)), m=mem(1 << 30))],
            "the queues below root.a have memory 3Gi guaranteed, more than the max 1Gi of root.a",
        ),
        (
            [queue("a", queue("b", g={"vcore": "2"}), g={"vcore": "1"})],
            "the queues below root.a have vcore 2 guaranteed, more than its own 1",
        ),
    ],
)
def test_amounts_are_told_as_they_are_written(queues: list[Any], said: str) -> None:
    """Nobody has to divide by 1,000 or by 2^30 to find them in the file."""
    (problem,) = errors(partition_text(root(*queues)))
    assert problem.message.endswith(said)


def test_bad_quantity_names_resource_and_text() -> None:
    """An unreadable amount is shown as it was written."""
    (problem,) = errors(partition_text(root(queue("a", m={"memory": "10K"}))))
    assert "memory: invalid suffix 'K' in '10K'" in problem.message


def test_amounts_in_base_units() -> None:
    """vcore is in thousandths; max keeps a 0, a guaranteed 0 is none (B14)."""
    leaf = find(load_root(root(queue("a", g={"vcore": "500m", "gpu": "0"}, m={"memory": "1Gi", "gpu": "0"}))), "a")
    assert leaf.guaranteed == {"vcore": 500}
    assert leaf.max == {"memory": 2**30, "gpu": 0}
    empty = find(load_root(root(queue("a", g={"gpu": "0"}, m={}))), "a")
    assert (empty.guaranteed, empty.max) == (None, None)


@pytest.mark.parametrize(
    ("counts", "accepted"),
    [
        ((4, 3, 2, 1), True),
        ((0, 3, 2, 1), True),
        ((1, 2, 3, 4), False),
        ((4, 3, 2, 0), True),
        ((5, 0, 0, 0), True),
        ((4, 0, 5, 0), False),
    ],
)
def test_t22_t23_max_applications(counts: tuple[int, ...], accepted: bool) -> None:
    """A queue may not run more than any level above; an unset count is bounded by those alone (V60, B25)."""
    top, a, b, c = counts
    text = partition_text(
        root(
            queue("a", queue("b", queue("c", maxapplications=c), maxapplications=b), maxapplications=a),
            maxapplications=top,
        )
    )
    if accepted:
        assert not warnings(text)
    else:
        assert errors(text)


def test_misleading_resource_names_are_warned_of() -> None:
    """cpu and the like are types of their own, which is rarely meant (B11)."""
    (message,) = warnings(partition_text(root(queue("a", m={"cpu": "1"}))))
    assert "vcore" in message


def test_d3_max_equal_to_guaranteed_with_a_delay() -> None:
    """J-T16: with a quota delay, max above guaranteed is advised, equal is accepted with a warning, below refused."""
    for delay, expected in (("5m", 1), ("0", 0)):
        text = partition_text(root(queue("a", g=mem(5), m=mem(5), properties={"quota.preemption.delay": delay})))
        assert len(warnings(text)) == expected
    text = partition_text(root(queue("a", g=mem(6), m=mem(5), properties={"quota.preemption.delay": "5m"})))
    assert len(errors(text)) == 1


def test_d3_an_inherited_delay_counts() -> None:
    """The delay may come from the parent."""
    child = queue("a", g=mem(5), m=mem(5))
    (message,) = warnings(partition_text(root(queue("p", child, properties={"quota.preemption.delay": "5m"}))))
    assert "root.p.a" in message


def test_h_quota_delay_beside_settings_it_ignores() -> None:
    """Settings of the other kinds of preemption play no part in enforcing a quota, which is said (preemption.md H)."""
    for key, value in (("preemption.policy", "fence"), ("preemption.delay", "5s"), ("priority.offset", "3")):
        text = partition_text(root(queue("a", properties={"quota.preemption.delay": "5m", key: value})))
        (message,) = warnings(text)
        assert key in message
        assert not warnings(partition_text(root(queue("a", properties={key: value}))))


amounts = st.dictionaries(st.sampled_from(["memory", "gpu"]), st.integers(0, 6), max_size=2)
trees = st.recursive(
    st.builds(lambda g, m: {"g": g, "m": m, "below": []}, amounts, amounts),
    lambda below: st.builds(
        lambda g, m, children: {"g": g, "m": m, "below": children}, amounts, amounts, st.lists(below, max_size=3)
    ),
    max_leaves=6,
)


def needs(tree: Any, kind: str) -> int:
    """What *tree* asks its parent to guarantee of one type."""
    below: int = sum(needs(child, kind) for child in tree["below"])
    return int(tree["g"].get(kind, below))


def agrees(tree: Any, kind: str, path_max: int | None) -> bool:
    """The rules for one type, spelled out without regard to what is reported where."""
    guaranteed, maximum = tree["g"].get(kind), tree["m"].get(kind)
    effective = min((bound for bound in (path_max, maximum) if bound is not None), default=None)
    below = sum(needs(child, kind) for child in tree["below"])
    return (
        (guaranteed is None or maximum is None or guaranteed <= maximum)
        and (maximum is None or path_max is None or maximum <= path_max)
        and (guaranteed is None or below <= guaranteed)
        and (effective is None or below <= effective)
        and all(agrees(child, kind, effective) for child in tree["below"])
    )


def written(tree: Any, name: str) -> dict[str, Any]:
    children = [written(child, f"c{index}") for index, child in enumerate(tree["below"])]
    return queue(name, *children, g=res(**tree["g"]), m=res(**tree["m"]))


@given(st.lists(trees, max_size=3))
def test_the_obvious_version_agrees(top: list[Any]) -> None:
    """A tree is accepted exactly when each rule holds for each queue and type on its own."""
    text = partition_text(root(*[written(tree, f"t{index}") for index, tree in enumerate(top)]))
    try:
        load(text)
    except ConfigError:
        accepted = False
    else:
        accepted = True
    assert accepted == all(agrees(tree, kind, None) for tree in top for kind in ("memory", "gpu"))
