"""Settings that mean something else to YuniKorn are warned of where they stand, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kornel.core.config.loader import load
from kornel.core.domain.settings import PreemptionPolicyKind, SortPolicy
from tests.unit.config.reading import errors, find, load_root, partition_text, queue, root, warnings

TOP = Path(__file__).parents[3]
QUEUE = "partitions[0].queues[0].queues[0]"
TAG = {"name": "tag", "value": "namespace", "create": True}
USER = {"name": "user", "create": True}
BELOW_TEAM = {"name": "user", "create": True, "parent": {"name": "fixed", "value": "root.team"}}
PROTECTED = {"preemption.policy": "disabled"}


def team(*rules: Any, template: Any = None, **own: str) -> str:
    """A parent ``team`` with the properties *own* beside a leaf."""
    keys = {"childtemplate": template} if template else {}
    queues = root(queue("team", parent=True, properties=own, **keys), queue("leaf", properties=own))
    return partition_text(queues, placementrules=list(rules))


DIFFERENCES: list[Any] = [
    pytest.param(
        partition_text(root(queue("a", properties={"quota.preemption.delay": "3600"}))),
        f"{QUEUE}.properties['quota.preemption.delay']",
        "'3600' without a unit for 0 (off); here it is seconds",
        id="B8: seconds without a unit",
    ),
    pytest.param(
        partition_text(root({"name": "a", "resources": {"quota.preemption.delay": "3600"}})),
        f"{QUEUE}.resources['quota.preemption.delay']",
        "refuses this key under resources; here it counts",
        id="B8: a delay under resources",
    ),
    pytest.param(
        partition_text(root(queue("a", m={"gpu": "0", "vcore": "0m"}))),
        f"{QUEUE}.resources.max",
        "takes it for no max at all; here queue 'root.a' gets none of 'gpu, vcore'",
        id="B14: a max of 0",
    ),
    pytest.param(
        partition_text(root(queue("a", parent=True, childtemplate={"resources": {"max": {"gpu": "0"}}}))),
        f"{QUEUE}.childtemplate.resources.max",
        "here the template of 'root.a' gets none of 'gpu'",
        id="B14: a max of 0 in a template",
    ),
    pytest.param(
        partition_text(root(), placementrules=[USER | {"filter": {"type": "Deny", "users": ["bob"]}}]),
        "partitions[0].placementrules[0].filter.type",
        "takes 'Deny' for allow; here it denies",
        id="B7: Deny in another case",
    ),
    pytest.param(
        partition_text(
            root(), placementrules=[USER | {"parent": USER | {"filter": {"type": "DENY", "users": ["bob"]}}}]
        ),
        "partitions[0].placementrules[0].parent.filter.type",
        "takes 'DENY' for allow",
        id="B7: Deny in a parent rule",
    ),
    pytest.param(
        partition_text(
            root(),
            placementrules=[{"name": "fixed", "value": "c", "create": True,
                             "parent": {"name": "fixed", "value": "other", "create": True}},
                            USER | {"parent": {"name": "fixed", "value": "Root"}}],
        ),
        "partitions[0].placementrules[1].parent.value",
        "below root.root; here they are below root",
        id="B12: root as a parent rule",
    ),
    pytest.param(
        partition_text(root(queue("Upper", limits=[{"users": ["sue"], "maxapplications": 5}]))),
        f"{QUEUE}.limits",
        "does not enforce limits of queues written with capitals ('root.Upper'); here they hold",
        id="B12, T80: limits of a queue with capitals",
    ),
    pytest.param(
        partition_text(root(queue("Up", queue("leaf", limits=[{"users": ["sue"], "maxapplications": 5}])))),
        f"{QUEUE}.queues[0].limits",
        "('root.Up.leaf')",
        id="B12, T80: limits below a queue with capitals",
    ),
    pytest.param(
        partition_text(root(queue("a", submitacl="ann,system:serviceaccount:ns:sa"))),
        f"{QUEUE}.submitacl",
        "leaves user 'system:serviceaccount:ns:sa' out of access lists; here access is granted",
        id="B10: service accounts",
    ),
    pytest.param(
        partition_text(root(queue("a", adminacl="ann ops,system:authenticated,dev.eu"))),
        f"{QUEUE}.adminacl",
        "leaves group 'system:authenticated, dev.eu' out of access lists",
        id="B10: groups with colons and dots",
    ),
    pytest.param(
        team(TAG, **PROTECTED),
        f"{QUEUE}.properties['preemption.policy']",
        "below 'root.team'; here they inherit it",
        id="B16: protection of dynamic queues, by tag",
    ),
    pytest.param(
        team(BELOW_TEAM, **{"preemption.delay": "5s"}),
        f"{QUEUE}.properties['preemption.delay']",
        "keeps preemption.delay from queues that placement rules create",
        id="B16: a delay of dynamic queues, below a fixed rule",
    ),
    pytest.param(
        team(USER | {"parent": TAG}, template={"properties": {"preemption.delay": "1s"}}, **PROTECTED),
        f"{QUEUE}.properties['preemption.policy']",
        "here they inherit it",
        id="B16: a template with other properties",
    ),
    pytest.param(
        partition_text(root(properties={"priority.offset": "10"})),
        "partitions[0].queues[0].properties['priority.offset']",
        "adds the offset of root when it preempts; here it has no effect",
        id="priorities B.3: an offset of root",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "path", "said"), DIFFERENCES)
def test_difference(text: str, path: str, said: str) -> None:
    """One warning, on one line, at the place of the setting."""
    (problem,) = [found for found in load(text).warnings if not found.message.startswith("no effect")]
    assert problem.path == path
    assert problem.line
    assert problem.column
    assert problem.message.startswith("YuniKorn") or "YuniKorn takes" in problem.message
    assert said in problem.message
    assert "\n" not in str(problem)


SAME: list[Any] = [
    pytest.param(partition_text(root({"name": "a", "resources": {"quota.preemption.delay": "0"}})), id="delay off"),
    pytest.param(partition_text(root(queue("a", properties={"quota.preemption.delay": "0"}))), id="0 without a unit"),
    pytest.param(partition_text(root(queue("a", m={"vcore": "1", "gpu": "0"}))), id="some of max is above 0"),
    pytest.param(partition_text(root(queue("a", m={}))), id="an empty max"),
    pytest.param(partition_text(root(queue("a", g={"vcore": "0"}))), id="guaranteed 0"),
    pytest.param(partition_text(root(), placementrules=[USER | {"filter": {"type": "Allow"}}]), id="Allow"),
    pytest.param(partition_text(root(queue("Upper"))), id="capitals without limits"),
    pytest.param(partition_text({"name": "Root", "limits": [{"users": ["a"], "maxapplications": 1}]}), id="Root"),
    pytest.param(partition_text(root(submitacl="a.b@c,d$ ops-eu,_x")), id="names legal in both access lists"),
    pytest.param(team(**PROTECTED), id="no rule creates queues"),
    pytest.param(team({"name": "provided"}, **PROTECTED), id="the rule does not create"),
    pytest.param(team(USER, **PROTECTED), id="queues are created beside it"),
    pytest.param(team(USER | {"parent": {"name": "fixed", "value": "root.x", "create": True}}, **PROTECTED), id="away"),
    pytest.param(team(TAG, **{"preemption.policy": "fence", "priority.offset": "5"}), id="not inherited"),
    pytest.param(team(TAG, **{"preemption.delay": "30s"}), id="the default"),
    pytest.param(team(TAG, **{"quota.preemption.delay": "5m"}), id="never on dynamic queues"),
    pytest.param(team(TAG, template={"properties": {"preemption.policy": "fence"}}, **PROTECTED), id="in the template"),
    pytest.param(partition_text(root(properties={"priority.offset": "0"})), id="an offset of 0"),
]


@pytest.mark.parametrize("text", SAME)
def test_no_difference(text: str) -> None:
    """What means the same in both is not warned of."""
    assert warnings(text) == []


@pytest.mark.parametrize("broken", [{"parent": True}, {"name": "A b"}, {"name": "A", "limits": 7}])
def test_looking_for_differences_adds_no_errors(broken: Any) -> None:
    """What is wrong is said once, by those whose task it is."""
    assert len(errors(partition_text(root(broken)))) == 1


def test_an_unreadable_filter_type_is_one_error() -> None:
    """The same for rules."""
    assert len(errors(partition_text(root(), placementrules=[USER | {"filter": {"type": ["Deny"]}}]))) == 1


def test_t39_case_of_the_sort_policy() -> None:
    """``Fair`` is fifo with a warning, as upstream; a parent sorts its children as before."""
    (message,) = warnings(partition_text(root(queue("a", properties={"application.sort.policy": "Fair"}))))
    assert "fifo is used instead" in message
    assert find(load_root(root(queue("a", properties={"application.sort.policy": "Fair"}))), "a").effective == (
        load_root().effective
    )


def test_stateaware_filters_and_yunikorn_does_not_any_more() -> None:
    """A policy that YuniKorn gave up: what is written for it means something else there."""
    (message,) = warnings(partition_text(root(queue("a", properties={"application.sort.policy": "stateaware"}))))
    assert "sort stateaware as fifo; here one application at a time" in message
    found = find(load_root(root(queue("a", properties={"application.sort.policy": "stateaware"}))), "a").effective
    assert found.sort_policy is SortPolicy.STATE_AWARE


def test_what_is_said_of_dynamic_queues_is_true() -> None:
    """The leaf that a warned queue passes its protection to has it."""
    (partition,) = load(team(TAG, **PROTECTED)).partitions
    assert find(partition.root, "team").dynamic_leaf.preemption_policy is PreemptionPolicyKind.DISABLED


def documented() -> list[Any]:
    """The queue configurations of the documentation and of the demo's scenarios."""
    found = []
    for page in sorted(TOP.glob("docs/*.md")):
        blocks = re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        for number, block in enumerate(blocks):
            partition = yaml.safe_load(block)
            (partition,) = partition.get("partitions", [partition])
            if {"queues", "placementrules"} & partition.keys():
                partition.setdefault("name", "default")
                text = partition_text(*partition.pop("queues", [root()]), **partition)
                found.append(pytest.param(text, id=f"{page.name} {number}"))
    for scenario in sorted(TOP.glob("shim_mock/scenarios/*.yaml")):
        queues = yaml.safe_load(scenario.read_text(encoding="utf-8"))["queues"]
        text = queues if isinstance(queues, str) else yaml.safe_dump(queues)
        found.append(pytest.param(text, id=scenario.name))
    return found


@pytest.mark.parametrize("text", documented())
def test_what_we_show_has_no_warnings(text: str) -> None:
    """Configurations that people copy are free of surprises.

    The demo's delay is that short so that nobody waits, and the example of stateaware says that YuniKorn differs.
    """
    meant = ("a delay of '1s'", "sort stateaware as fifo")
    assert [warning for warning in warnings(text) if not any(part in warning for part in meant)] == []


def test_documented_configurations_are_found() -> None:
    """The test above has something to look at."""
    assert len(documented()) >= 6
