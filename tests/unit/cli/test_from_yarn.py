"""kornel config from-yarn: six files, one for each form of capacity, become configurations that a core accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from typer.testing import CliRunner, Result

from kornel.cli.app import app
from kornel.core.config.loader import load
from tests.docs.test_from_yarn import CAPACITY, CAPACITY_XML

FILES: Final = Path(__file__).parent / "yarn"
CLUSTER: Final = ("--cluster", "vcore=100,memory=400Gi")


def convert(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["config", "from-yarn", *arguments])


def write(folder: Path, **properties: str) -> str:
    names = {f"yarn.scheduler.capacity.{name.replace('__', '.')}": value for name, value in properties.items()}
    return write_site(folder / "capacity-scheduler.xml", **names)


def write_site(file: Path, **names: str) -> str:
    lines = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in names.items())
    file.write_text(f"<configuration>{''.join(lines)}</configuration>")
    return str(file)


@pytest.mark.parametrize("form", ["percentages", "weights", "amounts", "mappings", "labels", "mixed"])
def test_a_file_of_each_form_is_translated(form: str) -> None:
    """The result was judged by hand against YARN's documentation, and is what a core accepts without a warning."""
    found = convert(str(FILES / f"{form}.xml"), *(() if form == "amounts" else CLUSTER))
    assert found.exit_code == 0, found.output
    assert found.stderr == ""
    assert load(found.stdout).warnings == ()
    assert found.stdout == (FILES / f"{form}.yaml").read_text()


def test_the_page_and_the_command_agree(tmp_path: Path) -> None:
    """What docs/from-yarn.md translates by hand, the command translates alike."""
    file = tmp_path / "capacity-scheduler.xml"
    file.write_text(f"<configuration>{CAPACITY_XML}</configuration>")
    assert yaml.safe_load(convert(str(file), *CLUSTER).stdout) == yaml.safe_load(CAPACITY)


def test_percentages_need_a_cluster() -> None:
    found = convert(str(FILES / "percentages.xml"))
    assert (found.exit_code, found.stdout) == (2, "")
    assert "say of what with --cluster vcore=100,memory=400Gi" in found.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<allocations/>", "is a file of the Fair Scheduler"),
        ("<html/>", "begins with <html>, not with <configuration>"),
        ("queues: []", "is not XML"),
        ("<configuration/>", "yarn.scheduler.capacity.root.queues is missing"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "other.xml"
    file.write_text(text)
    found = convert(str(file))
    assert found.exit_code == 2
    assert said in found.stderr


@pytest.mark.parametrize("capacity", ["many", "[memory]", "[memory=4Xi]", "1.2.3"])
def test_a_capacity_that_makes_no_sense_is_named(tmp_path: Path, capacity: str) -> None:
    file = write(tmp_path, root__queues="a", root__a__capacity=capacity)
    found = convert(file, write_site(tmp_path / "yarn-site.xml"), *CLUSTER)
    assert found.exit_code == 2
    assert f"{file}: yarn.scheduler.capacity.root.a.capacity: " in found.stderr
    assert "expected is a percentage, a weight such as 2w, or amounts such as [memory=10240,vcores=12]" in found.stderr


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("root.a.maximum-applications", "many", "'many' is not a whole number"),
        ("root.a.priority", "1.5", "'1.5' is not a whole number"),
        ("user.ann.max-parallel-apps", "few", "'few' is not a whole number"),
        ("max-parallel-apps", "few", "'few' is not a whole number"),
        ("maximum-am-resource-percent", "1/0", "'1/0' is not a number"),
        ("root.a.user-limit-factor", "inf", "'inf' is not a number"),
    ],
)
def test_a_number_that_is_none_is_located(tmp_path: Path, name: str, value: str, said: str) -> None:
    """File, property and what was expected; not the words of Python."""
    file = write(tmp_path, root__queues="a", **{name: value})
    found = convert(file, write_site(tmp_path / "yarn-site.xml"), *CLUSTER)
    assert (found.exit_code, found.stderr) == (2, f"{file}: yarn.scheduler.capacity.{name}: {said}\n")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("observe_only", "yes", "'yes' is not true or false"),
        ("monitoring_interval", "soon", "'soon' is not a number"),
        ("total_preemption_per_round", "nan", "'nan' is not a number"),
    ],
)
def test_a_setting_of_the_monitor_is_located(tmp_path: Path, key: str, value: str, said: str) -> None:
    name = f"yarn.resourcemanager.monitor.capacity.preemption.{key}"
    on = {"yarn.resourcemanager.scheduler.monitor.enable": "true"}
    site = write_site(tmp_path / "yarn-site.xml", **on, **{name: value})
    found = convert(site, write(tmp_path, root__queues="a"), *CLUSTER)
    assert (found.exit_code, found.stderr) == (2, f"{site}: {name}: {said}\n")


