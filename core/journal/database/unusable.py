"""Defines the error of a journal that a core cannot begin or go on with."""

from __future__ import annotations


class JournalUnusable(Exception):
    """The journal cannot be written, or the engine cannot be made from it."""
