"""Filters of placement rules: config.md 8.3, T67, T68."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from kornel.core.config.text.problems import ConfigError
from kornel.core.domain.commands import ApplicationSpec
from kornel.core.domain.settings import FilterConfig
from kornel.core.policies.placement.filters import compile_filter
from tests.paced import paced_time
from tests.unit.policies.placement.worlds import RECOVERY, application, fixed, outcomes, partition, place_in, rule


def admits(config: FilterConfig, user: str = "bob", groups: Sequence[str] = ()) -> bool:
    return compile_filter(config).admits(user, groups)


@pytest.mark.parametrize(
    ("users", "groups", "user", "of", "listed"),
    [
        (("bob",), (), "bob", (), True),
        (("bob",), (), "bobby", (), False),
        (("bob",), (), "Bob", (), False),
        (("a.b",), (), "axb", (), False),
        (("user[0-1]",), (), "user1", (), True),
        (("user[0-1]",), (), "user2", (), False),
        (("^us",), (), "user", (), True),
        (("er+$",), (), "user", (), True),
        (("(?i)user1",), (), "USER1", (), True),
        (("user*",), (), "an-user", (), True),
        (("user1", "user*"), (), "user1", (), True),
        (("user1", "user*"), (), "user2", (), False),
        (("user*", "x*"), (), "user", (), False),
        ((), ("dev",), "bob", ("ops", "dev"), True),
        ((), ("dev",), "dev", ("ops",), False),
        ((), ("d.*",), "bob", ("ops", "dev"), True),
        ((), ("dev", "ops"), "bob", ("ops",), True),
        (("bob",), ("dev",), "sue", ("dev",), True),
        (("bob",), ("dev",), "sue", ("ops",), False),
    ],
)
def test_t68_listed(
    users: tuple[str, ...], groups: tuple[str, ...], user: str, of: tuple[str, ...], listed: bool
) -> None:
    """Who is listed passes an allow filter and is kept out by a deny filter; everyone else the other way round."""
    for deny in (False, True):
        assert admits(FilterConfig(deny, users, groups), user, of) == (listed != deny)


def test_t67_filters_without_names() -> None:
    """Without names, allow admits everyone and deny no one."""
    assert admits(FilterConfig())
    assert not admits(FilterConfig(deny=True))


def test_lists_without_a_valid_name_list_nobody() -> None:
    """All entries dropped is not the same as no entries: deny keeps no one out then."""
    config = FilterConfig(users=("a*", "b*"))
    assert not admits(config)
    assert admits(FilterConfig(deny=True, users=config.users))


@pytest.mark.long
@pytest.mark.parametrize(
    "expression",
    [r"^(a+)+$", r"^(\w+-?)*$", r"^(a|aa)+$", r"(a?){100}a{100}$", r"(.*a){50}$", r"^(([a-z])+.)+[A-Z]([a-z])+$"],
)
def test_no_name_keeps_the_engine_busy(expression: str) -> None:
    """An expression that a backtracking engine needs years for costs one pass over the name."""
    chosen = compile_filter(FilterConfig(users=(expression,), groups=(expression,)))
    names = ["a" * length + "!" for length in (31, 40, 250)]
    with paced_time() as took:
        for name in names:
            chosen.admits(name, [name] * 20)
    assert took.seconds < 0.5


@pytest.mark.parametrize(
    ("expression", "name", "found"),
    [
        (r"^\d+$", "١٢٣", False),
        (r"^\pL+$", "Ωmega", True),
        (r"\p{Greek}", "Ωmega", True),
        (r"^.$", "🙂", True),
        (r"[^a]", "é", True),
        (r"(?i)STRASSE", "strasse", True),
        (r"bob$", "bob\n", False),
        (r"a+\z", "ba", True),
        (r"\Qa.b\E+", "a.b", True),
        (r"\Qa.b\E+", "axb", False),
        (r"(?P<who>bob)?x", "x", True),
        (r"[[:upper:]]{2}", "AB", True),
        (r"\bdev+\b", "the dev team", True),
    ],
)
def test_the_language_is_that_of_go(expression: str, name: str, found: bool) -> None:
    """Classes, anchors and flags mean what they mean to YuniKorn, whose filters use Go's expressions."""
    assert admits(FilterConfig(groups=(expression,)), "bob", (name,)) == found


