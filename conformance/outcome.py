"""How a case can end, other than well."""

from __future__ import annotations


class Mismatch(AssertionError):
    """The core did something else than the contract says."""


class Skipped(Exception):
    """The case says nothing about this core; the message tells why."""


def check(condition: object, message: str) -> None:
    """Raises :class:`Mismatch` with *message* unless *condition* holds."""
    if not condition:
        raise Mismatch(message)
