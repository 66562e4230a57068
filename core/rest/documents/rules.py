"""Placement rules (rest.md 4.11)."""

from __future__ import annotations

from typing import Any

from core.rest.documents.values import present
from core.telling.configuration.placement_rule_views import FilterView, RuleView


def rule(view: RuleView) -> dict[str, Any]:
    """One rule, with the one that names the queue above in it."""
    document: dict[str, Any] = {"name": view.name, "parameters": dict(sorted(view.parameters.items()))}
    if view.filter is not None:
        document["filter"] = _filter(view.filter)
    if view.parent is not None:
        document["parentRule"] = rule(view.parent)
    return document


def _filter(view: FilterView) -> dict[str, Any]:
    return {
        "type": "deny" if view.deny else "allow",
        **present(
            {
                "userList": list(view.users),
                "groupList": list(view.groups),
                "userExp": view.user_expression,
                "groupExp": view.group_expression,
            }
        ),
    }