LETTERS: Final = tuple("a" * 60 + f"{number:04}" for number in range(2_000))
"""As many groups as an application may have, as long as they may be together."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("filters", "spec"),
    [
        ([{"groups": [r"((a{0,10}){10}){10}b"]}] * 20, application(groups=LETTERS)),
        ([{"groups": [r"(?:(?:(?:a?){9}){9}){9}z"]}] * 20, application(groups=LETTERS[:200])),
        ([{"users": [r"(?:(?:(?:a?){9}){9}){9}z"]}] * 250, application(user="a" * 256)),
        ([{"groups": [r"^dev-.*$"]}] * 250, application(groups=LETTERS)),
        ([{"groups": ["x", "y"]}] * 2_000, application(groups=LETTERS)),
        ([{"type": "deny", "groups": ["x", "y"]}] * 2_000, application(groups=LETTERS)),
    ],
    ids=["states", "optional", "user", "simple", "lists", "deny"],
)
def test_no_rules_keep_the_engine_busy(filters: list[dict[str, Any]], spec: ApplicationSpec) -> None:
    """Rules and groups multiply, and the whole application is placed or refused between two turns of other work."""
    state = partition({"name": "a"}, rules=[rule("provided") | {"filter": each} for each in filters])
    spec = spec._replace(queue="root.none")
    with paced_time() as took:
        found = outcomes(state, spec)
    assert took.seconds < 0.25
    assert "would take too long" in found[-1]
    assert len(found) < len(filters)


def test_who_has_too_many_groups_is_not_placed_by_a_later_rule() -> None:
    """A rule that could not be asked might have kept the application out of what comes behind it; work that runs
    already gets the queue that it gets without any rule."""
    slow = rule("fixed", value="root.a") | {"filter": {"groups": [r"((a{0,10}){10}){10}b"]}}
    state = partition({"name": "a"}, {"name": "b"}, {"name": "default"}, rules=[slow, fixed("root.b")])
    assert place_in(state, application(groups=LETTERS[:5])) == "root.b"
    assert place_in(state, application(groups=LETTERS)) is None
    assert place_in(state, application(groups=LETTERS, forced=True)) == RECOVERY


def test_a_parents_filter_counts_as_well() -> None:
    slow = rule("fixed", value="p") | {"filter": {"groups": [r"((a{0,10}){10}){10}a"]}}
    state = partition({"name": "p", "queues": [{"name": "developer"}]}, rules=[rule("user", parent=slow)])
    assert place_in(state, application(groups=LETTERS[:5])) == "root.p.developer"
    assert place_in(state, application(groups=LETTERS)) is None


def test_a_configuration_has_only_so_many_expressions() -> None:
    """Each takes memory for as long as the configuration is in force. Lists of names do not count."""
    listed = rule("provided") | {"filter": {"groups": ["x", "y"]}}
    searched = rule("provided") | {"filter": {"users": ["^a"], "groups": ["^b"]}}
    partition({"name": "a"}, rules=[listed] * 300 + [searched] * 128)
    with pytest.raises(ConfigError, match=r"placementrules\[128\].filter.users\[0\]: more than 256 filters"):
        partition({"name": "a"}, rules=[searched] * 129)


@pytest.mark.long
def test_access_lists_are_asked_once_for_an_application() -> None:
    """Thousands of rules may lead to queues below the same lists, with as many names as there are groups."""
    names = ",".join(f"g{number}" for number in range(2_000))
    state = partition({"name": "a", "submitacl": f" {names}"}, rules=[fixed("root.a")] * 1_500, submitacl=f" {names}")
    with paced_time() as took:
        found = outcomes(state, application(groups=LETTERS))
    assert took.seconds < 0.25
    assert len(found) == 1_501
    assert place_in(state, application(groups=("x", "g7"))) == "root.a"
