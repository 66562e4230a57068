"""Sizes that both ends of a connection keep to."""

from __future__ import annotations

from typing import Final

MESSAGE_LIMIT: Final = 64 * 1024 * 1024
"""Most bytes of one message."""
