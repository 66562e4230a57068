"""Writes the series of single queues directly as text, because a thousand queues have tens of thousands of series.

A series appears when its value is first other than 0, or when it is declared, and stays until the queue is removed; a
value that disappears is shown as 0 (rest.md 6). Queues with the same path in several partitions are added up. At most
:data:`QUEUES_SHOWN` queues, with :data:`TYPES_SHOWN` resource types, are shown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

from kornel.core.domain.application_states import AppState
from kornel.core.metrics.decisions import LAST_STATES, QueueCounts
from kornel.core.telling.partitions.partition_gauges import PartitionGauges, QueueGauges

QUEUES_SHOWN: Final = 2_000
QUEUES_AT_ONCE: Final = 64
"""The number of queues whose series are written before other tasks may run."""
TYPES_SHOWN: Final = 32

LIVE_STATES: Final = (
    AppState.NEW,
    AppState.ACCEPTED,
    AppState.RUNNING,
    AppState.RESUMING,
    AppState.FAILING,
    AppState.COMPLETING,
)

APP: Final = "yunikorn_queue_app"
APP_TOTAL: Final = "yunikorn_queue_app_total"
RESOURCE: Final = "yunikorn_queue_resource"
CONTAINERS: Final = "kornel_queue_containers_total"

MOST_RUNNING: Final = ("maxRunningApps", "apps")
"""The state and the type under which the limit of running applications is shown."""

NAME: Final = "yunikorn_{queue}_queue_container"
"""The name of the counter that each queue has for itself."""

ALIAS_APP: Final = "yunikorn_{queue}_queue_app"
ALIAS_RESOURCE: Final = "yunikorn_{queue}_queue_resource"

T = TypeVar("T")

_NONE: Final[Counter[AppState]] = Counter()

_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9_:]")


def sanitise_name(name: str) -> str:
    """Returns *name* as a part of the name of a metric (rest.md 6)."""
    cleaned = _FOREIGN.sub("_", name)
    return f"_{cleaned}" if cleaned[:1].isdigit() else cleaned


def escape_value(value: str) -> str:
    """Returns *value* as the value of a label."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class _Queue:
    """The series of one queue, each as text up to its value, by state and type or by state."""

    __slots__ = ("apps", "container", "label", "path", "resources", "values")

    def __init__(self, path: str) -> None:
        self.path = path
        self.label = escape_value(path)
        self.container = NAME.format(queue=sanitise_name(path))
        self.resources: dict[tuple[str, str], str] = {}
        self.apps: dict[AppState, str] = {}
        self.values: dict[tuple[str, str], int] = {}
        """The values of this scrape that are not 0 or are declared."""

    def resource_line(self, state: str, name: str) -> str:
        key = state, name
        start = self.resources.get(key)
        if start is None:
            start = self.resources[key] = (
                f'{RESOURCE}{{queue="{self.label}",resource="{escape_value(name)}",state="{state}"}} '
            )
        return start

    def application_line(self, state: AppState) -> str:
        start = self.apps.get(state)
        if start is None:
            start = self.apps[state] = f'{APP}{{queue="{self.label}",state="{state.lower()}"}} '
        return start


