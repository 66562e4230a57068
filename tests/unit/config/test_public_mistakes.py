"""What public configurations get wrong is named, with the place where it belongs."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.unit.config.reading import all_warnings, errors, partition_text, queue, root

FENCE = {"preemption.policy": "fence"}
DELAY = {"preemption.delay": "10s"}
FOUR, ONE = {"vcore": "4"}, {"vcore": "1"}

THIRDS = [queue(name, g={"vcore": "1333m"}) for name in "xyz"]


def test_a_whole_config_map_is_called_so() -> None:
    (problem,) = errors("apiVersion: v1\nkind: ConfigMap\ndata:\n  queues.yaml: |\n    partitions: []\n")
    assert "this is a whole ConfigMap" in problem.message
    assert "under data, queues.yaml" in problem.expected
    assert problem.line == 2


def test_another_kind_is_one_problem() -> None:
    (problem,) = errors("kind: [x]\n" + yaml.safe_dump(json.loads(partition_text(root()))))
    assert problem.message == "unknown key 'kind'"


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("guaranteed", {"vcore": "1"}, "resources"),
        ("max", {"vcore": "1"}, "resources"),
        ("preemption.policy", "fence", "properties"),
        ("application.sort.policy", "fair", "properties"),
    ],
)
def test_a_key_straight_under_a_queue_belongs_elsewhere(key: str, value: Any, place: str) -> None:
    (problem,) = errors(partition_text(root(queue("a", **{key: value}))))
    assert problem.message == f"unknown key '{key}'"
    assert problem.expected == f"it under {place}"


@pytest.mark.parametrize(
    ("queues", "preemption", "said"),
    [
        pytest.param([queue("a", g=ONE, properties=FENCE)], {}, "never take its guarantee back", id="fenced leaf"),
        pytest.param([queue("a", properties=FENCE)], {}, "", id="no guarantee"),
        pytest.param([queue("a", g=ONE, properties={"preemption.policy": "disabled"})], {}, "", id="disabled"),
        pytest.param([queue("a", queue("b", g=ONE), properties=FENCE)], {}, "", id="a fence on the parent"),
        pytest.param([queue("a", g=ONE, properties=DELAY)], {"enabled": False}, "is off in this partition", id="off"),
        pytest.param([queue("a", g=ONE, properties=DELAY)], {"enabled": True}, "", id="on"),
        pytest.param(
            [queue("hi", queue("c", g=ONE), g=FOUR)], {}, "they get the remaining 3 that root.hi", id="3 short"
        ),
        pytest.param([queue("hi", queue("c", g=ONE), g=FOUR)], {"enabled": False}, "", id="nobody takes anything"),
        pytest.param([queue("hi", *THIRDS, g=FOUR)], {}, "", id="rounding"),
        pytest.param([queue("hi", queue("c", g=ONE), queue("d"), g=FOUR)], {}, "", id="another child may take it"),
        pytest.param([queue("hi", queue("c", g=ONE), queue("d", g={"vcore": "3"}), g=FOUR)], {}, "", id="all of it"),
    ],
)
def test_what_can_never_come_true_is_warned_of(queues: list[Any], preemption: dict[str, Any], said: str) -> None:
    text = partition_text(root(*queues), **({"preemption": preemption} if preemption else {}))
    found = [warning for warning in all_warnings(text) if "YuniKorn" not in warning]
    assert len(found) == bool(said), found
    assert not said or said in found[0]
