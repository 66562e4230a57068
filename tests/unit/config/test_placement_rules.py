"""Placement rules: V40 to V47, B3, B7, B12, B15, T67, T68, T70, T71, T75."""

from __future__ import annotations

from typing import Any

import pytest

from kornel.core.config.loader import load
from kornel.core.domain.settings import FilterConfig, PlacementRuleConfig
from tests.unit.config.reading import errors, only, partition_text, queue, root, warnings

TREE = root(
    queue("Users", parent=True),
    queue("default"),
    queue("Prod", queue("leaf")),
)


def text(*rules: Any) -> str:
    return partition_text(TREE, placementrules=list(rules))


def fixed(value: str, *, create: bool = False, parent: Any = None) -> dict[str, Any]:
    return {"name": "fixed", "value": value, "create": create, **({"parent": parent} if parent else {})}


USER = {"name": "user"}

STATIC: dict[str, tuple[Any, str]] = {
    "T70 ends at a flagged parent": (fixed("root.users"), "is a parent"),
    "B15 ends at a queue with children": (fixed("root.prod"), "is a parent"),
    "ends at a leaf": (fixed("root.default"), ""),
    "B15 names in capitals": (fixed("root.PROD.leaf"), ""),
    "T70 user below a leaf": (USER | {"parent": fixed("root.default")}, "is a leaf"),
    "user below a parent": (USER | {"parent": fixed("root.users")}, ""),
    "T70 path below a leaf": (fixed("root.default.leaf", create=True), "is a leaf"),
    "T70 missing, with create": (fixed("root.users.new.leaf", create=True), ""),
    "T70 missing, without create": (fixed("root.users.new"), "does not create"),
    "B15 the rule's own create counts": (
        fixed("new", create=True, parent=fixed("root.users.more")), "does not create",
    ),
    "B15 parent creates, rule does not": (USER | {"parent": fixed("root.users.more", create=True)}, ""),
    "chain of fixed values": (fixed("leaf", parent=fixed("root.prod")), ""),
    "T71 root as parent": (fixed("default", parent=fixed("root")), ""),
    "T71 root as parent, missing": (fixed("c", parent=fixed("root")), "does not create"),
    "root itself": (fixed("root"), "is a parent"),
    "B12 rootx is not below root": (fixed("rootqueue", create=True), ""),
    "unqualified is not followed": (fixed("unknown"), ""),
    "V44 qualified below a parent rule": (fixed("root.default", parent=USER), "starts at root"),
    "V44 qualified below a fixed rule": (fixed("root.default", parent=fixed("root.users")), "starts at root"),
}  # fmt: skip


@pytest.mark.parametrize("case", STATIC)
def test_static_paths(case: str) -> None:
    """A path known beforehand exists or can be created, and ends where applications can be."""
    rule, said = STATIC[case]
    if said:
        (problem,) = errors(text(rule))
        assert said in problem.message
    else:
        load(text(rule))


def test_static_path_error_names_rule_and_chain() -> None:
    """The error says which rule, its chain and the path."""
    (problem,) = errors(text({"name": "provided"}, USER | {"parent": fixed("root.default")}))
    assert problem.message.startswith("rule 1 (fixed->user) leads to 'root.default': root.default is a leaf")
    assert problem.path == "partitions[0].placementrules[1].parent.value"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"name": "unknown"}, "not known"),
        ({"name": "recovery"}, "not known"),
        ({"name": "no-name"}, "not a name"),
        ({}, "not a name"),
        ({"name": "fixed"}, "without a value"),
        ({"name": "tag"}, "without a value"),
        (fixed("a..b"), "is not a queue name"),
        (fixed("a b"), "is not a queue name"),
        (fixed("root.@recovery@"), "is not a queue name"),
        (USER | {"parent": {"name": "x"}}, "not known"),
        (USER | {"filter": {"type": "refuse"}}, "not known"),
    ],
)
def test_rules_that_cannot_be_built(rule: Any, said: str) -> None:
    """What would fail when rules are built is refused beforehand (B3, T75)."""
    (problem,) = errors(text(rule))
    assert said in problem.message


@pytest.mark.parametrize(
    "entry",
    [
        "bob",
        "a.b@c",
        "user[0-1]",
        "(?i)user1",
        "^u",
        "user*",
        "machine$",
        r"\(x\)+",
        "[*+]+",
        r"\Q\C\E+",
        r"^\pL[\pL\d]*$",
    ],
)
def test_t68_single_filter_entry(entry: str) -> None:
    """A single entry is a name or a regular expression."""
    (rule,) = only(load(text(USER | {"filter": {"users": [entry]}}))).placement_rules
    assert rule.filter.users == (entry,)


@pytest.mark.parametrize(
    "entry",
    [
        "test[test",
        "99test",
        "",
        "(",
        "a b",
        "(?=x)",
        "(?<!x)y",
        r"(a)\1",
        "(?P=x)+",
        "a*+",
        "x" * 600 + "*",
        "(" * 300,
        "a{99999999999999999999}",
        "a{1001}",
        "(?>a)",
        "(a)(?(1)b)",
        r"a\Z",
        r"\C+",
        r"(\pL\PL?){300}",
    ],
)
def test_t68_bad_single_filter_entry(entry: str) -> None:
    """Neither name nor expression, or an expression that other engines refuse, is an error."""
    for key in ("users", "groups"):
        (problem,) = errors(text(USER | {"filter": {key: [entry]}}))
        assert problem.path == f"partitions[0].placementrules[0].filter.{key}[0]"


def test_an_expression_that_needs_to_go_back_is_refused_at_its_place() -> None:
    """The author is told where it stands and what the language lacks."""
    (problem,) = errors(text(USER | {"filter": {"users": [r"^(\w)\1$"]}}))
    assert problem.line == 1
    assert problem.column > 1
    assert "back-references" in problem.message


def test_v43_longer_filter_lists_are_only_warned_of() -> None:
    """Of several entries, those that are no names or repeat are said and accepted."""
    assert len(warnings(text(USER | {"filter": {"users": ["user1", "user*", "user1"]}}))) == 2


def test_t67_filter_type_in_any_case() -> None:
    """Deny means deny (B7)."""
    (rule,) = only(load(text(USER | {"filter": {"type": "Deny", "users": ["bob"]}}))).placement_rules
    assert rule.filter == FilterConfig(deny=True, users=("bob",))


def test_rule_values() -> None:
    """Names and values are in lower case, order and parents are kept."""
    rules = only(
        load(text({"name": "Provided"}, {"name": "TAG", "value": "NameSpace", "create": True, "parent": USER}))
    )
    assert rules.placement_rules == (
        PlacementRuleConfig("provided"),
        PlacementRuleConfig("tag", create=True, value="namespace", parent=PlacementRuleConfig("user")),
    )


def test_endless_paths_are_refused() -> None:
    """A path deeper than any tree is refused before it is looked up, in one value or along a chain."""
    (problem,) = errors(text(fixed("root" + ".a" * 100_000, create=True)))
    assert "levels" in problem.message
    chain = fixed("root" + ".a" * 60, create=True)
    (problem,) = errors(text(fixed("a.b.c.d.e", create=True, parent=chain)))
    assert "more than 64 levels" in problem.message
