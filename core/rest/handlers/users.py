"""Users and groups (rest.md 4.12). An unknown partition is no error here: nobody uses anything in it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp

from core.rest.answers import json_answer
from core.rest.documents.users import group as group_document
from core.rest.documents.users import user as user_document
from core.rest.errors import not_found
from core.rest.handlers.places import partition_or_none
from core.rest.listing import list_answer, page_of, wishes_of
from core.rest.paths import decode_again
from core.rest.queries import checked_group, checked_user
from core.rest.turns import gather
from core.service.runner import PartitionRunner


class UserHandlers:
    """R18 to R21. Ours: pages."""

    def __init__(self, runner: PartitionRunner) -> None:
        self._runner = runner

    async def users(self, request: Request) -> ASGIApp:
        """R18."""
        views, wishes = partition_or_none(self._runner, request), wishes_of(request)
        keyed = [(user.user, user) for user in await gather(views.users())] if views is not None else []
        page, more = page_of(keyed, wishes)
        total = None if wishes.plain else len(keyed)
        return await list_answer(request, map(user_document, page), wishes, more=more, total=total)

    async def user(self, request: Request) -> ASGIApp:
        """R19."""
        name = checked_user(decode_again(request.path_params["user"]))
        views = partition_or_none(self._runner, request)
        found = await gather(views.user(name)) if views is not None else []
        if not found:
            raise not_found("User")
        return json_answer(user_document(found[0]))

    async def groups(self, request: Request) -> ASGIApp:
        """R20."""
        views, wishes = partition_or_none(self._runner, request), wishes_of(request)
        keyed = [(group.group, group) for group in await gather(views.groups())] if views is not None else []
        page, more = page_of(keyed, wishes)
        total = None if wishes.plain else len(keyed)
        return await list_answer(request, map(group_document, page), wishes, more=more, total=total)

    async def group(self, request: Request) -> ASGIApp:
        """R21."""
        name = checked_group(decode_again(request.path_params["group"]))
        views = partition_or_none(self._runner, request)
        found = await gather(views.group(name)) if views is not None else []
        if not found:
            raise not_found("Group")
        return json_answer(group_document(found[0]))
