"""How a configuration is refused: everything at once, with its place; and what is taken in spite of doubts (B1, B8)."""

from __future__ import annotations

import json

import pytest

from kornel.core.config.loader import load
from kornel.core.config.text.problems import ConfigError
from tests.unit.config.reading import errors, warnings

MANY_FAULTS = """\
partitions:
  - name: default
    nodesortpolicy: {type: Fair}
    placementrules:
      - name: fixd
    queues:
      - name: root
        queues:
          - name: a.b
          - name: p
            resources:
              max: {memory: 10, vcore: 1x}
            queues:
              - name: c
                maxapplications: -1
                resources:
                  max: {memory: 11}
                limits:
                  - limit: nobody
                    maxapplications: 1
"""


def test_b1_all_faults_are_told_at_once() -> None:
    """Each one with line, full path, the text that is wrong and what would be right, in the order of the text."""
    queues = "partitions[0].queues[0].queues"
    assert [(problem.line, problem.path) for problem in errors(MANY_FAULTS)] == [
        (3, "partitions[0].nodesortpolicy.type"),
        (5, "partitions[0].placementrules[0].name"),
        (9, f"{queues}[0].name"),
        (12, f"{queues}[1].resources.max.vcore"),
        (15, f"{queues}[1].queues[0].maxapplications"),
        (17, f"{queues}[1].queues[0].resources.max.memory"),
        (19, f"{queues}[1].queues[0].limits[0]"),
    ]
    for problem, text in zip(errors(MANY_FAULTS), ("Fair", "fixd", "a.b", "1x", "-1", "11", "nobody"), strict=True):
        assert text in problem.message
    assert all(problem.expected for problem in errors(MANY_FAULTS))


def test_b8_values_without_effect_are_warned_of_by_place() -> None:
    """A property that does not do what it seems to is taken, and told with line and path."""
    (message,) = warnings(
        "partitions:\n  - queues:\n      - name: a\n        properties:\n          preemption.delay: soon\n"
    )
    assert message.startswith("line 5, column 11: partitions[0].queues[0].properties['preemption.delay']: ")


@pytest.mark.parametrize(
    "wrong",
    [
        {"queues": [{"name": "root", "queues": [{"name": ["a"]}]}]},
        {"queues": [{"name": "root", "queues": [{"name": {"a": "b"}}]}]},
        {"queues": [{"name": "root", "properties": {"priority.offset": []}}]},
        {"queues": [{"name": "root"}], "placementrules": [{"name": ["user"]}]},
        {"queues": [{"name": "root"}], "placementrules": [{"name": "tag", "value": {}}]},
        {"queues": [{"name": "root"}], "limits": [{"users": "bob", "maxapplications": 1}]},
        {"queues": [{"name": "root"}], "limits": [{"users": [["bob"]], "maxapplications": 1}]},
        {"queues": [{"name": "root"}], "limits": [{"users": ["bob"], "maxapplications": "one"}]},
        {"queues": [{"name": "root"}], "limits": [{"users": ["bob"], "maxresources": []}]},
    ],
)
def test_a_value_of_the_wrong_kind_is_one_problem(wrong: dict[str, object]) -> None:
    """What would follow from it (no name, nothing limited) is not reported as well."""
    with pytest.raises(ConfigError) as caught:
        load(json.dumps({"partitions": [{"name": "default", **wrong}]}))
    assert len(caught.value.problems) == 1
    assert "found" in str(caught.value)
