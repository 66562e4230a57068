"""What the engine under test can do. A feature is switched on here once it exists; its rules are written already."""

from __future__ import annotations

from typing import Final

CALLBACKS: Final = False
"""AttachCallbacks, DetachCallbacks and AnswerCallbacks are served (protocol.md 13)."""

GANGS: Final = False
"""Placeholders are replaced by real asks of their task group and time out (scheduling.md 10)."""

LIMITS: Final = False
"""User limits and max applications hold asks back (scheduling.md 6, 12)."""
