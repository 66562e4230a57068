"""Which queue an application goes to (rule ``provided``, then ``root.default``)."""

from __future__ import annotations

import pytest

from core.domain.commands import ApplicationSpec
from core.domain.settings import QueueProperties
from core.model.queues import Queue
from core.policies.queue_order import queue_key
from core.policies.queue_placement import RECOVERY_QUEUE, place


class Index:
    """A queue tree by path."""

    def __init__(self, queues: dict[str, Queue]) -> None:
        self.queues = queues


def tree(*paths: str) -> Index:
    queues: dict[str, Queue] = {}
    for path in ("root", *paths):
        parent, _, name = path.rpartition(".")
        leaf = not any(other.startswith(f"{path}.") for other in paths) and path != "root"
        queues[path] = Queue(
            name, queues.get(parent), leaf=leaf, properties=QueueProperties(), width=0, order_key=queue_key
        )
    return Index(queues)


@pytest.mark.parametrize(
    ("name", "forced", "expected"),
    [
        ("root.p.a", False, "root.p.a"),
        ("ROOT.P.A", False, "root.p.a"),
        ("p.a", False, "root.p.a"),
        ("root.p", False, None),
        ("root", False, None),
        ("", False, None),
        ("root.missing", False, None),
        ("root.missing", True, "root.@recovery@"),
        ("root.p.a", True, "root.p.a"),
    ],
)
def test_provided(name: str, forced: bool, expected: str | None) -> None:
    """A leaf takes it; parents and unknown names do not; forced ones end in the recovery queue."""
    found = place(tree("root.p", "root.p.a"), ApplicationSpec("app", name, "[rm]default"), forced=forced)
    assert (found.path if isinstance(found, Queue) else found) == expected


def test_default_takes_the_rest() -> None:
    """``root.default`` takes what no other queue takes, unless it is draining."""
    index = tree("root.default")
    spec = ApplicationSpec("app", "root.missing", "[rm]default")
    assert place(index, spec, forced=False) is index.queues["root.default"]
    index.queues["root.default"].draining = True
    assert place(index, spec, forced=False) is None


def test_the_recovery_queue_is_not_for_the_asking() -> None:
    """Even a full name does not lead there, forced or not; only falling through does."""
    index = tree(f"root.{RECOVERY_QUEUE}")
    spec = ApplicationSpec("app", f"root.{RECOVERY_QUEUE}", "[rm]default")
    assert place(index, spec, forced=False) is None
    assert place(index, spec, forced=True) is index.queues[f"root.{RECOVERY_QUEUE}"]
