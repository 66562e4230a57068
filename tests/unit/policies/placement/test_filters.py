"""Filters of placement rules: config.md 8.3, T67, T68."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from core.domain.settings import FilterConfig
from core.policies.placement.filters import compile_filter


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
