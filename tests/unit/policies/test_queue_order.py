"""Fair share and queue order against worked examples 15 to 20 of scheduling.md 22."""

from __future__ import annotations

import pytest

from kornel.core.domain.settings import QueueProperties
from kornel.core.model.queues import Queue
from kornel.core.policies.queue_order import fair_share, fair_terms, queue_key

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
    made.fair_terms = fair_terms(made)
    return made


@pytest.mark.parametrize(
    ("used", "guaranteed", "fair_max", "expected"),
    [
        pytest.param((100, 2500, 0), {V: 1000, M: 5000}, {}, 0.5, id="15"),
        pytest.param((10, 1000, 0), {}, {M: 5000, V: 0}, 1.0, id="16, with the 0 as a max"),
        pytest.param((-5, 1000, 9), {}, {M: 5000, V: 100}, 0.2, id="17"),
        pytest.param((0, 0, 0), {}, {V: 0}, 0.0, id="nothing used of nothing"),
        pytest.param((7, 0, 0), {}, {}, 0.0, id="no denominator"),
        pytest.param((15, 0, 0), {V: 10}, {V: 5}, 1.5, id="guarantee before max"),
    ],
)
def test_fair_share(
    used: tuple[int, int, int], guaranteed: dict[int, int], fair_max: dict[int, int], expected: float
) -> None:
    """The largest used / denominator, over the types that have one."""
    root = queue("root", maximum=fair_max)
    assert fair_share(queue("q", root, used=used, guaranteed=guaranteed)) == expected


def test_example_20_fair_max() -> None:
    """The denominator is inherited and overwritten per type, even by a larger amount."""
    root = queue("root", maximum={M: 1000, V: 100})
    parent = queue("p", root, maximum={M: 500})
    leaf = queue("leaf", parent, maximum={V: 200, X: 4})
    assert dict(leaf.fair_terms) == {M: 500, V: 200, X: 4}


def test_order_is_total() -> None:
    """Queues that are equal in everything else go by their name."""
    root = queue("root", maximum={V: 100})
    keys = [queue_key(queue(name, root)) for name in ("b", "a", "c")]
    assert sorted(keys) == [keys[1], keys[0], keys[2]]
