"""The worked examples of config.md 13.7: what each rule makes of an application, and in which order they are asked."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from kornel.core.domain.commands import ApplicationSpec
from kornel.core.domain.names import MOST_LEVELS
from tests.unit.config.reading import queue
from tests.unit.policies.placement.worlds import RECOVERY, application, fixed, outcomes, partition, place_in, rule


class Case(NamedTuple):
    rules: list[Any]
    spec: ApplicationSpec
    expected: str | None
    queues: tuple[Any, ...] = ()
    submitacl: str = "*"


DEFAULT = (queue("default"),)
PARENT = (queue("testparent", queue("testchild")),)
PRODUCTION = (queue("production", submitacl="john,bob"),)
USER = rule("user", create=True)
PROVIDED = rule("provided", create=True)
BELOW_USER = rule("provided", create=True, parent=USER)
NAMESPACE = rule("tag", create=True, value="namespace")
PRODUCTION_FIRST = [fixed("root.production"), USER]
MIXED_CASE = rule("tag", create=True, value="MixedCase")

CASES: dict[str, Case] = {
    "T60 no rules, unknown queue": Case([], application("root.unknown"), None),
    "T60 no rules, the default queue exists": Case([], application("root.unknown"), "root.default", DEFAULT),
    "T60 no rules, the default queue is a parent": Case(
        [], application("root.unknown"), None, (queue("default", parent=True),)
    ),
    "T60 no access to the default queue": Case([], application("root.unknown"), None, DEFAULT, ""),
    "T60 forced": Case([], application("root.unknown", forced=True), RECOVERY, DEFAULT),
    "T60 no rules, existing queue": Case([], application("root.default"), "root.default", DEFAULT),
    "T60 no rules, no queue named": Case([], application(""), "root.default", DEFAULT),
    "T61 user below fixed": Case(
        [rule("user", parent=fixed("testparent"))],
        application(user="testchild"),
        "root.testparent.testchild",
        PARENT,
    ),
    "T61 user below fixed, no such queue": Case(
        [rule("user", parent=fixed("testparent"))], application(user="other"), None, PARENT
    ),
    "T62 dots of a user": Case([USER], application(user="finance.test"), "root.finance_dot_test"),
    "T62 a user that is an address": Case(
        [USER], application(user="http://d.com/s/t@c.com"), "root.http://d_dot_com/s/t@c_dot_com"
    ),
    "T62 a user called root": Case([USER], application(user="root"), "root.root"),
    "T63 unqualified": Case([BELOW_USER], application("my_q"), "root.developer.my_q"),
    "T63 qualified, the parent is ignored": Case([BELOW_USER], application("root.dev_q"), "root.dev_q"),
    "T63 dots of an unqualified name": Case([BELOW_USER], application("a.b"), "root.developer.a_dot_b"),
    "T64 fixed keeps its hierarchy": Case(
        [fixed("testparent.testchild")], application(), "root.testparent.testchild", PARENT
    ),
    "T64 parent does not create": Case(
        [fixed("testchild", create=True, parent=fixed("testparentnew"))], application(), None
    ),
    "T64 parent creates": Case(
        [fixed("testchild", create=True, parent=fixed("testparentnew", create=True))],
        application(),
        "root.testparentnew.testchild",
    ),
    "T64 parent creates, the rule itself does not": Case(
        [fixed("testchild", parent=fixed("testparentnew", create=True))], application(), None
    ),
    "T65 B21 the parent is a leaf: next rule": Case(
        [rule("user", create=True, parent=rule("tag", value="namespace")), fixed("root.default")],
        application(tags={"namespace": "default"}),
        "root.default",
        DEFAULT,
    ),
    "T65 B21 illegal name: next rule": Case([rule("provided"), USER], application("root.un!k"), "root.developer"),
    "T65 B21 illegal name, forced": Case([PROVIDED], application("root.un!k", forced=True), RECOVERY),
    "T66 tag": Case([MIXED_CASE], application(tags={"mixedcase": "root.a.b"}), "root.a.b"),
    "T66 tag in capitals": Case([MIXED_CASE], application(tags={"MIXEDCASE": "root.a.b"}), "root.a.b"),
    "T66 tag absent": Case([MIXED_CASE], application(), None),
    "T66 tag empty": Case([MIXED_CASE], application(tags={"mixedcase": ""}), None),
    "T66 unqualified tag": Case([NAMESPACE], application(tags={"namespace": "a.b"}), "root.a_dot_b"),
    "T69 listed user": Case(PRODUCTION_FIRST, application(user="john"), "root.production", PRODUCTION, ""),
    "T69 other user, closed root": Case(PRODUCTION_FIRST, application(user="sue"), None, PRODUCTION, ""),
    "T69 other user, open root": Case(PRODUCTION_FIRST, application(user="sue"), "root.production", PRODUCTION),
    "T71 B12 root as parent": Case([fixed("c", create=True, parent=fixed("root"))], application(), "root.c"),
    "T71 B12 root itself": Case([PROVIDED], application("root"), None),
    "T71 B12 a name that begins like root": Case([PROVIDED], application("rootx"), "root.rootx"),
    "T71 B12 root in capitals": Case([PROVIDED], application("ROOT.A"), "root.a"),
    "T72 B22 the recovery queue by name": Case([PROVIDED], application(RECOVERY), None),
    "T72 B22 in capitals": Case([PROVIDED], application("root.@Recovery@"), None),
    "T72 B22 unqualified": Case([PROVIDED], application("@recovery@"), None),
    "T72 B22 elsewhere": Case([PROVIDED], application("root.a.@recovery@"), None),
    "T72 B22 below it": Case([PROVIDED], application("root.@recovery@.a"), None),
    "T72 forced": Case([PROVIDED], application(RECOVERY, forced=True), RECOVERY),
    "default configuration": Case([NAMESPACE], application(tags={"namespace": "dev"}), "root.dev"),
    "8.1 a parent is passed over": Case(
        [rule("provided"), USER], application("root.testparent"), "root.developer", PARENT
    ),
    "8.1 a leaf has nothing below it": Case(
        [PROVIDED, USER], application("root.default.x"), "root.developer", DEFAULT
    ),
    "8.1 no access where the queue would be made": Case(
        [PROVIDED], application("root.testparent.x", user="sue"), None, (queue("testparent", parent=True),), "bob"
    ),
    "8.1 access where the queue would be made": Case(
        [PROVIDED],
        application("root.testparent.x.y", user="sue"),
        "root.testparent.x.y",
        (queue("testparent", parent=True, adminacl="sue"),),
        "bob",
    ),
    "8.1 forced applications obey the rules first": Case(
        [PROVIDED], application("root.default", forced=True), "root.default", DEFAULT
    ),
    "8.4 forced without access": Case([PROVIDED], application("root.default", forced=True), RECOVERY, DEFAULT, ""),
    "3 names of 64 characters": Case([PROVIDED], application("a" * 64), f"root.{'a' * 64}"),
    "3 names of 65 characters": Case([PROVIDED], application("a" * 65), None),
    "3 too long once dots are replaced": Case([PROVIDED], application("a." * 30), None),
    "3 an empty element": Case([PROVIDED], application("root.a..b"), None),
    "3 nothing below the root": Case([PROVIDED], application("root."), None),
    "3 letters that become ASCII in lower case": Case([PROVIDED], application("root.\u212aelvin"), None),
    "more levels than any tree has": Case([PROVIDED], application("root" + ".a" * MOST_LEVELS), None),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_place(case: str) -> None:
    """The queue of an application, or none."""
    world = CASES[case]
    state = partition(*world.queues, rules=world.rules, submitacl=world.submitacl)
    assert place_in(state, world.spec) == world.expected


def test_draining_queues_are_passed_over() -> None:
    """Neither a draining leaf nor anything new below a draining parent (T47, 8.1)."""
    state = partition(queue("a"), queue("p", parent=True), rules=[PROVIDED])
    for path, wanted in (("root.a", "root.a"), ("root.p", "root.p.x")):
        assert place_in(state, application(wanted)) == wanted
        state.queues[path].draining = True
        assert place_in(state, application(wanted)) is None


def test_every_rule_says_why_not() -> None:
    """A refusal lists each rule with its outcome, and what became of the default queue (B24)."""
    rules = [
        rule("provided"),
        rule("tag", value="namespace"),
        rule("user", filter={"type": "deny"}),
        fixed("root.closed"),
        fixed("x", create=True, parent=rule("user")),
    ]
    state = partition(queue("closed", submitacl="bob"), rules=rules, submitacl="")
    assert outcomes(state, application("root.missing")) == [
        "provided: root.missing does not exist, and the rule does not create it",
        "tag: gives no name",
        "user: its filter keeps the application out",
        "fixed: no submit access to root.closed",
        "fixed: parent rule user: root.developer does not exist, and the rule does not create it",
        "there is no root.default",
    ]


def test_reasons_stay_short() -> None:
    """However long the name that was sent, the reason can be shown."""
    state = partition(rules=[PROVIDED])
    assert all(len(why) < 200 for why in outcomes(state, application("root." + "x" * 100_000)))


def test_tag_keys_that_differ_in_case_alone() -> None:
    """The same one counts whatever order they come in."""
    state = partition(rules=[NAMESPACE])
    tags = [("namespace", "low"), ("Namespace", "high")]
    found = {place_in(state, application()._replace(tags=tuple(order))) for order in (tags, tags[::-1])}
    assert found == {"root.high"}