def test_a_cluster_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    found = convert(write(tmp_path, root__queues="a"), "--cluster", "vcore=many")
    assert found.exit_code == 2
    assert found.stderr.startswith("--cluster vcore=many: invalid quantity 'many'; write it as in vcore=100")


def queues_of(found: Result) -> dict[str, dict[str, Any]]:
    """Returns the queues of a result that a core accepts without a word, by path."""
    assert (found.exit_code, found.stderr) == (0, ""), found.output
    queues: dict[str, dict[str, Any]] = {}

    def visit(queue: dict[str, Any], above: str) -> None:
        path = f"{above}{queue['name']}"
        queues[path] = queue
        for child in queue.get("queues", ()):
            visit(child, f"{path}.")

    visit(yaml.safe_load(found.stdout)["partitions"][0]["queues"][0], "")
    return queues


def comments_of(found: Result) -> str:
    return " ".join(line.removeprefix("# ").strip() for line in found.stdout.partition("# What has")[2].splitlines())


@pytest.mark.parametrize("key", ["maximum-applications", "max-parallel-apps"])
def test_a_leaf_runs_no_more_than_its_parent(tmp_path: Path, key: str) -> None:
    """YARN accepts a higher number below, and the default for all leaves may be higher, too."""
    own = {f"root.a.{key}": "10", f"root.a.b.{key}": "20", "max-parallel-apps": "30"}
    found = convert(write(tmp_path, root__queues="a", root__a__queues="b,c", **own), *CLUSTER)
    queues = queues_of(found)
    assert [queues[path]["maxapplications"] for path in ("root.a", "root.a.b", "root.a.c")] == [10, 10, 10]
    assert "root.a.c: max-parallel-apps = 30: 10, since no more may run in a queue above it" in comments_of(found)


@pytest.mark.parametrize("parts", [("1w", "1w", "1w"), ("33.3", "33.3", "33.3"), ("33.4", "33.4", "33.4")])
def test_rounding_loses_nothing(tmp_path: Path, parts: tuple[str, ...]) -> None:
    """Guarantees add up, and nobody is warned of a rest that only rounding left."""
    shares = {f"root.a.{name}.capacity": part for name, part in zip("xyz", parts, strict=True)}
    file = write(tmp_path, root__queues="a", root__a__queues="x,y,z", root__a__capacity="100", **shares)
    queues = queues_of(convert(file, "--cluster", "vcore=40,memory=100Gi,gpu=4"))
    assert sum(queues[f"root.a.{name}"]["resources"]["guaranteed"]["gpu"] for name in "xyz") == 4


def test_a_max_is_rounded_up(tmp_path: Path) -> None:
    """30 % of 3 devices are one, not none; and a guarantee that got the rest of a rounding stays within its max."""
    own = {f"root.{name}.{key}": "30" for name in "ab" for key in ("capacity", "maximum-capacity")}
    file = write(tmp_path, root__queues="a,b,c", root__c__capacity="40", **own)
    queues = queues_of(convert(file, "--cluster", "vcore=10,nvidia.com/gpu=3"))
    assert queues["root.a"]["resources"]["max"] == {"vcore": 3, "nvidia.com/gpu": 1}
    given = [queues[f"root.{name}"]["resources"]["guaranteed"].get("nvidia.com/gpu", 0) for name in "abc"]
    assert given == [0, 1, 2]


def test_a_weight_guarantees_no_more_than_the_max(tmp_path: Path) -> None:
    own = {"root.a.capacity": "3w", "root.b.capacity": "1w", "root.a.maximum-capacity": "50"}
    found = convert(write(tmp_path, root__queues="a,b", **own), *CLUSTER)
    resources = queues_of(found)["root.a"]["resources"]
    assert resources["guaranteed"] == resources["max"] == {"vcore": 50, "memory": "200Gi"}
    assert "root.a: capacity: is more than maximum-capacity" in comments_of(found)


