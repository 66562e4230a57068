"""The order of a leaf's applications against worked examples 22 to 24 of scheduling.md 22."""

from __future__ import annotations

from kornel.core.domain.commands import ApplicationSpec
from kornel.core.domain.settings import QueueProperties, SortPolicy
from kornel.core.model.applications import Application
from kornel.core.model.queues import Queue
from kornel.core.policies.application_order import application_key, usage_shares

V, M = 0, 1


def leaf(properties: QueueProperties, guaranteed: dict[int, int] | None = None) -> Queue:
    made = Queue("a", None, leaf=True, properties=properties, width=2, order_key=application_key)
    made.set_limits(guaranteed or {}, {})
    return made


def application(
    name: str, queue: Queue, *, real: tuple[int, int] = (0, 0), priority: int = 0, submitted: int = 0
) -> Application:
    made = Application(ApplicationSpec(name, queue.path, "[rm]default"), queue, "user", submitted, [0, 0])
    made.own_amounts()
    made.real[:] = real
    made.priority = priority
    return made


def order(*applications: Application) -> str:
    return "".join(a.application_id for a in sorted(applications, key=application_key))


def test_example_22_share_of_the_guarantee() -> None:
    """The application with the smaller share of what the leaf is guaranteed goes first."""
    queue = leaf(QueueProperties(sort_policy=SortPolicy.FAIR), {V: 1000})
    assert order(application("A", queue, real=(200, 0)), application("B", queue, real=(100, 0))) == "BA"


def test_example_23_raw_amounts() -> None:
    """Without a guarantee raw amounts are compared, and the biggest number decides."""
    queue = leaf(QueueProperties(sort_policy=SortPolicy.FAIR))
    assert order(application("A", queue, real=(200, 1)), application("B", queue, real=(100, 10**9))) == "AB"


def test_example_24_fifo() -> None:
    """Priority first unless disabled, then age, then ID."""
    for enabled, expected in ((True, "BCA"), (False, "ABC")):
        queue = leaf(QueueProperties(sort_by_priority=enabled))
        applications = (
            application("A", queue, submitted=1),
            application("B", queue, submitted=2, priority=5),
            application("C", queue, submitted=3, priority=5),
        )
        assert order(*applications) == expected


def test_equal_applications_go_by_id() -> None:
    """The order is total: the ID decides at last, under both policies."""
    for policy in SortPolicy:
        queue = leaf(QueueProperties(sort_policy=policy))
        assert order(application("B", queue), application("A", queue)) == "AB"


def test_placeholders_are_no_usage() -> None:
    """Only what is really held counts, largest share first."""
    queue = leaf(QueueProperties(sort_policy=SortPolicy.FAIR), {V: 10})
    subject = application("A", queue, real=(5, 3))
    subject.placeholder[:] = [100, 100]
    assert usage_shares(subject) == (3.0, 0.5)
