"""The rights to use a queue (config.md 9). Access lists only grant rights, so what an ancestor grants cannot be taken
away below it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kornel.core.domain.names import RECOVERY_PATH
from kornel.core.model.queues import Queue


class Submitter:
    """The user who submits an application.

    The answers are remembered, because there may be thousands of groups, and thousands of placement rules that lead to
    queues with the same access lists.
    """

    def __init__(self, user: str, groups: Iterable[str]) -> None:
        self._user = user
        self._groups = frozenset(groups)
        self._known: dict[str, bool] = {}

    def may_submit(self, queue: Queue) -> bool:
        """Tells whether the user may submit to *queue*, or have queues created below it. Nobody may submit to the
        recovery queue."""
        if queue.path == RECOVERY_PATH:
            return False
        granted = False
        asked: list[str] = []
        for above in queue.lineage():
            if above.path in self._known:
                granted = self._known[above.path]
                break
            asked.append(above.path)
            granted = above.submit_acl.grants(self._user, self._groups) or above.admin_acl.grants(
                self._user, self._groups
            )
            if granted:
                break
        self._known.update(dict.fromkeys(asked, granted))
        return granted


def may_administer(queue: Queue, user: str, groups: Sequence[str]) -> bool:
    """Tells whether *user* may administer *queue*."""
    return any(above.admin_acl.grants(user, groups) for above in queue.lineage())