def test_a_parent_of_stopped_queues_stays_a_parent(tmp_path: Path) -> None:
    own = {f"root.a.{name}.state": "STOPPED" for name in "xy"}
    file = write(tmp_path, root__queues="a,b", root__a__queues="x,y", root__a__capacity="50", **own)
    assert queues_of(convert(file, *CLUSTER))["root.a"]["parent"] is True


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ("g:%user:b", "not converted; a rule knows users, groups and tags"),
        ("u:%user:%application", "not converted; a rule knows users, groups and tags"),
        ("u:%user:root.%secondary_group.%user", "none: no rule names a queue after a group"),
    ],
)
def test_a_mapping_without_a_counterpart_is_left_out(tmp_path: Path, mapping: str, said: str) -> None:
    found = convert(write(tmp_path, root__queues="a,b", **{"queue-mappings": mapping}), *CLUSTER)
    assert [rule["name"] for rule in yaml.safe_load(found.stdout)["partitions"][0]["placementrules"]] == ["provided"]
    assert f"queue-mappings = {mapping}: {said}" in comments_of(found)


def test_settings_of_the_other_file_are_not_dropped_in_silence(tmp_path: Path) -> None:
    names = {
        "yarn.scheduler.maximum-allocation-mb": "8192",
        "yarn.resourcemanager.monitor.capacity.preemption.intra-queue-preemption.enabled": "true",
        "yarn.resourcemanager.scheduler.monitor.enable": "true",
    }
    site = write_site(tmp_path / "yarn-site.xml", **names)
    said = comments_of(convert(write(tmp_path, root__queues="a"), site, *CLUSTER))
    assert "maximum-allocation-mb = 8192: none; an ask that is larger" in said
    assert "intra-queue-preemption.enabled = true: none; inside a leaf nobody" in said


@pytest.mark.parametrize(("enabled", "noted"), [(None, True), ("true", False), ("false", False)])
def test_access_lists_bind_nobody_in_yarn_unless_switched_on(tmp_path: Path, enabled: str | None, noted: bool) -> None:
    site = write_site(tmp_path / "yarn-site.xml", **({"yarn.acl.enable": enabled} if enabled else {}))
    file = write(tmp_path, root__queues="a", root__acl_submit_applications="ann")
    found = convert(file, site, *CLUSTER)
    assert queues_of(found)["root"]["submitacl"] == ("*" if enabled == "false" else "ann")
    assert ("yarn.acl.enable: off in YARN unless" in comments_of(found)) is noted


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("legacy-queue-mode.enabled", "not known to this command; left out"),
        ("root.gone.capacity", "no list of queues names it; left out"),
    ],
)
def test_only_settings_of_queues_miss_a_list(tmp_path: Path, key: str, said: str) -> None:
    found = convert(write(tmp_path, root__queues="a", **{key: "5"}), *CLUSTER)
    assert f"{key.removeprefix('root.')} = 5: {said}" in comments_of(found)


def test_a_result_that_needs_a_hand_is_printed_with_its_problems(tmp_path: Path) -> None:
    """The names of queues differ in case only, which is not allowed here."""
    found = convert(write(tmp_path, root__queues="a,A", root__a__capacity="50", root__A__capacity="50"), *CLUSTER)
    assert found.exit_code == 2
    assert "- name: A" in found.stdout
    assert "queues.yaml:" in found.stderr


def test_mappings_come_behind_the_named_queue_unless_they_override(tmp_path: Path) -> None:
    file = write(tmp_path, root__queues="a,b", root__a__capacity="50", **{"queue-mappings": "u:ann:b"})
    found = convert(file, *CLUSTER)
    rules = yaml.safe_load(found.stdout)["partitions"][0]["placementrules"]
    assert [rule["name"] for rule in rules] == ["provided", "fixed"]
    assert "one that names root.default, which YARN would map" in found.stdout


@pytest.mark.parametrize(("part", "written"), [("0", "0%"), ("-1", "0%"), ("0.1", "10%"), ("1.5", "100%")])
def test_a_part_for_drivers_is_one_that_a_core_accepts(tmp_path: Path, part: str, written: str) -> None:
    """Nothing for drivers leaves one of them, in YARN and here."""
    names = ("maximum-am-resource-percent", "root.a.maximum-am-resource-percent")
    found = convert(write(tmp_path, root__queues="a", **dict.fromkeys(names, part)), *CLUSTER)
    queues = queues_of(found)
    assert [queues[path]["properties"]["originator.max"] for path in ("root", "root.a")] == [written, written]
    assert load(found.stdout).warnings == ()


@pytest.mark.parametrize(("least", "written"), [("-5", "0"), ("33.4", "33"), ("150", "100")])
def test_a_share_of_users_is_one_that_a_core_accepts(tmp_path: Path, least: str, written: str) -> None:
    found = convert(write(tmp_path, root__queues="a", **{"root.a.minimum-user-limit-percent": least}), *CLUSTER)
    assert queues_of(found)["root.a"]["properties"]["minimum-user-limit-percent"] == written
    assert load(found.stdout).warnings == ()
