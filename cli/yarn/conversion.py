"""Translates a Capacity Scheduler file into a queue configuration, and lists what has no counterpart there."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple

from kornel.cli.yarn.capacity_file import PREFIX, Term, YarnQueue, is_true, read_capacity, read_tree
from kornel.cli.yarn.placement import convert_mappings
from kornel.cli.yarn.queue_amounts import Amounts, find_max, share_guarantee, write_amounts
from kornel.cli.yarn.remarks import find_advice

_MONITOR: Final = "yarn.resourcemanager.monitor.capacity.preemption."
_MONITOR_ON: Final = "yarn.resourcemanager.scheduler.monitor.enable"
_MONITOR_KEYS: Final = {
    "observe_only": "observe_only",
    "monitoring_interval": "interval_ms",
    "max_wait_before_kill": "max_wait_ms",
    "total_preemption_per_round": "per_round",
    "max_ignored_over_capacity": "dead_zone",
    "natural_termination_factor": "natural_factor",
}
_WHOLE: Final = {"": Term(Fraction(100), "%")}
_SECOND: Final = "auto-queue-creation-v2"
_TEMPLATES: Final = ("leaf-queue-template.", f"{_SECOND}.leaf-template.", f"{_SECOND}.template.")
_READ: Final = frozenset(
    {
        "queues", "capacity", "maximum-capacity", "acl_submit_applications", "acl_administer_queue", "ordering-policy",
        "priority", "disable_preemption", "state", "maximum-applications", "max-parallel-apps",
        "auto-create-child-queue.enabled", "auto-queue-creation-v2.enabled",
    }
)  # fmt: skip
"""The settings of a queue that are converted."""


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

    def __init__(self, properties: Mapping[str, str], cluster: Mapping[str, int]) -> None:
        self._properties = properties
        self._root, self._others = read_tree(properties)
        self._cluster = {kind: Fraction(amount) for kind, amount in cluster.items()}
        self._remarks: dict[tuple[str, str], Remark] = {}

    def convert_file(self) -> Converted:
        """Returns the whole configuration. Raises ``ValueError`` for amounts that make no sense, or are a part of
        something unknown."""
        root = self._convert_queue(self._root, self._cluster, self._cluster)
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
        if is_true(self._properties.get("yarn.acl.enable", "true")) is False:
            acl = "*"
        if acl.strip():
            root["submitacl"] = acl.strip(" \n") if acl.strip() == "*" else acl
        limits = [
            {"limit": f"applications of {who}", "users": [who], "maxapplications": int(self._others[key])}
            for key in sorted(self._others, reverse=True)
            if key.endswith("max-parallel-apps") and key.startswith("user.")
            for who in [key.removeprefix("user.").removesuffix("max-parallel-apps").rstrip(".") or "*"]
        ]
        if limits:
            root["limits"] = sorted(limits, key=lambda limit: limit["users"] == ["*"])
        for named in ("limits", "queues"):
            if named in root:
                root[named] = root.pop(named)

    def _convert_queue(self, queue: YarnQueue, guaranteed: Amounts, most: Amounts) -> dict[str, Any]:
        found: dict[str, Any] = {"name": queue.name}
        own = self._read_terms(queue, "maximum-capacity", queue.keys) or _WHOLE
        maximum = find_max(most, own) if queue is not self._root else dict(most)
        found |= self._convert_keys(queue.path, queue.keys, leaf=not queue.children and not queue.makes_children())
        resources = {"guaranteed": write_amounts({k: v for k, v in guaranteed.items() if v})}
        resources["max"] = write_amounts({k: v for k, v in maximum.items() if v != most.get(k)})
        if resources := {key: amounts for key, amounts in resources.items() if amounts}:
            found["resources"] = resources
        if queue.makes_children():
            found |= self._convert_template(queue, guaranteed, maximum)
        self._note_queue(queue)
        terms = [self._read_terms(child, "capacity", child.keys) for child in queue.children]
        below = [
            self._convert_queue(child, share, maximum)
            for child, share in zip(queue.children, share_guarantee(guaranteed, terms), strict=True)
            if not self._is_stopped(child)
        ]
        if below:
            found["queues"] = below
        return found

    def _is_stopped(self, queue: YarnQueue) -> bool:
        stopped = queue.keys.get("state", "").strip().upper() == "STOPPED"
        if stopped:
            self._note(queue.path, "state = STOPPED", "left out with all below it: new applications are refused")
        return stopped

    def _read_terms(self, queue: YarnQueue, key: str, keys: Mapping[str, str]) -> dict[str, Term]:
        try:
            return read_capacity(keys[key]) if keys.get(key, "").strip() else {}
        except ValueError as error:
            raise ValueError(f"{queue.path}.{key}: {error}") from error

    def _convert_keys(self, path: str, keys: Mapping[str, str], *, leaf: bool) -> dict[str, Any]:
        """Returns the settings of a queue or of a template but its amounts."""
        found: dict[str, Any] = {}
        for key, ours in (("acl_submit_applications", "submitacl"), ("acl_administer_queue", "adminacl")):
            if keys.get(key, "").strip():
                found[ours] = keys[key]
        parallel = keys.get("max-parallel-apps") or (self._others.get("max-parallel-apps") if leaf else None)
        most = parallel or keys.get("maximum-applications")
        if most:
            found["maxapplications"] = int(most)
            if not parallel:
                self._note(
                    path, "maximum-applications", "counts running applications only, and none that waits is refused"
                )
        properties: dict[str, str] = {}
        policy = keys.get("ordering-policy", "fifo").strip()
        if leaf and policy == "fair":
            properties["application.sort.policy"] = "fair"
        elif policy not in ("fifo", "utilization"):
            self._note(path, f"ordering-policy = {policy}", "none; the queue furthest below its guarantee comes first")
        if keys.get("priority", "0").strip() not in ("", "0"):
            properties["priority.offset"] = keys["priority"].strip()
        if "disable_preemption" in keys:
            properties["preemption.policy"] = "disabled" if is_true(keys["disable_preemption"]) else "default"
        if properties:
            found["properties"] = properties
        return found

    def _convert_template(self, queue: YarnQueue, guaranteed: Amounts, most: Amounts) -> dict[str, Any]:
        keys = {
            name.removeprefix(template): value
            for name, value in queue.keys.items()
            for template in _TEMPLATES
            if name.startswith(template)
        }
        template = self._convert_keys(f"{queue.path} (template)", keys, leaf=True)
        template = {key: template[key] for key in ("maxapplications", "properties") if key in template}
        terms = self._read_terms(queue, "capacity", keys)
        if any(term.unit == "w" for term in terms.values()):
            self._note(queue.path, "template with a weight", "no guarantee: queues that rules create get amounts")
            terms = {}
        (share,) = share_guarantee(guaranteed, [terms])
        ceilings = find_max(most, self._read_terms(queue, "maximum-capacity", keys) or _WHOLE)
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
            ours: self._properties[_MONITOR + key].strip()
            for key, ours in _MONITOR_KEYS.items()
            if _MONITOR + key in self._properties
        }
        return {"enabled": True} | {key: _read_value(value) for key, value in said.items()}

    def _note_queue(self, queue: YarnQueue) -> None:
        templates = queue.makes_children()
        for key, value in queue.keys.items():
            if key in _READ or not value.strip() or (queue is self._root and key in ("capacity", "maximum-capacity")):
                continue
            bare = next((key.removeprefix(each) for each in _TEMPLATES if templates and key.startswith(each)), None)
            if bare is None or bare not in _READ:
                self._note(queue.path, f"{key} = {value.strip()}", find_advice(bare or key))
        if not queue.children and "user-limit-factor" not in queue.keys:
            self._note(
                queue.path, "user-limit-factor",
                "is 1 in YARN where it is not set: a user gets at most what the queue is guaranteed; here a user may"
                " have all of the queue's max unless `limits` say otherwise",
            )  # fmt: skip

    def _note_others(self) -> None:
        read = ("queue-mappings", "queue-mappings-override.enable", "mapping-rule-format")
        for key, value in self._others.items():
            if value.strip() and key not in read and not key.endswith("max-parallel-apps"):
                self._note("", f"{key} = {value.strip()}", find_advice(key))


def _read_value(text: str) -> bool | int | float:
    if text in ("true", "false"):
        return text == "true"
    number = float(text)
    return int(number) if number.is_integer() else number


def describe_remarks(remarks: list[Remark]) -> list[str]:
    """Returns one line for each of *remarks*, for a person to go through."""
    return [
        f"{', '.join(remark.where) + ': ' if remark.where else ''}{remark.setting.removeprefix(PREFIX)}: {remark.said}"
        for remark in remarks
    ]
