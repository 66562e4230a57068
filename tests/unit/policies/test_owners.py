"""Whom an application belongs to: config.md 11, T83; protocol.md 6.1, DB-17."""

from __future__ import annotations

import pytest

from kornel.core.domain.commands import ApplicationSpec
from kornel.core.policies.owners import groups_of


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"user": "bob"}, ("bob",), id="T83 no resolver"),
        pytest.param({"user": "bob", "groups": ("dev", "ops")}, ("dev", "ops"), id="T83 as given"),
        pytest.param({"user": "bob", "looked_up": ("staff", "dev")}, ("staff", "dev"), id="as looked up"),
        pytest.param({"user": "bob", "groups": ("dev",), "looked_up": ("ops",)}, ("dev",), id="given before looked up"),
        pytest.param({"user": "bob", "unresolved": "no such user"}, ("nogroup",), id="T83 not found"),
        pytest.param({"user": "bob", "groups": ("dev",), "unresolved": "why"}, ("dev",), id="given need no resolver"),
        pytest.param({}, ("nogroup",), id="T83 no user"),
        pytest.param({"groups": ("dev",)}, ("nogroup",), id="DB-17 groups without a user"),
    ],
)
def test_groups(given: dict[str, str | tuple[str, ...]], expected: tuple[str, ...]) -> None:
    """As given, else as looked up, else one called like the user; ``nogroup`` without user or answer."""
    assert groups_of(ApplicationSpec("a", "root.a", "p", **given)) == expected  # type: ignore[arg-type]
