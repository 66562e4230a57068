"""The forms of a partition's name. Rule: protocol.md 4.1."""

from __future__ import annotations


def full_partition_name(rm_id: str, name: str) -> str:
    """Returns ``[rm]name``, the form used everywhere inside the core. An empty name means ``default``; a name that
    starts with ``[`` is full already."""
    return name if name.startswith("[") else f"[{rm_id}]{name or 'default'}"


def bare_partition_name(name: str) -> str:
    """Returns *name* without its manager, the form that people see."""
    return name[name.index("]") + 1 :] if name.startswith("[") and "]" in name else name
