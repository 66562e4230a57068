"""Scenarios: the nodes of the simulated cluster, the tasks that are submitted with their times, and the expectations of
the core.

Scenarios are read strictly: an unknown field, a negative amount or an undefined name is an error, with line and field.
``docs/shim-mock.md`` describes every field. Times are simulated seconds (which pass *speed* times as fast as real
ones), except in expectations, ``settle`` and ``timeout``, which measure the core and are real seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import yaml

from kornel.shared.quantities import INT64_MAX, parse_quantity
from kornel.shim_client import Device, Devices, Generation
from kornel.shim_mock import quantities
from kornel.shim_mock.documents import Cursor, Findings, compose_document, read_text
from kornel.shim_mock.expectations import Expectation, parse_expectation
from kornel.shim_mock.queues import QueueLimits, read_queues

Value = TypeVar("Value")
Fields: TypeAlias = dict[str, Cursor]

MOST_OF_A_GROUP: Final = 1_000_000
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62})", re.ASCII)
_TYPE: Final = re.compile(r"[A-Za-z][A-Za-z0-9._/-]{0,127}", re.ASCII)
_QUEUE: Final = re.compile(r"root(?:\.[^.\s]+)+")


class OnNotice(StrEnum):
    """The reactions of an application to the notice that it may lose tasks."""

    RELEASE = "release"  # ends other tasks of its own instead
    CHECKPOINT = "checkpoint"  # answers that the listed tasks have just saved their work, and loses them
    LATE = "late"  # also ends other tasks of its own, but only after the deadline
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A class of tasks, with their priority and their role in preemption."""

    name: str
    value: int = 0
    allow_preemption: bool = True
    may_preempt: bool = True


# This is used for tasks without a class: it describes an ordinary Kubernetes pod.
NO_CLASS: Final = PriorityClass("")


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A group of *count* equal nodes. Times are simulated seconds from the start; None means never."""

    name: str
    resources: Mapping[str, int]
    count: int = 1
    attributes: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    at_s: float = 0.0
    drain_s: float | None = None
    restore_s: float | None = None
    remove_s: float | None = None

    def node_ids(self) -> list[str]:
        """Returns the IDs of the group's nodes, in order."""
        return [f"{self.name}-{index}" for index in range(self.count)]


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """A group of *count* equal tasks of an application.

    If *runtime_s* is None, they run until they are stopped. If *arrival_per_s* is None, they arrive all at once.
    *originator* marks the first task only. *restart* re-creates lost tasks under new keys, as a ReplicaSet does. *node*
    is the only node on which they may run, as with pods of a DaemonSet; if it is empty, they may run on any. *devices*
    is the request of each task for devices of its node; None: it wants none. *keys* replaces the generated keys.
    """

    name: str
    resources: Mapping[str, int]
    count: int = 1
    priority_class: PriorityClass = NO_CLASS
    runtime_s: float | None = None
    arrival_per_s: float | None = None
    at_s: float = 0.0
    originator: bool = False
    restart: bool = False
    node: str = ""
    devices: Devices | None = None
    keys: tuple[str, ...] = ()

    def key(self, application_id: str, index: int) -> str:
        """Returns the allocation key of the *index*-th task."""
        return self.keys[index] if self.keys else f"{application_id}-{self.name}-{index}"


