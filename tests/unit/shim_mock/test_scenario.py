"""Scenario files: what they mean, and how strictly they are read."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from kornel.shim_client import Generation
from kornel.shim_mock.documents import InputError
from kornel.shim_mock.scenario import load_scenario, parse_scenario
from tests.unit.shim_mock.scenarios import GOOD, changed, small


def test_a_good_scenario_is_read_completely() -> None:
    """Every field of the small scenario arrives in base units, seconds and names."""
    scenario = parse_scenario(GOOD)
    assert (scenario.name, scenario.speed, scenario.generation) == ("small", 100.0, Generation.G3)
    assert scenario.capacity == {"vcore": 8000, "memory": 16 * 2**30}
    assert scenario.queues["root.prod"].guaranteed == {"vcore": 4000}
    group = scenario.applications[0].tasks[0]
    assert (group.count, group.resources) == (2, {"vcore": 1000, "memory": 2**30})
    assert (group.priority_class.value, group.priority_class.allow_preemption) == (1000, False)
    assert group.priority_class.may_preempt
    assert (scenario.releases.delay_s, scenario.releases.seed) == (10.0, 5)
    assert scenario.nodes[0].node_ids() == ["node-0", "node-1"]


def test_the_queue_configuration_reaches_the_core_as_it_was_written() -> None:
    """Inline queues keep the raw text of their values, so the core and not this reader judges them."""
    scenario = small(("guaranteed: {vcore: 4}", "guaranteed: {vcore: 010, memory: 1_000}"))
    assert "010" in scenario.config
    assert "1_000" in scenario.config


def test_the_queue_configuration_may_be_text_or_a_file(tmp_path: Path) -> None:
    """queues: accepts the text of a queues.yaml; config: names a file beside the scenario."""
    body = "partitions:\n  - name: default\n    queues:\n      - name: root\n        queues:\n          - name: batch\n"
    start, end = GOOD.index("queues:\n"), GOOD.index("nodes:")
    indented = "".join(f"  {line}\n" for line in body.splitlines())
    inline = parse_scenario(f"{GOOD[:start]}queues: |\n{indented}{GOOD[end:]}")
    (tmp_path / "queues.yaml").write_text(body, encoding="utf-8")
    (tmp_path / "scenario.yaml").write_text(f"{GOOD[:start]}config: queues.yaml\n{GOOD[end:]}", encoding="utf-8")
    assert inline.config == load_scenario(tmp_path / "scenario.yaml").config == body


NODE = "resources: {vcore: 4, memory: 8Gi}"
TASK = "resources: {vcore: 1, memory: 1Gi}"


@pytest.mark.parametrize(
    ("old", "new", "field", "reason"),
    [
        ("name: small", "title: small", "title", "unknown field"),
        ("name: small\n", "\n", "name", "missing"),
        ("name: small", "name: small\nname: other", "name", "repeated key"),
        ("speed: 100", "speed: 0", "speed", "outside"),
        ("speed: 100", "speed: fast", "speed", "not a plain decimal"),
        ("speed: 100", "speed: [1]", "speed", "single value"),
        ("seed: 5", "seed: -5", "seed", "outside"),
        ("generation: g3", "generation: g4", "generation", "g2 or g3"),
        ("settle: 300ms", "settle: 300", "settle", "invalid duration"),
        ("queues:\n", "config: nowhere.yaml\nqueues:\n", "config", "not both"),
        ("count: 2", "count: 0", "nodes[0].count", "outside"),
        ("count: 2", "count: 1e3", "nodes[0].count", "not a whole number"),
        (NODE, "resources: {vcore: -4}", "nodes[0].resources.vcore", "invalid quantity"),
        (NODE, "resources: {memory: 9Ei}", "nodes[0].resources.memory", "overflow"),
        (NODE, "resources: {memory: 7Ei}", "nodes[0].resources.memory", "2 times this overflows"),
        (NODE, "resources: {'a b': 1}", "nodes[0].resources.a b", "no name of a resource type"),
        (NODE, "resources: [vcore]", "nodes[0].resources", "expected a mapping"),
        (NODE, f"{NODE}\n    restore: 5s", "nodes[0].restore", "needs an earlier drain"),
        (NODE, f"{NODE}\n    at: 5s\n    drain: 1s", "nodes[0].drain", "before the node is there"),
        (NODE, f"{NODE}\n  - name: node\n    {NODE}", "nodes[1]", "'node' appears twice"),
        ("name: node", "name: 'n o d e'", "nodes[0].name", "no name"),
        ("value: 1000", "value: 3000000000", "priorityClasses[0].value", "outside"),
        ("allowPreemption: false", "allowPreemption: no", "priorityClasses[0].allowPreemption", "neither true"),
        ("PreemptLowerPriority", "Always", "priorityClasses[0].preemptionPolicy", "Never or"),
        ("queue: root.batch", "queue: batch", "applications[0].queue", "no full queue path"),
        ("queue: root.batch", "queue: root.batch\n    after: lunch", "applications[0].after", "only value is quiet"),
        ("queue: root.batch", "queue: root.batch\n    at: 1s\n    after: quiet", "applications[0].at", "not both"),
        ("priorityClass: high", "priorityClass: low", "applications[0].tasks[0].priorityClass", "no priority class"),
        ("priorityClass: high", "runtime: -1s", "applications[0].tasks[0].runtime", "negative"),
        ("priorityClass: high", "arrival: often", "applications[0].tasks[0].arrival", "not a rate"),
        ("priorityClass: high", "restart: 1", "applications[0].tasks[0].restart", "neither true"),
        ("priorityClass: high", "node: node-2", "applications[0].tasks[0].node", "'node-2' is no node"),
        ("queue: root.batch", "queue: root.batch\n    onNotice: flee", "applications[0].onNotice", "late or ignore"),
        ("queue: root.batch", "queue: root.batch\n    retries: 0", "applications[0].retries", "outside"),
        ("- nothing lost", "- application etl fails", "expectations[0]", "no application is called 'etl'"),
        ("releases:", "changes:\n  - after: quiet\nreleases:", "changes[0]", "give the queue configuration"),
        ("releases:", "changes:\n  - queues: x\n    after: noon\nreleases:", "changes[0].after", "only value"),
        (TASK, "resources: {vcore: 0}", "applications[0].tasks[0].resources", "some of at least one type"),
        (TASK, f"{TASK}\n      - name: worker\n        {TASK}", "applications[0].tasks[1]", "appears twice"),
        ("delay: 10s", "delay: 10s\n  loss: 1.5", "releases.loss", "outside"),
        ("delay: 10s", "delay: 10s\n  loss: 1\n  retry: 1s", "releases.retry", "never ends"),
        ("delay: 10s", "delay: 10s\n  retry: 0s", "releases.retry", "above zero"),
        ("delay: 10s", "delay: 10s\n  lose: 1", "releases.lose", "unknown field"),
        ("- nothing lost", "- all is well", "expectations[0]", "no expectation"),
        ("- nothing lost", "- queue root.x never below guaranteed", "expectations[0]", "gives root.x no guarantee"),
        ("- nothing lost", "- {a: b}", "expectations[0]", "single value"),
    ],
)
def test_mistakes_are_refused_with_line_and_field(old: str, new: str, field: str, reason: str) -> None:
    """One wrong place refuses the file; the problem names the file, the line of that place, and the field."""
    text = changed(old, new)
    with pytest.raises(InputError) as caught:
        parse_scenario(text, file="bad.yaml")
    problem = next(entry for entry in caught.value.problems if entry.field == field)
    assert reason in problem.reason
    assert str(problem).startswith(f"bad.yaml:{problem.line}: {field}: ")
    if reason != "missing":
        first = text[: text.index(new)].count("\n") + 1
        assert first <= problem.line <= first + new.count("\n")


def test_all_mistakes_are_reported_at_once() -> None:
    """Two mistakes give two problems, in the order of the file."""
    text = changed("speed: 100", "speed: 0").replace("delay: 10s", "delay: ten")
    with pytest.raises(InputError) as caught:
        parse_scenario(text)
    assert [problem.field for problem in caught.value.problems] == ["speed", "releases.delay"]


def test_keys_of_two_applications_must_not_meet() -> None:
    """Applications whose tasks would get the same allocation keys are refused: keys are unique per partition."""
    twin = f"  - id: job-worker\n    queue: root.batch\n    tasks:\n      - name: x\n        {TASK}\n"
    text = changed("releases:", f"{twin}releases:").replace("- name: worker", "- name: worker-x", 1)
    with pytest.raises(InputError, match="same keys"):
        parse_scenario(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("# nothing", "empty"),
        ("a: [", "not YAML"),
        ("\ta: b", "not YAML"),
        ("a: b\n---\nc: d", "not YAML"),
        ("just text", "expected a mapping"),
        ("- a", "expected a mapping"),
        ("? [a]\n: b", "plain text"),
        ("[" * 5000, "nested too deeply"),
    ],
)
def test_what_is_no_mapping_is_refused(text: str, reason: str) -> None:
    """Anything but one YAML mapping is refused without a trace of Python."""
    with pytest.raises(InputError, match=reason):
        parse_scenario(text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A scenario file that cannot be read is refused with its name."""
    with pytest.raises(InputError, match=r"nowhere\.yaml"):
        load_scenario(tmp_path / "nowhere.yaml")


BUILTIN = sorted(Path(str(files("shim_mock") / "scenarios")).glob("*.yaml"))


@pytest.mark.parametrize("path", BUILTIN, ids=lambda path: path.stem)
def test_the_scenarios_that_come_along_are_good(path: Path) -> None:
    """Each built-in scenario is read without a problem, is named like its file, and says what it shows."""
    scenario = load_scenario(path)
    assert scenario.name == path.stem
    assert scenario.description
    assert scenario.expectations