class QueueSeries:
    """Remembers which series there are. ``omitted``: the number of queues that the last scrape did not show."""

    def __init__(self, *, aliases: bool = False) -> None:
        """Prepares the series.

        With *aliases*, they also have the names from before YuniKorn 1.8, which its dashboards still use.
        """
        self._aliases = aliases
        self._queues: dict[str, _Queue] = {}
        self._earlier: dict[str, Counter[AppState]] = {}
        """The applications that had ended in a queue when it was removed, which do not belong to a new queue with the
        same path."""
        self.omitted = 0

    def write_lines(
        self, partitions: Sequence[PartitionGauges], counts: Mapping[str, QueueCounts], *, whole: bool = True
    ) -> Iterator[str]:
        """Yields the series of queues, as text in pieces. *counts*: the counts of each queue, including removed
        ones. *whole*: these are all partitions."""
        before, self._queues, self.omitted = self._queues, {}, 0
        apps: dict[str, dict[AppState, int]] = {}
        running: Counter[str] = Counter()
        for partition in partitions:
            keys = _Keys(partition.types[:TYPES_SHOWN])
            self.omitted += partition.queues_omitted
            for gauges in partition.queues:
                queue = self._queues.get(gauges.path)
                if queue is None:
                    if len(self._queues) >= QUEUES_SHOWN:
                        self.omitted += 1
                        continue
                    queue = before.get(gauges.path) or _Queue(gauges.path)
                    queue.values = {}
                    self._queues[gauges.path] = queue
                    apps[gauges.path] = dict(gauges.applications)
                else:
                    for state, number in gauges.applications.items():
                        apps[gauges.path][state] = apps[gauges.path].get(state, 0) + number
                running[gauges.path] += gauges.allocations
                _collect_series(queue.values, gauges, keys)
                if not len(self._queues) % QUEUES_AT_ONCE:
                    yield ""
        self._forget_earlier_lives(before, counts)
        yield from self._resource_lines()
        yield from self._app_lines(apps, counts)
        yield from _total_lines(counts)
        yield from self._container_lines(counts, running if whole else None)
        if self._aliases:
            yield from self._alias_lines(apps)

    def _forget_earlier_lives(self, before: Iterable[str], counts: Mapping[str, QueueCounts]) -> None:
        for path in before:
            counted = counts.get(path)
            if path not in self._queues and counted is not None:
                self._earlier[path] = Counter(counted.ended)
        for path in self._earlier.keys() - counts.keys():
            del self._earlier[path]

    def _resource_lines(self) -> Iterator[str]:
        yield _head_lines(
            RESOURCE, "gauge", "Amounts that a queue is guaranteed, may use, uses, waits for and is losing."
        )
        for queues in _take_some(self._queues.values()):
            lines: list[str] = []
            for queue in queues:
                values, known = queue.values, queue.resources
                for key, value in values.items():
                    lines.append(f"{known.get(key) or queue.resource_line(*key)}{value}\n")
                if len(known) > len(values):
                    lines += [f"{start}0\n" for key, start in known.items() if key not in values]
            yield "".join(lines)

    def _app_lines(
        self, apps: Mapping[str, Mapping[AppState, int]], counts: Mapping[str, QueueCounts]
    ) -> Iterator[str]:
        yield _head_lines(APP, "gauge", "Applications of a queue by state; those that ended count up.")
        for queues in _take_some(self._queues.items()):
            lines: list[str] = []
            for path, queue in queues:
                live, known, counted = apps[path], queue.apps, counts.get(path)
                if live or known:
                    for state in LIVE_STATES:
                        number = live.get(state, 0)
                        if number or state in known:
                            lines.append(f"{known.get(state) or queue.application_line(state)}{number}\n")
                if counted is not None and counted.ended:
                    earlier = self._earlier.get(path, _NONE)
                    for state, number in counted.ended.items():
                        if number > earlier[state]:
                            lines.append(f"{queue.application_line(state)}{number - earlier[state]}\n")
            yield "".join(lines)

    def _container_lines(self, counts: Mapping[str, QueueCounts], running: Mapping[str, int] | None) -> Iterator[str]:
        families: dict[str, list[int]] = {}
        yield _head_lines(CONTAINERS, "counter", "Allocations of a queue that were made, and that ended.")
        for queues in _take_some(self._queues.items()):
            lines: list[str] = []
            for path, queue in queues:
                counted = counts.get(path)
                if counted is None:
                    continue
                if running is not None:
                    counted.match_running(running[path])
                allocated, released = counted.allocated, counted.released
                lines.append(
                    f'{CONTAINERS}{{queue="{queue.label}",state="allocated"}} {allocated}\n'
                    f'{CONTAINERS}{{queue="{queue.label}",state="released"}} {released}\n'
                )
                both = families.get(queue.container)
                if both is None:
                    families[queue.container] = [allocated, released]
                else:  # These queues have paths that only differ in characters that a metric's name cannot have.
                    both[0] += allocated
                    both[1] += released
            yield "".join(lines)
        for found in _take_some(families.items()):
            yield "".join(
                [
                    f"# HELP {name} Allocations that were made, and that ended.\n# TYPE {name} counter\n"
                    f'{name}{{state="allocated"}} {allocated}\n{name}{{state="released"}} {released}\n'
                    for name, (allocated, released) in found
                ]
            )

    def _alias_lines(self, apps: Mapping[str, Mapping[AppState, int]]) -> Iterator[str]:
        by_name: dict[str, list[_Queue]] = {}
        for queue in self._queues.values():
            by_name.setdefault(sanitise_name(queue.path), []).append(queue)
        for some in _take_some(by_name.items()):
            yield "".join([line for name, queues in some for line in _older_lines(name, queues, apps)])


