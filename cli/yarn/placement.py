"""Translates the queue mappings of YARN into placement rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kornel.cli.yarn.capacity_file import YarnQueue, is_true

Note = Callable[[str, str, str], None]
"""Notes a setting, with its value, and what to know about it."""

_BY_GROUP: Final = (
    "none: no rule names a queue after a group; by hand, a rule `fixed` with a filter for each group, or a rule `tag`"
    " if the shim puts the group into a tag"
)


def convert_mappings(root: YarnQueue, others: Mapping[str, str], note: Note) -> list[dict[str, Any]]:
    """Returns the rules for the mappings in *others*; empty: there are none, and applications name their queues."""
    mappings = [each.strip() for each in others.get("queue-mappings", "").split(",") if each.strip()]
    if not mappings:
        return []
    rules = [rule for mapping in mappings if (rule := _convert_mapping(root, mapping, note)) is not None]
    provided = {"name": "provided"}
    if is_true(others.get("queue-mappings-override.enable")):
        return [*rules, provided]
    note(
        "queue-mappings-override.enable", "false",
        "an application that names a queue stays there, and so does one that names root.default, which YARN would map",
    )  # fmt: skip
    return [provided, *rules]


def _convert_mapping(root: YarnQueue, mapping: str, note: Note) -> dict[str, Any] | None:
    kind, _, rest = mapping.partition(":")
    who, colon, target = rest.rpartition(":")
    known = kind in ("u", "g") and colon and ("%" not in who or (kind, who) == ("u", "%user"))
    rule = _find_rule(root, target) if known else None
    if rule is None:
        by_group = known and "group" in target
        note("queue-mappings", mapping, _BY_GROUP if by_group else "not converted; a rule knows users, groups and tags")
        return None
    if who != "%user":
        rule["filter"] = {"type": "allow", "users" if kind == "u" else "groups": [who]}
    return rule


def _find_rule(root: YarnQueue, target: str) -> dict[str, Any] | None:
    """Returns the rule that leads to *target*; ``None``: none does."""
    above, _, last = target.rpartition(".")
    if last != "%user":
        return None if "%" in target else {"name": "fixed", "value": _find_path(root, target)}
    if "%" in above:
        return None
    rule: dict[str, Any] = {"name": "user"}
    parent = next((queue for queue in root.walk() if queue.path == _find_path(root, above)), root)
    if parent.makes_children():
        rule["create"] = True
    if parent is not root:
        rule["parent"] = {"name": "fixed", "value": parent.path}
    return rule


def _find_path(root: YarnQueue, target: str) -> str:
    """Returns the full path of the queue that *target* names, by its path or by its last part alone."""
    wanted = f".{target}"
    return next((queue.path for queue in root.walk() if f".{queue.path}".endswith(wanted)), f"root.{target}")
