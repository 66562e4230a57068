"""Defines default values of the history, which apply unless the core was started with others."""

from __future__ import annotations

from typing import Final

DEFAULT_SPOOL_BYTES: Final = 256 * 2**20
"""The most bytes that may wait on the disk for the database."""
