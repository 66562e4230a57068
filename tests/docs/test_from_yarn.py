"""docs/from-yarn.md: each configuration for Kornel is read, and means what the XML above it means."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import typer.main
import yaml
from typer.core import TyperGroup

from kornel.cli import app as core_app
from kornel.core.config.loader import load
from kornel.core.config.model import PartitionConfig
from kornel.core.preemption.monitor.selection.settings import MonitorSettings

PAGE = (Path(__file__).resolve().parents[2] / "docs/from-yarn.md").read_text(encoding="utf-8")
CAPACITY_XML, FAIR_XML = re.findall(r"```xml\n(.*?)```", PAGE, re.DOTALL)
CAPACITY, FAIR, MONITOR = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
CORES, GIB = 100, 400


def read_partition(text: str) -> PartitionConfig:
    """Returns the only partition of *text*, which must be read without a warning."""
    configuration = load(text)
    assert configuration.warnings == ()
    (partition,) = configuration.partitions
    return partition


def test_the_capacity_file_and_its_translation_agree() -> None:
    """The percentages of the XML are the amounts of the YAML, in the cluster that the page names."""
    assert f"a cluster of {CORES} cores and {GIB} GiB" in PAGE
    properties = {
        one.findtext("name", "").removeprefix("yarn.scheduler.capacity.root."): one.findtext("value", "")
        for one in ET.fromstring(f"<all>{CAPACITY_XML}</all>")  # noqa: S314 - the page is ours
    }
    root = read_partition(CAPACITY).root
    # A blank is how YARN's root lets in nobody, and what a list that is not written means here.
    assert (properties["acl_submit_applications"], root.submit_acl.text) == (" ", "")
    queues = {queue.name: queue for queue in root.children}
    assert sorted(queues) == sorted(properties["queues"].split(","))
    for name, queue in queues.items():
        for key, amounts in (("capacity", queue.guaranteed), ("maximum-capacity", queue.max)):
            percent = properties.get(f"{name}.{key}")
            expected = percent and {"vcore": int(percent) * CORES * 10, "memory": (int(percent) * GIB << 30) // 100}
            assert (amounts and dict(amounts)) == expected
        assert queue.submit_acl.text == properties[f"{name}.acl_submit_applications"]
        disabled = properties.get(f"{name}.disable_preemption") == "true"
        assert (queue.effective.preemption_policy.value == "disabled") is disabled


def test_the_fair_file_and_its_translation_agree() -> None:
    xml = ET.fromstring(FAIR_XML)  # noqa: S314 - the page is ours
    partition = read_partition(FAIR)
    queues = {queue.name: queue for queue in partition.root.children}
    prod, users = queues["prod"], queues["users"]

    def read_amounts(path: str) -> dict[str, int]:
        mib, cores = re.findall(r"\d+", xml.findtext(path, ""))
        return {"vcore": int(cores) * 1000, "memory": int(mib) << 20}

    assert prod.guaranteed == read_amounts("queue[@name='prod']/minResources")
    assert prod.max_applications == int(xml.findtext("queue[@name='prod']/maxRunningApps", ""))
    seconds = int(xml.findtext("queue[@name='prod']/fairSharePreemptionTimeout", ""))
    assert prod.effective.preemption_delay_ns == seconds * 10**9
    assert users.dynamic_leaf.sort_policy.value == "fair"
    assert users.dynamic_template is not None
    assert users.dynamic_template.max == read_amounts("queue[@name='users']/maxChildResources")
    (limit,) = partition.root.limits
    assert limit.users == ("ann",)
    assert limit.max_applications == int(xml.findtext("user[@name='ann']/maxRunningApps", ""))
    assert [(rule.name, rule.create) for rule in partition.placement_rules] == [("provided", False), ("user", True)]
    parent = partition.placement_rules[1].parent
    assert parent is not None
    assert parent.value == "root.users"


def test_the_monitor_is_written_with_its_defaults() -> None:
    """The table says that they are those of YARN's policy; the code says what they are here."""
    read_partition(MONITOR)
    written = yaml.safe_load(MONITOR)["partitions"][0]["preemption"]["monitor"]
    defaults = MonitorSettings()
    assert written == {
        "enabled": True,
        "interval_ms": defaults.interval_ns // 10**6,
        "max_wait_ms": defaults.max_wait_ns // 10**6,
        "per_round": float(defaults.per_round),
        "dead_zone": float(defaults.dead_zone),
        "natural_factor": float(defaults.natural_factor),
    }
    table = dict(re.findall(r"^\| `\w+` \| `(\w+)` \| (\S+) \|$", PAGE, re.MULTILINE))
    del written["enabled"]
    assert {key: yaml.safe_load(default) for key, default in table.items()} == written | {"observe_only": False}


def test_the_commands_of_kornel_exist() -> None:
    program = typer.main.get_command(core_app.app)
    named = set(re.findall(r"`kornel ([a-z -]+[a-z])", PAGE))
    assert {"queue show root", "drain node", "config rollback"} <= named
    for words in named:
        command = program
        for word in words.split():
            if not isinstance(command, TyperGroup):
                break
            assert word in command.commands, f"kornel {words}"
            command = command.commands[word]
