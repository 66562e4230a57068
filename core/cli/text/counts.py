"""Numbers of things in words."""

from __future__ import annotations


def format_count(number: int, thing: str, things: str = "") -> str:
    """Returns *number* of *thing* as people say it: ``1 ask``, ``2 asks``. *things*: a plural that is not regular."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {things or thing + 's'}"
