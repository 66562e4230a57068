"""Serves the routes about users and groups (rest.md 4.12). An unknown partition is not an error here: its lists are
empty."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.rest.handlers.places import partition_or_none
from kornel.core.rest.http.errors import not_found
from kornel.core.rest.http.path_names import decode_again
from kornel.core.rest.serving.answers import json_answer
from kornel.core.rest.serving.listing import PAGE_PARAMETERS, page_answer
from kornel.core.rest.serving.queries import checked_group, checked_user
from kornel.core.rest.serving.rows import IN_PARTITION, Row
from kornel.core.rest.serving.sorting import GROUPS, USERS
from kornel.core.rest.serving.turns import gather_items
from kornel.core.telling.core_reader import CoreReader
from kornel.core.telling.encoding.yunikorn.usage import GROUP, USER

_USAGE: Final = f"{IN_PARTITION}/usage"


class UserHandlers:
    """Serves routes R18 to R21. Pages and orders are Kornel's own."""

    def __init__(self, reader: CoreReader) -> None:
        self._reader = reader

    @Row(f"{_USAGE}/users", "users", "Users", [USER], (*PAGE_PARAMETERS, USERS.parameter), {404: ""}, long=True)
    async def users(self, request: Request) -> ASGIApp:
        """Returns the usage of all users."""
        views = partition_or_none(self._reader, request)
        found = await gather_items(views.users()) if views is not None else []
        return await page_answer(request, ((user.user, user) for user in found), USER.write, USERS)

    @Row(f"{_USAGE}/user/{{user}}", "user", "Users", USER)
    async def user(self, request: Request) -> ASGIApp:
        """Returns the usage of one user."""
        name = checked_user(decode_again(request.path_params["user"]))
        views = partition_or_none(self._reader, request)
        found = await gather_items(views.users(name)) if views is not None else []
        if not found:
            raise not_found("User")
        return json_answer(USER.write(found[0]))

    @Row(f"{_USAGE}/groups", "groups", "Users", [GROUP], (*PAGE_PARAMETERS, GROUPS.parameter), {404: ""}, long=True)
    async def groups(self, request: Request) -> ASGIApp:
        """Returns the usage of all groups."""
        views = partition_or_none(self._reader, request)
        found = await gather_items(views.groups()) if views is not None else []
        return await page_answer(request, ((group.group, group) for group in found), GROUP.write, GROUPS)

    @Row(f"{_USAGE}/group/{{group}}", "group", "Users", GROUP)
    async def group(self, request: Request) -> ASGIApp:
        """Returns the usage of one group."""
        name = checked_group(decode_again(request.path_params["group"]))
        views = partition_or_none(self._reader, request)
        found = await gather_items(views.groups(name)) if views is not None else []
        if not found:
            raise not_found("Group")
        return json_answer(GROUP.write(found[0]))