def _older_lines(name: str, queues: Iterable[_Queue], apps: Mapping[str, Mapping[AppState, int]]) -> Iterator[str]:
    """Yields the series of *queues*, which all have *name* in the older form of metrics."""
    values: dict[tuple[str, str], int] = {}
    states: dict[AppState, int] = {}
    for queue in queues:
        for key, value in queue.values.items():
            values[key] = values.get(key, 0) + value
        for state, number in apps[queue.path].items():
            states[state] = states.get(state, 0) + number
    app, resource = ALIAS_APP.format(queue=name), ALIAS_RESOURCE.format(queue=name)
    if states:
        yield _head_lines(app, "gauge", f"As {APP}, under its older name.")
        for state, number in states.items():
            yield f'{app}{{state="{state.lower()}"}} {number}\n'
    if values:
        yield _head_lines(resource, "gauge", f"As {RESOURCE}, under its older name.")
        for (of, type_name), value in values.items():
            yield f'{resource}{{state="{of}",resource="{escape_value(type_name)}"}} {value}\n'


class _Keys:
    """The keys of a partition's series by state and index of the type, which are made once for all queues."""

    __slots__ = ("allocated", "guaranteed", "max", "pending", "preempting")

    def __init__(self, types: Sequence[str]) -> None:
        self.guaranteed = [("guaranteed", name) for name in types]
        self.max = [("max", name) for name in types]
        self.allocated = [("allocated", name) for name in types]
        self.pending = [("pending", name) for name in types]
        self.preempting = [("preempting", name) for name in types]


def _collect_series(values: dict[tuple[str, str], int], gauges: QueueGauges, keys: _Keys) -> None:
    """Add what *gauges* show to *values*."""
    seen = values.get
    for of, declared in ((keys.guaranteed, gauges.guaranteed), (keys.max, gauges.max)):
        for t, amount in declared.items():
            if t < len(of):
                key = of[t]
                values[key] = seen(key, 0) + amount
    for of, amounts in (
        (keys.allocated, gauges.used),
        (keys.pending, gauges.pending),
        (keys.preempting, gauges.preempting),
    ):
        if any(amounts):
            for key, amount in zip(of, amounts):  # noqa: B905 - types beyond those that are shown
                if amount:
                    values[key] = seen(key, 0) + amount
    if gauges.max_applications:
        values[MOST_RUNNING] = seen(MOST_RUNNING, 0) + gauges.max_applications


def _total_lines(counts: Mapping[str, QueueCounts]) -> Iterator[str]:
    yield _head_lines(APP_TOTAL, "counter", "Applications that ended, also in queues that are gone.")
    for some in _take_some(list(counts.items())):
        yield "".join(
            [
                f'{APP_TOTAL}{{queue="{escape_value(path)}",state="{state.lower()}"}} {counted.ended[state]}\n'
                for path, counted in some
                if counted.ended
                for state in sorted(LAST_STATES)
                if counted.ended[state]
            ]
        )


def _take_some(items: Iterable[T]) -> Iterator[list[T]]:
    """Yields *items* in groups, between which other tasks may run."""
    left = iter(items)
    while some := list(islice(left, QUEUES_AT_ONCE)):
        yield some


def _head_lines(name: str, kind: str, text: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
