"""Which limits bind an application and what they leave it: config.md 10.2 and 10.3, T76 to T79, T83."""

from __future__ import annotations

import pytest

from kornel.core.domain.settings import QueueProperties
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import ResourceTypes
from kornel.core.model.users import Account, AccountKind, Limit, QueueLimits
from kornel.core.policies.queue_order import queue_key
from kornel.core.policies.user_limits import (
    Shortfall,
    binding_limits,
    choose_group,
    find_exceeded,
    find_shortfalls,
)

CPU, MEMORY = 0, 1
TYPES = ResourceTypes(lambda _: None)


def limits(users: dict[str, int] | None = None, groups: dict[str, int] | None = None) -> QueueLimits:
    """Limits on CPU alone, by name."""
    return QueueLimits(
        {name: Limit({CPU: most}, 0) for name, most in (users or {}).items()},
        {name: Limit({CPU: most}, 0) for name, most in (groups or {}).items()},
    )


def path(**at: QueueLimits) -> Queue:
    """The last of a chain of queues with these limits, the root first."""
    queue: Queue | None = None
    for name, written in at.items():
        queue = Queue(name, queue, leaf=False, properties=QueueProperties(), width=2, order_key=queue_key)
        queue.limits = written
    assert queue is not None
    return queue


@pytest.mark.parametrize(
    ("root", "leaf", "groups", "chosen"),
    [
        ({}, {}, ("dev",), None),
        ({"dev": 1}, {}, ("dev",), "dev"),
        ({"dev": 1}, {}, ("ops",), None),
        ({"dev": 1, "ops": 1}, {}, ("ops", "dev"), "dev"),
        ({"dev": 1}, {"ops": 1}, ("dev", "ops"), "ops"),
        ({"dev": 1}, {"special": 1, "*": 1}, ("dev",), "*"),
        ({"dev": 1}, {"special": 1, "*": 1}, ("zz", "special", "dev"), "special"),
        ({"dev": 1, "*": 1}, {"ops": 1}, ("sales",), "*"),
    ],
)
def test_group_is_chosen_by_the_lowest_queue(
    root: dict[str, int], leaf: dict[str, int], groups: tuple[str, ...], chosen: str | None
) -> None:
    """The lowest queue that knows a group of the owner decides, in the order of its configuration (T79)."""
    assert choose_group(path(root=limits(groups=root), leaf=limits(groups=leaf)), groups) == chosen


@pytest.mark.parametrize(
    ("user", "group", "expected"),
    [
        ("sue", None, [("root", "user", "sue", 100), ("leaf", "user", "sue", 3)]),
        ("bob", None, [("root", "user", "bob", 10), ("leaf", "user", "bob", 3)]),
        (
            "bob",
            "dev",
            [("root", "user", "bob", 10), ("root", "group", "dev", 50), ("leaf", "user", "bob", 3)],
        ),
        ("bob", "*", [("root", "user", "bob", 10), ("leaf", "user", "bob", 3), ("leaf", "group", "*", 7)]),
    ],
)
def test_limits_that_bind(user: str, group: str | None, expected: list[tuple[str, str, str, int]]) -> None:
    """A user by name, else by ``*``, level by level (T78); a group only by its own name (T79)."""
    leaf = path(root=limits({"sue": 100, "*": 10}, {"dev": 50}), leaf=limits({"*": 3}, {"ops": 6, "*": 7}))
    found = [
        (queue.name, kind.value, name, limit.max[CPU])
        for queue, kind, name, limit in binding_limits(leaf, user, group, TYPES)
    ]
    assert found == expected


def account(most: dict[int, int], used: list[int], applications: int = 0) -> Account:
    made = Account(AccountKind.USER, "bob", path(root=limits()), Limit(most, applications), 2)
    made.used[:] = used
    return made


def test_who_is_exceeded_and_by_how_much() -> None:
    """The first account that does not admit an ask, with the numbers of every type that is short (T81)."""
    roomy, tight = account({CPU: 100}, [0, 0]), account({CPU: 40, MEMORY: 0}, [50, 0])
    assert find_exceeded([roomy, tight], ((CPU, 1),)) is tight
    assert find_exceeded([roomy], ((CPU, 100), (MEMORY, 7))) is None
    assert find_exceeded([roomy], ((CPU, 101),)) is roomy
    assert find_shortfalls(tight, ((CPU, 1), (MEMORY, 2))) == (Shortfall(CPU, 1, -10, 40), Shortfall(MEMORY, 2, 0, 0))
    assert find_shortfalls(roomy, ((CPU, 1), (MEMORY, 2))) == ()
