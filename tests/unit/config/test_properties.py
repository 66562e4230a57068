"""Queue properties: values, defaults, inheritance, warnings: config.md 6.1, 6.2, T34 to T41, V35; preemption.md D.2."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kornel.core.config.keys.properties import inherited_properties, resolve_properties
from kornel.core.domain.resources import Resources
from kornel.core.domain.settings import (
    PreemptionPolicyKind,
    PreemptWithin,
    PriorityPolicy,
    QueueProperties,
    QuotaTimer,
    SortPolicy,
)
from tests.unit.config.reading import errors, find, load_root, partition_text, queue, root, warnings

S = 10**9
SOME = Resources({"vcore": 1500, "memory": 8 << 30})


def leaf(**properties: str) -> QueueProperties:
    """The values of a leaf with these properties, ``__`` standing for a dot."""
    texts = {key.replace("__", "."): text for key, text in properties.items()}
    return find(load_root(root(queue("a", properties=texts))), "a").effective


VALUES: list[tuple[str, str, str, Any, bool]] = [
    # property, text, field, value, whether a warning is due
    ("application.sort.policy", "fifo", "sort_policy", SortPolicy.FIFO, False),
    ("application.sort.policy", "fair", "sort_policy", SortPolicy.FAIR, False),
    ("application.sort.policy", "", "sort_policy", SortPolicy.FIFO, False),
    ("application.sort.policy", "stateaware", "sort_policy", SortPolicy.STATE_AWARE, True),
    ("application.sort.policy", "Fair", "sort_policy", SortPolicy.FIFO, True),
    ("application.sort.priority", "Disabled", "sort_by_priority", False, False),
    ("application.sort.priority", "ENABLED", "sort_by_priority", True, False),
    ("application.sort.priority", "invalid", "sort_by_priority", True, True),
    ("priority.policy", "Fence", "priority_policy", PriorityPolicy.FENCE, False),
    ("priority.policy", "", "priority_policy", PriorityPolicy.DEFAULT, False),
    ("priority.policy", "invalid", "priority_policy", PriorityPolicy.DEFAULT, True),
    ("priority.offset", "-7", "priority_offset", -7, False),
    ("priority.offset", "+7", "priority_offset", 7, False),
    ("priority.offset", "-2147483648", "priority_offset", -(2**31), False),
    ("priority.offset", "2147483647", "priority_offset", 2**31 - 1, True),
    ("priority.offset", "2000000000", "priority_offset", 2_000_000_000, True),
    ("priority.offset", "1000000000", "priority_offset", 1_000_000_000, True),
    ("priority.offset", "999999999", "priority_offset", 999_999_999, False),
    ("priority.offset", "2147483648", "priority_offset", 0, True),
    ("priority.offset", "invalid", "priority_offset", 0, True),
    ("priority.offset", "", "priority_offset", 0, True),
    ("priority.offset", "1_0", "priority_offset", 0, True),
    ("preemption.policy", "FENCE", "preemption_policy", PreemptionPolicyKind.FENCE, False),
    ("preemption.policy", "disabled", "preemption_policy", PreemptionPolicyKind.DISABLED, False),
    ("preemption.policy", "", "preemption_policy", PreemptionPolicyKind.DEFAULT, False),
    ("preemption.policy", "invalid", "preemption_policy", PreemptionPolicyKind.DEFAULT, True),
    ("preemption.delay", "10s", "preemption_delay_ns", 10 * S, False),
    ("preemption.delay", "-1s", "preemption_delay_ns", 30 * S, True),
    ("preemption.delay", "0s", "preemption_delay_ns", 0, True),
    ("preemption.delay", "0", "preemption_delay_ns", 0, True),
    ("preemption.delay", "xxxx", "preemption_delay_ns", 30 * S, True),
    ("preemption.delay", "10", "preemption_delay_ns", 30 * S, True),
    ("quota.preemption.delay", "7200", "quota_preemption_delay_ns", 7200 * S, True),
    ("quota.preemption.delay", "2h", "quota_preemption_delay_ns", 7200 * S, False),
    ("quota.preemption.delay", "60s", "quota_preemption_delay_ns", 60 * S, False),
    ("quota.preemption.delay", "59s", "quota_preemption_delay_ns", 59 * S, True),
    ("quota.preemption.delay", "5h", "quota_preemption_delay_ns", 18000 * S, False),
    ("quota.preemption.delay", "301m", "quota_preemption_delay_ns", 18060 * S, True),
    ("quota.preemption.delay", "0", "quota_preemption_delay_ns", 0, False),
    ("quota.preemption.delay", "-5", "quota_preemption_delay_ns", 0, True),
    ("quota.preemption.delay", "-5s", "quota_preemption_delay_ns", 0, True),
    ("quota.preemption.delay", "1.5", "quota_preemption_delay_ns", 0, True),
    ("quota.preemption.delay", "abc", "quota_preemption_delay_ns", 0, True),
    ("quota.preemption.timer", "Adjust", "quota_preemption_timer", QuotaTimer.ADJUST, False),
    ("quota.preemption.timer", "never", "quota_preemption_timer", QuotaTimer.RESET, True),
    ("quota.preemption.miss", "100", "quota_preemption_miss", 100, False),
    ("quota.preemption.miss", "101", "quota_preemption_miss", 0, True),
    ("quota.preemption.miss", "-1", "quota_preemption_miss", 0, True),
    ("quota.preemption.miss", "5%", "quota_preemption_miss", 0, True),
    ("application.unschedasks.backoff", "18446744073709551615", "unschedulable_backoff", 2**64 - 1, False),
    ("application.unschedasks.backoff", "18446744073709551616", "unschedulable_backoff", 0, True),
    ("application.unschedasks.backoff", "-1", "unschedulable_backoff", 0, True),
    ("application.unschedasks.backoff.delay", "1m", "unschedulable_backoff_delay_ns", 60 * S, False),
    ("application.unschedasks.backoff.delay", "0s", "unschedulable_backoff_delay_ns", 30 * S, True),
    ("preemption.within", "Priority", "preempt_within", PreemptWithin.PRIORITY, False),
    ("preemption.within", "none", "preempt_within", PreemptWithin.NONE, False),
    ("preemption.within", "always", "preempt_within", PreemptWithin.NONE, True),
    ("preemption.within.gap", "0", "preempt_within_gap", 1, True),
    ("originator.max", "20%", "originator_max", Fraction(1, 5), False),
    ("originator.max", "12.5 %", "originator_max", Fraction(1, 8), False),
    ("originator.max", "0%", "originator_max", Fraction(0), False),
    ("originator.max", "101%", "originator_max", None, True),
    ("originator.max", "0.2", "originator_max", None, True),
    ("originator.max", "", "originator_max", None, True),
    ("originator.max", "vcore: 4", "originator_max", Resources({"vcore": 4000}), False),
    ("originator.max", "{vcore: 1500m, memory: 8Gi}", "originator_max", SOME, False),
    ("originator.max", "vcore: 4, vcore: 5", "originator_max", None, True),
    ("originator.max", "vcore: four", "originator_max", None, True),
    ("originator.max", "vcore=4", "originator_max", None, True),
    ("user-limit-factor", "1", "user_factor", Fraction(1), False),
    ("user-limit-factor", "0.25", "user_factor", Fraction(1, 4), False),
    ("user-limit-factor", "-1", "user_factor", None, False),
    ("user-limit-factor", "0", "user_factor", None, True),
    ("user-limit-factor", "-2", "user_factor", None, True),
    ("user-limit-factor", "1e3", "user_factor", None, True),
    ("minimum-user-limit-percent", "25", "user_minimum", 25, False),
    ("minimum-user-limit-percent", "0", "user_minimum", 0, False),
    ("minimum-user-limit-percent", "101", "user_minimum", 100, True),
    ("minimum-user-limit-percent", "25%", "user_minimum", 100, True),
]


@pytest.mark.parametrize(("key", "text", "field", "value", "warned"), VALUES)
def test_value(key: str, text: str, field: str, value: Any, warned: bool) -> None:
    """Each text comes to its value; one that is no use to its default, with a warning that names the property."""
    written = partition_text(root(queue("a", properties={key: text})))
    found = find(load_root(root(queue("a", properties={key: text}))), "a").effective
    assert getattr(found, field) == value
    assert found == QueueProperties(**{field: value})
    messages = warnings(written)
    assert len(messages) == warned
    assert all(f"properties['{key}']" in message for message in messages)


def test_unknown_properties_are_kept_with_a_warning() -> None:
    """Unknown keys are legal, shown and inherited."""
    text = partition_text(root(queue("a", properties={"appication.sort.priority": "x"})))
    (message,) = warnings(text)
    assert "has no meaning" in message


INHERITANCE: list[tuple[str, str, str]] = [
    # property, text on the parent, text the child sees
    ("priority.policy", "fence", "default"),
    ("priority.policy", "default", "default"),
    ("priority.policy", "invalid", "default"),
    ("priority.offset", "100", "0"),
    ("priority.offset", "invalid", "0"),
    ("preemption.policy", "disabled", "disabled"),
    ("preemption.policy", "Disabled", "disabled"),
    ("preemption.policy", "fence", "default"),
    ("preemption.policy", "default", "default"),
    ("preemption.policy", "invalid", "default"),
    ("key", "v", "v"),
    ("application.sort.policy", "fair", "fair"),
    ("application.sort.policy", "invalid", "invalid"),
    ("application.sort.priority", "disabled", "disabled"),
    ("application.sort.priority", "enabled", "enabled"),
    ("preemption.delay", "15s", "15s"),
    ("quota.preemption.delay", "15s", "15s"),
    ("quota.preemption.timer", "adjust", "adjust"),
    ("quota.preemption.miss", "5", "5"),
    ("application.unschedasks.backoff", "3", "3"),
    ("application.unschedasks.backoff.delay", "15s", "15s"),
    ("originator.max", "20%", "20%"),
    ("user-limit-factor", "2", "2"),
    ("minimum-user-limit-percent", "25", "25"),
]


@pytest.mark.parametrize(("key", "above", "below"), INHERITANCE)
def test_inheritance(key: str, above: str, below: str) -> None:
    """Each property reaches the child, and the child's child, as the table says; the child's own wins (6.2)."""
    child = queue("c", queue("g"), queue("own", properties={key: "mine"}))
    top = load_root(root(queue("p", child, properties={key: above})))
    assert find(top, "p").effective_raw == {key: above}
    assert find(top, "p.c").effective_raw == {key: below}
    assert find(top, "p.c.g").effective_raw == {key: below}
    assert find(top, "p.c.own").effective_raw == {key: "mine"}
    assert find(top, "p.c").properties == {}


def test_t34_inherited_together() -> None:
    """What is set on a parent comes to these values on its child."""
    above = {
        "key": "v", "priority.policy": "fence", "priority.offset": "100", "preemption.policy": "fence",
        "quota.preemption.delay": "15s",
    }  # fmt: skip
    assert find(load_root(root(queue("p", queue("c"), properties=above))), "p.c").effective == QueueProperties(
        quota_preemption_delay_ns=15 * S
    )


def test_t35_disabled_is_inherited_until_set_otherwise() -> None:
    """disabled propagates, from the root too; a child turns it off by setting the property itself."""
    children = queue("c"), queue("d", properties={"preemption.policy": "default"})
    for top in (load_root(root(*children, **DISABLED)), find(load_root(root(queue("p", *children, **DISABLED))), "p")):
        assert find(top, "c").effective.preemption_policy is PreemptionPolicyKind.DISABLED
        assert find(top, "d").effective.preemption_policy is PreemptionPolicyKind.DEFAULT


DISABLED = {"properties": {"preemption.policy": "disabled"}}


def test_t36_bad_values_are_defaults() -> None:
    """Bad values never refuse the configuration."""
    keys = ("priority.policy", "priority.offset", "application.sort.priority", "preemption.policy")
    assert leaf(**dict.fromkeys(keys, "invalid")) == QueueProperties()


def test_t37_a_delay_on_a_parent_is_for_its_leaves() -> None:
    """Leaf children have the delay, the parent itself keeps the default."""
    top = load_root(root(queue("p", queue("c"), properties={"preemption.delay": "10s"})))
    assert find(top, "p").effective.preemption_delay_ns == 30 * S
    assert find(top, "p.c").effective.preemption_delay_ns == 10 * S


def test_bad_values_are_warned_of_where_they_are_set() -> None:
    """An inherited bad value behaves as bad on the child, without a second warning."""
    queues = queue("p", queue("c"), queue("d"), properties={"preemption.delay": "x"})
    (message,) = warnings(partition_text(root(queues)))
    assert "30s is used instead" in message
    assert find(load_root(root(queues)), "p.c").effective.preemption_delay_ns == 30 * S


def test_t38_quota_delay_under_resources_is_the_property_of_this_queue_alone() -> None:
    """A delay under resources is read as the property; those below have what they have without it."""
    child, own = queue("c"), queue("o", queue("d"), properties={"quota.preemption.delay": "5m"})
    parent = {"name": "p", "resources": {"quota.preemption.delay": 7200}, "queues": [child, own]}
    for above, inherited_s in (({}, 0), ({"quota.preemption.delay": "1h"}, 3600)):
        top = load_root(root(parent, properties=above))
        assert find(top, "p").properties == {"quota.preemption.delay": "7200"}
        assert find(top, "p").effective.quota_preemption_delay_ns == 7200 * S
        assert find(top, "p.c").effective.quota_preemption_delay_ns == inherited_s * S
        assert find(top, "p.o.d").effective.quota_preemption_delay_ns == 300 * S


def test_a_delay_in_both_places_is_inherited() -> None:
    """The property is, whatever stands beside the max."""
    both = {"resources": {"quota.preemption.delay": "300"}, "properties": {"quota.preemption.delay": "5m"}}
    top = load_root(root({"name": "p", "queues": [queue("c")], **both}))
    assert find(top, "p.c").effective.quota_preemption_delay_ns == 300 * S


@pytest.mark.parametrize(
    ("resource", "property_", "accepted"),
    [
        ("5", "6s", False),
        ("5", "5s", True),
        ("300", "5m", True),
        ("abc", "5", False),
        ("abc", "-1s", True),
        (None, "5", True),
    ],
)
def test_v35_both_places_agree(resource: str | None, property_: str, accepted: bool) -> None:
    """A delay given in both places is the same delay, however it is written."""
    text = partition_text(
        root({"name": "a", "resources": {"quota.preemption.delay": resource},
              "properties": {"quota.preemption.delay": property_}})
    )  # fmt: skip
    if accepted:
        warnings(text)
    else:
        (problem,) = errors(text)
        assert problem.path.endswith("resources['quota.preemption.delay']")
        assert repr(resource) in problem.message
        assert repr(property_) in problem.message


def test_d2_too_many_seconds_are_an_error() -> None:
    """Bare seconds above 2^31-1 are refused."""
    (problem,) = errors(partition_text(root(queue("a", properties={"quota.preemption.delay": "2147483648"}))))
    assert "above 2147483647 seconds" in problem.message


def test_dynamic_leaf_takes_the_template_over_the_parent() -> None:
    """A dynamic leaf inherits from its parent below the template, and never has a quota delay (B16, D.1)."""
    above = {
        "preemption.policy": "disabled",
        "preemption.delay": "5s",
        "quota.preemption.delay": "5m",
        "priority.offset": "9",
    }
    template = {"properties": {"preemption.delay": "7s", "application.sort.policy": "fair", "": "x", "empty": ""}}
    top = load_root(
        root(
            queue(
                "p", queue("q", parent=True, childtemplate={"properties": {"k": "v"}}), properties=above, parent=True
            ),
            childtemplate=template,
        )
    )
    assert find(top, "p").dynamic_leaf == QueueProperties(
        sort_policy=SortPolicy.FAIR, preemption_policy=PreemptionPolicyKind.DISABLED, preemption_delay_ns=7 * S
    )
    assert find(top, "p").child_template is None
    assert find(top, "p").dynamic_template == top.child_template
    assert top.child_template is not None
    assert dict(top.child_template.properties) == {"preemption.delay": "7s", "application.sort.policy": "fair"}
    assert find(top, "p.q").dynamic_leaf.sort_policy is SortPolicy.FIFO
    assert find(top, "p.q").dynamic_template == find(top, "p.q").child_template


def test_template_values() -> None:
    """A template has counts and amounts like a queue; an explicit 0 in max stays, an empty one is none (B14)."""
    template = {"maxapplications": 3, "resources": {"guaranteed": {"vcore": "1"}, "max": {"vcore": "2", "gpu": "0"}}}
    own = find(load_root(root(queue("p", parent=True, childtemplate=template))), "p").child_template
    assert own is not None
    assert (own.max_applications, own.guaranteed, own.max) == (3, {"vcore": 1000}, {"vcore": 2000, "gpu": 0})
    nothing = {"maxapplications": 0, "properties": {"a": ""}, "resources": {"max": {}}}
    assert find(load_root(root(queue("p", parent=True, childtemplate=nothing))), "p").child_template is None


def test_template_warnings() -> None:
    """A quota delay in a template, and a template on a leaf, are ignored with a warning."""
    for template in ({"resources": {"quota.preemption.delay": "5m"}}, {"properties": {"quota.preemption.delay": "5m"}}):
        (message,) = warnings(partition_text(root(queue("p", parent=True, childtemplate=template))))
        assert "ignored" in message
    (message,) = warnings(partition_text(root(queue("a", childtemplate={"maxapplications": 1}))))
    assert "is a leaf" in message


texts = st.dictionaries(
    st.sampled_from([key for key, _, _ in INHERITANCE]),
    st.sampled_from(["", "disabled", "DISABLED", "fence", "5s", "7", "fair", "-1", "x"]),
)


@given(texts)
def test_inheriting_twice_changes_nothing_more(properties: dict[str, str]) -> None:
    """What a child passes on is what it was passed, so depth does not matter."""
    once = inherited_properties(properties)
    assert inherited_properties(once) == once
    assert once.keys() == properties.keys()


@given(texts, st.booleans())
def test_any_texts_resolve(properties: dict[str, str], is_leaf: bool) -> None:
    """Whatever the texts, there are values, and the written order does not matter."""
    backwards = dict(reversed(properties.items()))
    assert resolve_properties(properties, leaf=is_leaf) == resolve_properties(backwards, leaf=is_leaf)
    assert json.dumps(properties)
