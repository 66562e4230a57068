"""Numbers of the history that hold unless the core was started with others."""

from __future__ import annotations

from typing import Final

DEFAULT_SPOOL_BYTES: Final = 256 * 2**20
"""Most that may wait on disk for the database."""
