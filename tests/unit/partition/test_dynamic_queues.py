"""What the making of a queue leaves alone: the rest of the partition."""

from __future__ import annotations

import json

import pytest

from kornel.core.domain.effects import ApplicationAccepted
from kornel.core.domain.resources import MAX_TYPES
from kornel.core.engine.configuration import dynamic_queues
from kornel.core.model.queues import Queue
from kornel.core.policies.queue_order import find_fair_max
from kornel.core.state.books import audit
from kornel.core.state.partition_state import PartitionState
from tests.driven_core import DrivenCore
from tests.reading import status_of


def running(*names: str) -> tuple[DrivenCore, PartitionState]:
    """A core with the default configuration and an application in the queue of each namespace of *names*."""
    core = DrivenCore()
    for name in names:
        submit(core, name)
    core.engine.cycle(0, 1)
    return core, core.state


def submit(core: DrivenCore, namespace: str, **tags: str) -> None:
    """One more application for *namespace*; tags by the end of their name."""
    given = {"namespace": namespace, **{f"namespace.resource{key}": value for key, value in tags.items()}}
    name = f"app{len(status_of(core.engine).partitions[0].queues)}-{namespace}-{len(tags)}"
    (accepted,) = core.application(name, user="bob", tags=tuple(given.items()))
    assert isinstance(accepted, ApplicationAccepted)
    assert (accepted.application_id, accepted.user) == (name, "bob")


def quota(**amounts: int) -> str:
    return json.dumps({"resources": {name: {"value": amount} for name, amount in amounts.items()}})


def test_shares_of_other_queues_are_not_reckoned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new queue, or a new limit, costs the reckoning of one queue, however many there are."""
    core, state = running(*(f"ns{number}" for number in range(50)))
    reckoned: list[str] = []

    def counted(queue: Queue) -> dict[int, int]:
        reckoned.append(queue.path)
        return find_fair_max(queue)

    monkeypatch.setattr(dynamic_queues, "find_fair_max", counted)
    submit(core, "new")
    submit(core, "ns7", quota=quota(vcore=5))
    assert reckoned == ["root.new", "root.ns7"]
    assert not state.fair_terms_stale
    assert all(dict(queue.fair_max) == find_fair_max(queue) for queue in state.queues.values())


def test_limits_of_one_queue_are_its_own() -> None:
    """Queues made from the same template do not share what a tag changes."""
    core, state = running("a", "b")
    submit(core, "a", quota=quota(vcore=5), guaranteed=quota(vcore=2))
    types = state.types.to_resources
    assert dict(types(state.queues["root.a"].max)) == {"vcore": 5}
    assert dict(types(state.queues["root.a"].guaranteed)) == {"vcore": 2}
    assert not state.queues["root.b"].max
    assert not state.queues["root.b"].guaranteed


def test_more_types_than_there_can_be() -> None:
    """A tag with too many types is one that cannot be used; the application is taken in without it."""
    core, state = running()
    amounts = {f"t{number}": 1 for number in range(MAX_TYPES + 1)}
    submit(core, "a", quota=quota(**amounts), maxapps="3")
    assert not state.queues["root.a"].max
    assert state.queues["root.a"].max_applications == 3
    assert len(state.types.names) < MAX_TYPES
    assert audit.check(state) == []