@dataclass(frozen=True, slots=True)
class Application:
    """The tasks that one user submits to one queue.

    *after_quiet* submits it once the core has placed all that it can, and not at a fixed time. If *on_notice* is None,
    the application does not read notices. *retries* is the number of failed tasks after which the application gives up;
    None means never. Preemption is not a failure. *fail_s* is the time at which one of its tasks fails; None means
    never.
    """

    id: str
    queue: str
    tasks: tuple[TaskGroup, ...]
    user: str = "shim-mock"
    groups: tuple[str, ...] = ("shim-mock",)
    at_s: float = 0.0
    after_quiet: bool = False
    on_notice: OnNotice | None = None
    retries: int | None = None
    fail_s: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A change to another queue configuration, at a fixed time or once the core is quiet. *queues* are its limits by
    path."""

    config: str
    queues: Mapping[str, QueueLimits]
    at_s: float = 0.0
    after_quiet: bool = False


@dataclass(frozen=True, slots=True)
class ReleasePolicy:
    """The delays with which the cluster confirms releases, and the share of confirmations that are lost.

    If *retry_s* is None, a lost confirmation is never repeated.
    """

    delay_s: float = 0.0
    loss: float = 0.0
    duplication: float = 0.0
    retry_s: float | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """The input of one run. *queues* are the limits by queue path that the configuration declares."""

    name: str
    config: str
    nodes: tuple[NodeGroup, ...]
    applications: tuple[Application, ...]
    changes: tuple[Change, ...] = ()
    queues: Mapping[str, QueueLimits] = field(default_factory=dict)
    releases: ReleasePolicy = ReleasePolicy()
    expectations: tuple[Expectation, ...] = ()
    speed: float = 1.0
    generation: Generation = Generation.G3
    settle_s: float = 2.0
    timeout_s: float = 300.0
    duration_s: float | None = None
    description: str = ""

    @property
    def capacity(self) -> dict[str, int]:
        """Returns the sum over all nodes by resource type, including nodes that are removed later."""
        total: dict[str, int] = {}
        for group in self.nodes:
            for resource_type, amount in group.resources.items():
                total[resource_type] = total.get(resource_type, 0) + amount * group.count
        return total


def load_scenario(path: Path) -> Scenario:
    """Returns the scenario in the file *path*. Raises InputError with all problems found."""
    return parse_scenario(read_text(path), file=str(path), folder=path.parent)


def parse_scenario(text: str, *, file: str = "scenario.yaml", folder: Path = Path()) -> Scenario:
    """Returns the scenario in *text*. *file* is named in problems; ``config: FILE`` is looked up in *folder*."""
    findings = Findings(file)
    root = Cursor(compose_document(text, file), "", findings)
    reader = _Reader(findings, folder)
    try:
        scenario = reader.scenario(root)
    except RecursionError:
        root.reject("nested too deeply")
    findings.raise_if_any()
    return scenario


class _Reader:
    """A reader of one scenario. It reports and replaces missing or wrong values, so that it can go on reading."""

    def __init__(self, findings: Findings, folder: Path) -> None:
        self._findings = findings
        self._folder = folder
        self._classes: dict[str, PriorityClass] = {}
        self._nodes: tuple[NodeGroup, ...] = ()

    def scenario(self, root: Cursor) -> Scenario:
        fields = root.fields(
            *("name", "description", "seed", "speed", "generation", "settle", "timeout", "duration"),
            *("queues", "config", "nodes", "priorityClasses", "applications", "changes", "releases", "expectations"),
            required=("name", "nodes", "applications"),
        )
        seed = self._read_int(fields, "seed", 0, 0, quantities.INT32_MAX)
        config = self._read_config(root, fields)
        queues = read_queues(config)
        self._read_priority_classes(fields.get("priorityClasses"))
        self._nodes = nodes = tuple(self._read_node(item) for item in _items_of(fields.get("nodes")))
        self._check_unique(fields.get("nodes"), [group.name for group in nodes], "nodes")
        applications = tuple(self._read_application(item) for item in _items_of(fields.get("applications")))
        self._check_unique(fields.get("applications"), [entry.id for entry in applications], "applications")
        self._check_keys(fields.get("applications"), applications)
        if "nodes" in fields and not nodes:
            fields["nodes"].reject("at least one node is needed")
        self._check_total(fields, nodes)
        return Scenario(
            name=_parse_field(fields, "name", _parse_name, ""),
            description=fields["description"].text() if "description" in fields else "",
            config=config,
            queues=queues,
            nodes=nodes,
            applications=applications,
            changes=tuple(self._read_change(item) for item in _items_of(fields.get("changes"))),
            releases=self._read_releases(fields.get("releases"), seed),
            expectations=self._read_expectations(fields.get("expectations"), queues, applications),
            speed=self._read_decimal(fields, "speed", 1.0, 0.001, 1e6),
            generation=_parse_field(fields, "generation", _parse_generation, Generation.G3),
            settle_s=self._read_duration(fields, "settle", 2.0),
            timeout_s=self._read_duration(fields, "timeout", 300.0),
            duration_s=self._optional_duration(fields, "duration"),
        )

    def _read_config(self, root: Cursor, fields: Fields) -> str:
        queues, file = fields.get("queues"), fields.get("config")
        if queues is not None and file is not None:
            file.reject("give either queues or config, not both")
        if queues is not None:
            if queues.is_mapping():
                # This changes the layout only: scalars keep their text, so the core reads the same values as written in
                # the scenario.
                return str(yaml.serialize(queues.node))
            return queues.text()
        if file is not None:
            path = self._folder / file.text()
            try:
                return path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError, ValueError) as error:
                file.reject(f"cannot read {path}: {getattr(error, 'strerror', None) or error}")
                return ""
        root.reject("give the queue configuration: queues (inline) or config (a file)")
        return ""

    def _read_priority_classes(self, section: Cursor | None) -> None:
        for item in _items_of(section):
            fields = item.fields("name", "value", "allowPreemption", "preemptionPolicy", required=("name",))
            entry = PriorityClass(
                name=_parse_field(fields, "name", _parse_name, ""),
                value=self._read_int(fields, "value", 0, quantities.INT32_MIN, quantities.INT32_MAX),
                allow_preemption=self._read_flag(fields, "allowPreemption", default=True),
                may_preempt=_parse_field(fields, "preemptionPolicy", _may_preempt, True),
            )
            if entry.name in self._classes:
                fields["name"].reject(f"{entry.name!r} is defined twice")
            self._classes[entry.name] = entry

    def _read_node(self, item: Cursor) -> NodeGroup:
        fields = item.fields(
            "name", "count", "resources", "attributes", "devices", "at", "drain", "restore", "remove",
            required=("name", "resources"),
        )  # fmt: skip
        count = self._read_int(fields, "count", 1, 1, MOST_OF_A_GROUP)
        group = NodeGroup(
            name=_parse_field(fields, "name", _parse_name, ""),
            count=count,
            resources=self._resources(fields.get("resources"), count),
            attributes=(
                {key: value.text() for key, value in fields["attributes"].entries().items()}
                if "attributes" in fields
                else {}
            ),
            devices=tuple(self._read_device(entry) for entry in _items_of(fields.get("devices"))),
            at_s=self._read_duration(fields, "at", 0.0),
            drain_s=self._optional_duration(fields, "drain"),
            restore_s=self._optional_duration(fields, "restore"),
            remove_s=self._optional_duration(fields, "remove"),
        )
        for key, seconds in (("drain", group.drain_s), ("remove", group.remove_s)):
            if seconds is not None and seconds < group.at_s:
                fields[key].reject("is before the node is there")
        if group.restore_s is not None and (group.drain_s is None or group.restore_s < group.drain_s):
            fields["restore"].reject("needs an earlier drain")
        return group

    def _read_device(self, item: Cursor) -> Device:
        fields = item.fields("id", "type", "link", required=("id",))
        kind, link = (fields[name].text() if name in fields else "" for name in ("type", "link"))
        return Device(_parse_field(fields, "id", _parse_name, ""), kind, link=link)

    def _read_devices(self, item: Cursor) -> Devices | None:
        """Returns the request of a task for devices. Memory of devices is not simulated."""
        fields = item.fields("count", "fraction", "linked", "types")
        types = tuple(entry.text() for entry in _items_of(fields.get("types")))
        try:
            return Devices(
                count=self._read_int(fields, "count", 0, 1, 256),
                fraction=self._read_decimal(fields, "fraction", 0.0, 0.001, 0.999),
                linked=self._read_flag(fields, "linked", default=False),
                types=types,
            )
        except ValueError as error:
            item.reject(str(error))
            return None

    def _read_application(self, item: Cursor) -> Application:
        fields = item.fields(
            "id", "queue", "user", "groups", "at", "after", "onNotice", "retries", "failAt", "tasks",
            required=("id", "queue", "tasks"),
        )  # fmt: skip
        self._read_after(fields)
        user = _parse_field(fields, "user", _parse_name, "shim-mock")
        tasks = tuple(self._read_task(entry) for entry in _items_of(fields.get("tasks")))
        self._check_unique(fields.get("tasks"), [group.name for group in tasks], "tasks of the application")
        return Application(
            id=_parse_field(fields, "id", _parse_name, ""),
            queue=_parse_field(fields, "queue", _parse_queue, ""),
            user=user,
            groups=tuple(entry.parse(_parse_name, "") for entry in _items_of(fields.get("groups"))) or (user,),
            at_s=self._read_duration(fields, "at", 0.0),
            after_quiet="after" in fields,
            on_notice=_parse_field(fields, "onNotice", _parse_on_notice, None),
            retries=self._read_int(fields, "retries", 0, 1, quantities.INT32_MAX) if "retries" in fields else None,
            fail_s=self._optional_duration(fields, "failAt"),
            tasks=tasks,
        )

    def _read_change(self, item: Cursor) -> Change:
        fields = item.fields("queues", "config", "at", "after")
        self._read_after(fields)
        config = self._read_config(item, fields)
        return Change(config, read_queues(config), self._read_duration(fields, "at", 0.0), "after" in fields)

    def _read_after(self, fields: Fields) -> None:
        if "after" in fields:
            if fields["after"].text() != "quiet":
                fields["after"].reject("the only value is quiet")
            if "at" in fields:
                fields["at"].reject("give either at or after, not both")

    def _read_task(self, item: Cursor) -> TaskGroup:
        fields = item.fields(
            "name", "count", "resources", "priorityClass", "runtime", "arrival", "at", "originator", "restart", "node",
            "devices",
            required=("name", "resources"),
        )  # fmt: skip
        count = self._read_int(fields, "count", 1, 1, MOST_OF_A_GROUP)
        priority_class = NO_CLASS
        if (named := fields.get("priorityClass")) is not None:
            if (found := self._classes.get(named.text())) is None:
                named.reject(f"no priority class {named.text()!r} is defined")
            else:
                priority_class = found
        resources = self._resources(fields.get("resources"), count)
        if "resources" in fields and not any(resources.values()):
            fields["resources"].reject("a task needs some of at least one type")
        return TaskGroup(
            name=_parse_field(fields, "name", _parse_name, ""),
            count=count,
            resources=resources,
            priority_class=priority_class,
            runtime_s=self._optional_duration(fields, "runtime"),
            arrival_per_s=fields["arrival"].parse(quantities.parse_rate, 1.0) if "arrival" in fields else None,
            at_s=self._read_duration(fields, "at", 0.0),
            originator=self._read_flag(fields, "originator", default=False),
            restart=self._read_flag(fields, "restart", default=False),
            node=self._required_node(fields["node"]) if "node" in fields else "",
            devices=self._read_devices(fields["devices"]) if "devices" in fields else None,
        )

    def _read_releases(self, section: Cursor | None, seed: int) -> ReleasePolicy:
        if section is None:
            return ReleasePolicy(seed=seed)
        fields = section.fields("delay", "loss", "duplication", "retry", "seed")
        policy = ReleasePolicy(
            delay_s=self._read_duration(fields, "delay", 0.0),
            loss=self._read_decimal(fields, "loss", 0.0, 0.0, 1.0),
            duplication=self._read_decimal(fields, "duplication", 0.0, 0.0, 1.0),
            retry_s=self._optional_duration(fields, "retry"),
            seed=self._read_int(fields, "seed", seed, 0, quantities.INT32_MAX),
        )
        if policy.retry_s == 0:
            fields["retry"].reject("must be above zero")
        if policy.loss == 1 and policy.retry_s is not None:
            fields["retry"].reject("never ends when every confirmation is lost")
        return policy

    def _read_expectations(
        self, section: Cursor | None, queues: Mapping[str, QueueLimits], applications: tuple[Application, ...]
    ) -> tuple[Expectation, ...]:
        named = {application.id for application in applications}
        found = []
        for item in _items_of(section):
            try:
                expectation = parse_expectation(item.text())
            except ValueError as error:
                item.reject(str(error))
                continue
            queue = expectation.queue
            if expectation.needs_guarantee and not queues.get(queue, QueueLimits()).guaranteed:
                item.reject(f"the configuration gives {queue} no guarantee")
            if expectation.application and expectation.application not in named:
                item.reject(f"no application is called {expectation.application!r}")
            found.append(expectation)
        return tuple(found)

    def _resources(self, section: Cursor | None, count: int) -> dict[str, int]:
        amounts: dict[str, int] = {}
        for resource_type, value in section.entries().items() if section is not None else ():
            if _TYPE.fullmatch(resource_type) is None:
                value.reject(f"{resource_type!r} is no name of a resource type")
                continue
            amount = value.parse(partial(parse_quantity, resource_type), 0)
            if amount * count > INT64_MAX:
                value.reject(f"too large: {count} times this overflows 64 bits")
            amounts[resource_type] = amount
        return amounts

    def _required_node(self, field: Cursor) -> str:
        node_id = field.text()
        if not any(node_id in group.node_ids() for group in self._nodes):
            field.reject(f"{node_id!r} is no node: a group's nodes are called NAME-0, NAME-1 and so on")
        return node_id

    def _check_total(self, fields: Fields, nodes: tuple[NodeGroup, ...]) -> None:
        capacity: dict[str, int] = {}
        for group in nodes:
            for resource_type, amount in group.resources.items():
                capacity[resource_type] = capacity.get(resource_type, 0) + amount * group.count
        for resource_type, amount in capacity.items():
            if amount > INT64_MAX:
                fields["nodes"].reject(f"all nodes together overflow 64 bits of {resource_type}")

    def _check_unique(self, section: Cursor | None, names: list[str], what: str) -> None:
        section_items = _items_of(section)
        for index, name in enumerate(names):
            if name and name in names[:index]:
                section_items[index].reject(f"{name!r} appears twice among the {what}")

    def _check_keys(self, section: Cursor | None, applications: tuple[Application, ...]) -> None:
        """Reject keys that are not unique. For example, application a-b with task c has the same key as application a
        with task b-c."""
        seen: dict[str, str] = {}
        for index, application in enumerate(applications):
            for group in application.tasks:
                prefix = f"{application.id}-{group.name}"
                if section is not None and seen.setdefault(prefix, application.id) != application.id:
                    list(section.items())[index].reject(
                        f"its tasks {prefix}-* have the same keys as those of {seen[prefix]!r}"
                    )

    def _read_int(self, fields: Fields, key: str, default: int, least: int, most: int) -> int:
        return _parse_field(fields, key, lambda text: quantities.parse_integer(text, least, most), default)

    def _read_decimal(self, fields: Fields, key: str, default: float, least: float, most: float) -> float:
        return _parse_field(fields, key, lambda text: quantities.parse_decimal(text, least, most), default)

    def _read_duration(self, fields: Fields, key: str, default: float) -> float:
        return _parse_field(fields, key, quantities.parse_duration, default)

    def _optional_duration(self, fields: Fields, key: str) -> float | None:
        return fields[key].parse(quantities.parse_duration, 0.0) if key in fields else None

    def _read_flag(self, fields: Fields, key: str, *, default: bool) -> bool:
        return _parse_field(fields, key, quantities.parse_flag, default)


def _parse_field(fields: Fields, key: str, parser: Callable[[str], Value], default: Value) -> Value:
    """Returns the value that *parser* reads from the field *key*, or *default* if the field is missing or wrong."""
    return fields[key].parse(parser, default) if key in fields else default


def _items_of(section: Cursor | None) -> list[Cursor]:
    return [] if section is None else list(section.items())


def _parse_name(text: str) -> str:
    if _NAME.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no name: 1 to 63 letters, digits, dots, dashes or underscores")
    return text


def _parse_queue(text: str) -> str:
    if _QUEUE.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no full queue path such as root.prod")
    return text.lower()


def _parse_generation(text: str) -> Generation:
    try:
        return Generation(text)
    except ValueError:
        raise ValueError(f"{text!r} is no generation: g2 or g3") from None


def _parse_on_notice(text: str) -> OnNotice:
    try:
        return OnNotice(text)
    except ValueError:
        raise ValueError(f"{text!r} is no answer to a notice: release, checkpoint, late or ignore") from None


def _may_preempt(text: str) -> bool:
    if text not in ("Never", "PreemptLowerPriority"):
        raise ValueError(f"{text!r} is no preemption policy: Never or PreemptLowerPriority")
    return text == "PreemptLowerPriority"
