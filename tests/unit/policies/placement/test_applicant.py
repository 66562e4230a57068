"""Who an application belongs to: protocol.md 6.1 and 6.4, DB-17; config.md T83."""

from __future__ import annotations

import pytest

from kornel.core.policies.placement.applicant import applicant_of
from tests.unit.policies.placement.worlds import application


@pytest.mark.parametrize(
    ("user", "groups", "forced", "expected"),
    [
        ("bob", ("dev", "ops"), False, ("bob", ("dev", "ops"))),
        ("bob", (), False, ("bob", ("bob",))),
        ("bob", (), True, ("bob", ("bob",))),
        ("", (), True, ("nobody", ("nogroup",))),
        ("", ("dev",), True, ("nobody", ("nogroup",))),
    ],
)
def test_owner(user: str, groups: tuple[str, ...], forced: bool, expected: tuple[str, tuple[str, ...]]) -> None:
    """Given groups are used as they are, none stand for one of the user's name; running work needs no owner."""
    found = applicant_of(application(user=user, groups=groups, forced=forced))
    assert (found.user, found.groups) == expected


@pytest.mark.parametrize(
    ("value", "forced"),
    [("true", True), ("T", True), ("1", True), ("TRUE", True), ("yes", False), ("0", False), ("", False)],
)
def test_forced(value: str, forced: bool) -> None:
    """The tag's key in any case, its value as Go reads booleans."""
    assert applicant_of(application(tags={"Application.Create.Force": value})).forced == forced
