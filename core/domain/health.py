"""The content of a health report (rest.md 7)."""

from __future__ import annotations

from typing import Final, NamedTuple

CLAIM_CHECK: Final = "Claim check"
"""The check that only warns: claims without progress hold others up, but nothing is wrong with the core."""


class HealthCheck(NamedTuple):
    """One check. ``diagnosis`` says what failed."""

    name: str
    succeeded: bool
    description: str
    diagnosis: str


class HealthReport(NamedTuple):
    """All checks in their order, as of ``at_ns``."""

    at_ns: int
    checks: tuple[HealthCheck, ...]

    @property
    def healthy(self) -> bool:
        """Tells whether all checks succeeded but the one that only warns."""
        return all(check.succeeded for check in self.checks if check.name != CLAIM_CHECK)
