"""kornel config from-yarn: six files, one for each form of capacity, become configurations that a core accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Final

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
    file = folder / "capacity-scheduler.xml"
    names = {f"yarn.scheduler.capacity.{name.replace('__', '.')}": value for name, value in properties.items()}
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
        ("<configuration/>", "has no yarn.scheduler.capacity.root.queues"),
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
    found = convert(write(tmp_path, root__queues="a", root__a__capacity=capacity), *CLUSTER)
    assert found.exit_code == 2
    assert "root.a.capacity: " in found.stderr


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
