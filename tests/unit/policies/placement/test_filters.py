"""Filters of placement rules: config.md 8.3, T67, T68."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kornel.core.domain.settings import FilterConfig
from kornel.core.policies.placement.filters import compile_filter
from tests.paced import paced_time


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
