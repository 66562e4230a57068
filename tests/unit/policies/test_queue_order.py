"""Fair share and queue order against worked examples 15 to 20 of scheduling.md 22."""

from __future__ import annotations

import pytest

from kornel.core.domain.settings import QueueProperties
from kornel.core.model.queues import Queue
from kornel.core.policies.queue_order import fair_share, find_fair_max, queue_key

V, M, X = 0, 1, 2


def queue(
    name: str,
    parent: Queue | None = None,
    *,
    used: tuple[int, int, int] = (0, 0, 0),
    guaranteed: dict[int, int] | None = None,
    maximum: dict[int, int] | None = None,
) -> Queue:
    made = Queue(name, parent, leaf=False, properties=QueueProperties(), width=3, order_key=queue_key)
    made.set_limits(guaranteed or {}, maximum or {})
    made.used[:] = used
    made.set_fair_max(find_fair_max(made))
    return made


@pytest.mark.parametrize(
    ("used", "guaranteed", "fair_max", "pending", "expected"),
    [
        pytest.param((100, 2500, 0), {V: 1000, M: 5000}, {}, (1, 1, 0), 0.5, id="15"),
        pytest.param((10, 1000, 0), {V: 0}, {M: 5000, V: 5000}, (1, 1, 0), 1.2, id="16"),
        pytest.param((10, 1000, 0), {}, {M: 5000, V: 0}, (1, 1, 0), 2.0, id="16, with the 0 as a max"),
        pytest.param((-5, 1000, 9), {}, {M: 5000, V: 100}, (1, 1, 1), 1.2, id="17"),
        pytest.param((0, 0, 0), {}, {V: 0}, (1, 0, 0), 1.0, id="nothing used of nothing"),
        pytest.param((7, 0, 0), {}, {}, (1, 0, 0), 1.0, id="no denominator"),
        pytest.param((15, 0, 0), {V: 10}, {V: 5}, (1, 0, 0), 1.5, id="guarantee before max"),
        pytest.param((5, 50, 0), {V: 10}, {V: 20, M: 200}, (1, 9, 0), 0.5, id="nobody guarantees one of the types"),
        pytest.param((5, 50, 0), {V: 10}, {V: 20, M: 200}, (0, 9, 0), 1.25, id="nor the one that is waited for"),
    ],
)
def test_fair_share(
    used: tuple[int, int, int],
    guaranteed: dict[int, int],
    fair_max: dict[int, int],
    pending: tuple[int, int, int],
    expected: float,
) -> None:
    """The largest used / denominator, over the types that have one; 1 more where no guarantee helps what waits."""
    root = queue("root", maximum=fair_max)
    found = queue("q", root, used=used, guaranteed=guaranteed)
    found.pending[:] = pending
    assert fair_share(found) == expected


def test_a_queue_counts_with_what_those_below_declare() -> None:
    """Type by type, through every level, and as it changes."""
    root = queue("root", maximum={V: 100, M: 100})
    top = queue("top", root, guaranteed={M: 7})
    middle = queue("middle", top)
    leaves = [queue(name, middle, guaranteed={V: 10, M: 2}) for name in "ab"]
    assert (middle.counted, top.counted) == ({V: 20, M: 4}, {V: 20, M: 7})
    assert dict(top.fair_terms) == {V: 20, M: 7}
    leaves[0].set_limits({V: 1}, {})
    assert (middle.counted, top.counted) == ({V: 11, M: 2}, {V: 11, M: 7})
    top.set_limits({}, {})
    middle.set_limits({V: 30}, {})
    assert (middle.counted, top.counted) == ({V: 30, M: 2}, {V: 30, M: 2})
    for leaf in leaves:
        leaf.set_limits({}, {})
    assert (middle.counted, top.counted) == ({V: 30}, {V: 30})
    assert dict(top.fair_terms) == {V: 30, M: 100}


def test_example_20_fair_max() -> None:
    """The denominator is inherited and overwritten per type, even by a larger amount."""
    root = queue("root", maximum={M: 1000, V: 100})
    parent = queue("p", root, maximum={M: 500})
    leaf = queue("leaf", parent, maximum={V: 200, X: 4})
    assert dict(leaf.fair_max) == {M: 500, V: 200, X: 4}


def test_order_is_total() -> None:
    """Queues that are equal in everything else go by their name."""
    root = queue("root", maximum={V: 100})
    keys = [queue_key(queue(name, root)) for name in ("b", "a", "c")]
    assert sorted(keys) == [keys[1], keys[0], keys[2]]
