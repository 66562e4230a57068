"""Writes the usage of users and groups (rest.md 4.12)."""

from __future__ import annotations

from typing import Final

from kornel.core.telling.encoding.documents import Document, always, if_any, listed, nested
from kornel.core.telling.encoding.values import AMOUNTS, COUNT, TEXT, TEXT_MAP, TEXTS
from kornel.core.telling.users.user_views import GroupView, UsageView, UserView

USAGE: Final = Document(
    "Usage",
    UsageView,
    lambda usage: {
        "queuePath": always(TEXT, "path"),
        "resourceUsage": if_any(AMOUNTS, "used"),
        "runningApplications": if_any(TEXTS, "applications"),
        "maxResources": if_any(AMOUNTS, "max"),
        "maxApplications": if_any(COUNT, "max_applications"),
        "children": if_any(listed(usage), "children"),
    },
)

USER: Final = Document(
    "UserUsage",
    UserView,
    {
        "userName": always(TEXT, "user"),
        "groups": if_any(TEXT_MAP, "groups"),
        "queues": always(nested(USAGE), "usage"),
    },
)

GROUP: Final = Document(
    "GroupUsage",
    GroupView,
    {
        "groupName": always(TEXT, "group"),
        "applications": if_any(TEXTS, "applications"),
        "queues": always(nested(USAGE), "usage"),
    },
)
