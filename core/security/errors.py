"""Errors in the files and options that make a core secure."""

from __future__ import annotations


class SecurityError(ValueError):
    """Options or files that cannot be used. The text says which and why, and never quotes a secret."""
