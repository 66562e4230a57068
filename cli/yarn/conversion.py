"""Translates a Capacity Scheduler file into a queue configuration, and lists what has no counterpart there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple

import yaml

from kornel.cli.yarn.capacity_file import (
    PREFIX,
    Term,
    Value,
    YarnQueue,
    is_true,
    read_capacity,
    read_count,
    read_number,
    read_tree,
)
from kornel.cli.yarn.placement import convert_mappings
from kornel.cli.yarn.queue_amounts import Amounts, find_max, round_down, share_guarantee, write_amounts
from kornel.cli.yarn.remarks import CONVERTED, find_advice

_MONITOR: Final = "yarn.resourcemanager.monitor.capacity.preemption."
_OF_THE_CLUSTER: Final = "yarn.scheduler."
_ACL: Final = "yarn.acl.enable"
_MONITOR_ON: Final = "yarn.resourcemanager.scheduler.monitor.enable"
_MONITOR_KEYS: Final = {
    "observe_only": "observe_only",
    "monitoring_interval": "interval_ms",
    "max_wait_before_kill": "max_wait_ms",
    "total_preemption_per_round": "per_round",
    "max_ignored_over_capacity": "dead_zone",
    "natural_termination_factor": "natural_factor",
}
_SWITCH: Final = re.compile("true|false")
_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
_ORIGINATORS: Final = "maximum-am-resource-percent"
_OF_LEAVES: Final = (_ORIGINATORS, "user-limit-factor", "minimum-user-limit-percent")
_WHOLE: Final = {"": Term(Fraction(100), "%")}
_SECOND: Final = "auto-queue-creation-v2"
_TEMPLATES: Final = ("leaf-queue-template.", f"{_SECOND}.leaf-template.", f"{_SECOND}.template.")


class Remark(NamedTuple):
    """A setting, in the queues *where* it stands, that is not simply converted; *said* tells what to do or expect."""

    setting: str
    said: str
    where: list[str]


class Converted(NamedTuple):
    """A configuration as plain values, with what its reader has to know."""

    configuration: dict[str, Any]
    remarks: list[Remark]


class Conversion:
    """The conversion of the properties of a file. *cluster*: what the whole cluster has, in base units; empty:
    unknown."""

    def __init__(self, properties: Mapping[str, Value], cluster: Mapping[str, int]) -> None:
        self._properties = properties
        self._root, self._others = read_tree(properties)
        self._cluster = {kind: round_down(kind, amount) for kind, amount in cluster.items()}
        self._remarks: dict[tuple[str, str], Remark] = {}

    def convert_file(self) -> Converted:
        """Returns the whole configuration. Raises ``ValueError`` for amounts that make no sense, or are a part of
        something unknown."""
        root = self._convert_queue(self._root, self._cluster, self._cluster, 0)
        root.pop("resources", None)
        self._set_root(root)
        partition: dict[str, Any] = {"name": "default"}
        rules = convert_mappings(self._root, self._others, self._note_mapping)
        if rules:
            partition["placementrules"] = rules
            self._note(
                "", "queue-mappings",
                "where a user may not use the queue of a rule, YARN refuses the application; here the next rule is"
                " tried, and then root.default, so it may run elsewhere",
            )  # fmt: skip
        if monitor := self._convert_monitor():
            partition["preemption"] = {"monitor": monitor}
        partition["queues"] = [root]
        self._note_others()
        return Converted({"partitions": [partition]}, list(self._remarks.values()))

    def _note(self, where: str, setting: str, said: str) -> None:
        remark = self._remarks.setdefault((setting, said), Remark(setting, said, []))
        if where:
            remark.where.append(where)

    def _note_mapping(self, setting: str, value: str, said: str) -> None:
        self._note("", f"{setting} = {value}", said)

    def _set_root(self, root: dict[str, Any]) -> None:
        acl = self._root.keys.get("acl_submit_applications", "*")
        if _ACL in self._properties and not is_true(self._properties[_ACL]):
            acl = "*"
        elif _ACL not in self._properties and any("acl_submit_applications" in each.keys for each in self._root.walk()):
            self._note(
                "", _ACL,
                "off in YARN unless yarn-site.xml switches it on (give that file, too), so that access lists bind"
                " nobody; here they hold",
            )  # fmt: skip
        if acl.strip():
            root["submitacl"] = "*" if acl.strip() == "*" else str(acl)
        limits = [
            {"limit": f"applications of {who}", "users": [who], "maxapplications": count}
            for key in sorted(self._others, reverse=True)
            if key.endswith("max-parallel-apps") and key.startswith("user.")
            for who in [key.removeprefix("user.").removesuffix("max-parallel-apps").rstrip(".") or "*"]
            if (count := read_count(self._others[key])) > 0
        ]
        if limits:
            root["limits"] = sorted(limits, key=lambda limit: limit["users"] == ["*"])
        if (part := read_number(self._others.get(_ORIGINATORS))) is not None:
            root["properties"] = {**root.get("properties", {}), "originator.max": _write_percent(part)}
        for named in ("limits", "queues"):
            if named in root:
                root[named] = root.pop(named)

    def _convert_queue(self, queue: YarnQueue, guaranteed: Amounts, most: Amounts, running: int) -> dict[str, Any]:
        found: dict[str, Any] = {"name": queue.name}
        own = read_capacity(queue.keys.get("maximum-capacity")) or _WHOLE
        maximum = find_max(most, own) if queue is not self._root else dict(most)
        if any(amount > maximum.get(kind, amount) for kind, amount in guaranteed.items()):
            self._note(queue.path, "capacity", "is more than maximum-capacity, which is guaranteed instead")
            guaranteed = {kind: min(amount, maximum.get(kind, amount)) for kind, amount in guaranteed.items()}
        leaf = not queue.children and not queue.makes_children()
        found |= self._convert_keys(queue.path, queue.keys, running, leaf=leaf)
        running = found.get("maxapplications", running)
        resources = {"guaranteed": write_amounts({k: v for k, v in guaranteed.items() if v})}
        resources["max"] = write_amounts({k: v for k, v in maximum.items() if v != most.get(k)})
        if resources := {key: amounts for key, amounts in resources.items() if amounts}:
            found["resources"] = resources
        if queue.makes_children():
            found |= self._convert_template(queue, guaranteed, maximum, running)
        self._note_queue(queue)
        terms = [read_capacity(child.keys.get("capacity")) for child in queue.children]
        below = [
            self._convert_queue(child, share, maximum, running)
            for child, share in zip(queue.children, share_guarantee(guaranteed, terms), strict=True)
            if not self._is_stopped(child)
        ]
        if below:
            found["queues"] = below
        elif queue.children:
            found["parent"] = True
        return found

    def _is_stopped(self, queue: YarnQueue) -> bool:
        stopped = queue.keys.get("state", "").strip().upper() == "STOPPED"
        if stopped:
            self._note(queue.path, "state = STOPPED", "left out with all below it: new applications are refused")
        return stopped

    def _convert_keys(self, path: str, keys: Mapping[str, Value], running: int, *, leaf: bool) -> dict[str, Any]:
        """Returns the settings of a queue or of a template but its amounts. *running*: the most applications that the
        queues above it let run; 0: any number."""
        found: dict[str, Any] = {}
        for key, ours in (("acl_submit_applications", "submitacl"), ("acl_administer_queue", "adminacl")):
            if keys.get(key, "").strip():
                found[ours] = str(keys[key])
        setting = "max-parallel-apps"
        count = read_count(keys.get(setting)) or (read_count(self._others.get(setting)) if leaf else 0)
        if not count:
            setting = "maximum-applications"
            count = read_count(keys.get(setting))
        if count > 0:
            found["maxapplications"] = min(count, running or count)
            if setting == "maximum-applications":
                self._note(path, setting, "counts running applications only, and none that waits is refused")
            if count > found["maxapplications"]:
                self._note(path, f"{setting} = {count}", f"{running}, since no more may run in a queue above it")
        properties: dict[str, str] = {}
        policy = keys.get("ordering-policy", "fifo").strip()
        if leaf and policy == "fair":
            properties["application.sort.policy"] = "fair"
        elif policy not in ("fifo", "utilization"):
            self._note(path, f"ordering-policy = {policy}", "none; the queue furthest below its guarantee comes first")
        if offset := read_count(keys.get("priority")):
            properties["priority.offset"] = str(offset)
        if "disable_preemption" in keys:
            properties["preemption.policy"] = "disabled" if is_true(keys["disable_preemption"]) else "default"
        if leaf:
            properties |= self._convert_limits(path, keys)
        else:
            for key in _OF_LEAVES:
                if keys.get(key, "").strip():
                    self._note(path, f"{key} = {keys[key].strip()}", "left out: in YARN it binds no queue below")
        if properties:
            found["properties"] = properties
        return found

    def _convert_limits(self, path: str, keys: Mapping[str, Value]) -> dict[str, str]:
        """Returns the limits of originators and users in a leaf, as properties."""
        found: dict[str, str] = {}
        part, factor, least = (read_number(keys.get(key)) for key in _OF_LEAVES)
        if part is not None:
            found["originator.max"] = _write_percent(part)
        if factor is not None and factor > 0:
            found["user-limit-factor"] = _write_decimal(factor)
        if least is not None:
            found["minimum-user-limit-percent"] = str(min(max(int(least), 0), 100))
            if least % 1:
                self._note(path, f"minimum-user-limit-percent = {float(least):g}", "rounded down: whole ones only")
        return found

    def _convert_template(self, queue: YarnQueue, guaranteed: Amounts, most: Amounts, running: int) -> dict[str, Any]:
        keys = {
            name.removeprefix(template): value
            for name, value in queue.keys.items()
            for template in _TEMPLATES
            if name.startswith(template)
        }
        template = self._convert_keys(f"{queue.path} (template)", keys, running, leaf=True)
        template = {key: template[key] for key in ("maxapplications", "properties") if key in template}
        terms = read_capacity(keys.get("capacity"))
        if any(term.unit == "w" for term in terms.values()):
            self._note(queue.path, "template with a weight", "no guarantee: queues that rules create get amounts")
            terms = {}
        (share,) = share_guarantee(guaranteed, [terms])
        ceilings = find_max(most, read_capacity(keys.get("maximum-capacity")) or _WHOLE)
        resources = {
            "guaranteed": write_amounts(share),
            "max": write_amounts({kind: amount for kind, amount in ceilings.items() if amount != most.get(kind)}),
        }
        if resources := {key: amounts for key, amounts in resources.items() if amounts}:
            template["resources"] = resources
        return {"parent": True, **({"childtemplate": template} if template else {})}

    def _convert_monitor(self) -> dict[str, Any]:
        if not is_true(self._properties.get(_MONITOR_ON)):
            self._note(
                "", _MONITOR_ON,
                "off in YARN unless yarn-site.xml switches it on (give that file, too); here queues take back what they"
                " are guaranteed, unless `preemption: {enabled: false}`",
            )  # fmt: skip
            return {}
        said = {
            ours: _read_setting(self._properties[_MONITOR + key])
            for key, ours in _MONITOR_KEYS.items()
            if _MONITOR + key in self._properties
        }
        return {"enabled": True, **said}

    def _note_queue(self, queue: YarnQueue) -> None:
        templates = queue.makes_children()
        for key, value in queue.keys.items():
            if key in CONVERTED or not value.strip():
                continue
            bare = next((key.removeprefix(each) for each in _TEMPLATES if templates and key.startswith(each)), None)
            if bare is None or bare not in CONVERTED:
                self._note(queue.path, f"{key} = {value.strip()}", find_advice(bare or key))
        if not queue.children and "user-limit-factor" not in queue.keys:
            self._note(
                queue.path, "user-limit-factor",
                "is 1 in YARN where it is not set: a user gets at most what the queue is guaranteed; here a user may"
                " have all of the queue's max unless the property `user-limit-factor: '1'` says otherwise",
            )  # fmt: skip

    def _note_others(self) -> None:
        read = ("queue-mappings", "queue-mappings-override.enable", "mapping-rule-format", _ORIGINATORS)
        others = {key: value for key, value in self._others.items() if key not in read}
        for name, value in self._properties.items():
            if name.startswith(_MONITOR) and name.removeprefix(_MONITOR) not in _MONITOR_KEYS:
                others[name.removeprefix(_MONITOR)] = value
            elif name.startswith((f"{_OF_THE_CLUSTER}maximum-", f"{_OF_THE_CLUSTER}minimum-")):
                others[name.removeprefix(_OF_THE_CLUSTER)] = value
        for key, value in others.items():
            if value.strip() and not key.endswith("max-parallel-apps"):
                self._note("", f"{key} = {value.strip()}", find_advice(key))


def _read_setting(value: Value) -> object:
    """Returns a setting of the monitor. Raises ``ValueError`` for one of another kind."""
    text = value.strip()
    switch = value.where.endswith("observe_only")
    if not (_SWITCH if switch else _NUMBER).fullmatch(text):
        raise ValueError(f"{value.where}: {text!r} is not {'true or false' if switch else 'a number'}")
    return yaml.safe_load(text)


def _write_percent(part: Fraction) -> str:
    return f"{_write_decimal(min(max(part, Fraction(0)), Fraction(1)) * 100)}%"


def _write_decimal(number: Fraction) -> str:
    return f"{float(number):.9f}".rstrip("0").rstrip(".")


def describe_remarks(remarks: list[Remark]) -> list[str]:
    """Returns one line for each of *remarks*, for a person to go through."""
    return [
        f"{', '.join(remark.where) + ': ' if remark.where else ''}{remark.setting.removeprefix(PREFIX)}: {remark.said}"
        for remark in remarks
    ]
