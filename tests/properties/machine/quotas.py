"""Quotas of queues, limits of users and of applications, reckoned from what is written and what the shim runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from kornel.core.config.loader import load
from kornel.core.config.model import PartitionConfig, QueueConfig
from kornel.core.config.text.problems import ConfigError
from kornel.core.model.queues import Queue
from kornel.core.state.partition_state import PartitionState
from tests.properties.machine.view import Amounts, ContractBroken, PartitionView, add


@lru_cache(maxsize=128)
def written(config: str) -> Mapping[str, PartitionConfig] | None:
    """The partitions that *config* declares, by bare name; ``None``: it cannot be used."""
    try:
        return {partition.name: partition for partition in load(config).partitions}
    except ConfigError:
        return None


class Quotas:
    """What *view* runs in one partition, and whether more of it may.

    Only the core knows in which queue an application is; everything else is the view's own and the configuration's.
    """

    def __init__(
        self,
        state: PartitionState,
        view: PartitionView,
        config: PartitionConfig,
        counted: frozenset[str],
        swaps: Mapping[str, frozenset[str]],
    ) -> None:
        self._state = state
        self._view = view
        self._counted = counted
        self._swaps = swaps
        self._states = {name: application.state for name, application in view.applications.items()}
        """As they were: a placement is announced after the change of state that it brings."""
        self._rules = dict(_paths(config.root, ""))
        self._used: dict[str, Amounts] = {path: {} for path in state.queues}
        self._of_users: dict[tuple[str, str], Amounts] = {}
        self._holders: dict[str, None] = {}
        for request in view.requests.values():
            if request.node:
                self._book(request.owner, request.size)

    def exceeded(self, application_id: str, size: Mapping[str, int], *, agreed: bool = False) -> str | None:
        """What is in the way of *size* more; ``None``: nothing.

        *agreed*: the application counted as one that runs when the shim was asked about this.
        """
        user = self._view.applications[application_id].spec.user
        begins = self._states[application_id] == "Accepted" and application_id not in self._holders and not agreed
        starts = begins and application_id not in self._counted
        for queue in self._lineage(application_id):
            # The root's max is the size of the cluster, which the nodes keep. Who preempted in a queue that is above
            # its max takes the place of its victims.
            swaps = queue.path in self._swaps.get(application_id, ())
            maximum = self._state.types.to_resources({} if queue.parent is None or swaps else queue.max)
            if over := _over(self._used[queue.path], size, maximum):
                return f"{queue.path}: {over}"
            rules = self._rules.get(queue.path)
            # A queue that is listed no more keeps what was written there last.
            most = rules.max_applications if rules is not None else queue.max_applications
            running = self._running(queue.path) if starts and most else []
            if len(running) + 1 > most > 0:
                return f"{queue.path}: {running} run, {most} may"
            for limit in rules.limits if rules is not None else ():
                if user not in limit.users:
                    continue
                used = self._of_users.get((queue.path, user), {})
                if over := _over(used, size, limit.max_resources or {}):
                    return f"{queue.path}: {user} {over}"
                holding = [name for name in self._holders if self._counts_for(name, queue.path, user)]
                if begins and limit.max_applications and len(holding) + 1 > limit.max_applications:
                    return f"{queue.path}: {user} has {holding}, {limit.max_applications} may hold something"
        return None

    def take(self, application_id: str, size: Mapping[str, int], *, agreed: bool) -> str | None:
        """As :meth:`exceeded`; what fits is booked."""
        found = self.exceeded(application_id, size, agreed=agreed)
        if found is None:
            self._book(application_id, size)
        return found

    def _book(self, application_id: str, size: Mapping[str, int]) -> None:
        self._holders[application_id] = None
        user = self._view.applications[application_id].spec.user
        for queue in self._lineage(application_id):
            add(self._used[queue.path], size)
            add(self._of_users.setdefault((queue.path, user), {}), size)

    def _lineage(self, application_id: str) -> tuple[Queue, ...]:
        return tuple(self._state.applications[application_id].queue.lineage())

    def _below(self, application_id: str, path: str) -> bool:
        found = self._state.applications.get(application_id)
        return found is not None and any(queue.path == path for queue in found.queue.lineage())

    def _counts_for(self, application_id: str, path: str, user: str) -> bool:
        application = self._view.applications.get(application_id)
        return application is not None and application.spec.user == user and self._below(application_id, path)

    def _about_to_run(self, application_id: str) -> bool:
        return application_id in self._holders or application_id in self._counted

    def _running(self, path: str) -> list[str]:
        """Applications that run, or are about to since they hold something."""
        return [
            name
            for name, application in self._view.applications.items()
            if application.state in ("Accepted", "Resuming", "Running")
            and (self._states[name] == "Running" or self._about_to_run(name))
            and self._below(name, path)
        ]


def counted(state: PartitionState) -> frozenset[str]:
    """Applications that count as running before they run, since they have an allocation, a reservation or a hold."""
    return frozenset(name for name, application in state.applications.items() if application.allocating)


def swapping(state: PartitionState) -> dict[str, frozenset[str]]:
    """By application, the queues above their max in which asks of it take the place of their victims."""
    found: dict[str, frozenset[str]] = {}
    for ask in state.requests.values():
        if ask.swaps_in and not ask.victims:
            name = ask.application.application_id
            found[name] = found.get(name, frozenset()) | {queue.path for queue in ask.swaps_in}
    return found


def quotas(
    state: PartitionState,
    view: PartitionView,
    config: str,
    counted: frozenset[str],
    swaps: Mapping[str, frozenset[str]] | None = None,
) -> Quotas:
    """*config*: the one in force. *counted*: Accepted applications that count as running, as only the core knows.

    *swaps*: of :func:`swapping`, before the call that is judged; nothing: as things are.
    """
    rules = written(config)
    if rules is None:
        raise ContractBroken("configuration", "one that cannot be used is in force")
    swaps = swapping(state) if swaps is None else swaps
    return Quotas(state, view, rules[state.name.partition("]")[2]], counted, swaps)


def _over(used: Mapping[str, int], size: Mapping[str, int], maximum: Mapping[str, int]) -> str:
    for name, amount in size.items():
        if amount and name in maximum and used.get(name, 0) + amount > maximum[name]:
            return f"{name} {used.get(name, 0)} + {amount} > {maximum[name]}"
    return ""


def _paths(queue: QueueConfig, parent: str) -> list[tuple[str, QueueConfig]]:
    path = f"{parent}.{queue.name}" if parent else queue.name
    return [(path, queue), *(found for child in queue.children for found in _paths(child, path))]
