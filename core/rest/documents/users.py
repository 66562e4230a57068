"""What users and groups use (rest.md 4.12)."""

from __future__ import annotations

from typing import Any

from core.rest.documents.values import amounts, present
from core.telling.users.user_views import GroupView, UsageView, UserView


def user(view: UserView) -> dict[str, Any]:
    """One user."""
    groups = {key: view.groups[key] for key in sorted(view.groups)}
    return {"userName": view.user, **present({"groups": groups}), "queues": _usage(view.usage)}


def group(view: GroupView) -> dict[str, Any]:
    """One group."""
    return {
        "groupName": view.group,
        **present({"applications": list(view.applications)}),
        "queues": _usage(view.usage),
    }


def _usage(view: UsageView) -> dict[str, Any]:
    return {
        "queuePath": view.path,
        **present(
            {
                "resourceUsage": amounts(view.used),
                "runningApplications": list(view.applications),
                "maxResources": amounts(view.max),
                "maxApplications": view.max_applications,
                "children": [_usage(child) for child in view.children],
            }
        ),
    }
