"""The rights to use a queue (config.md 9). Access lists only grant rights, so what an ancestor grants cannot be taken
away below it."""

from __future__ import annotations

from collections.abc import Sequence

from kornel.core.domain.names import RECOVERY_PATH
from kornel.core.model.queues import Queue


def may_submit(queue: Queue, user: str, groups: Sequence[str]) -> bool:
    """Tells whether *user* may submit to *queue*, or have queues created below it. Nobody may submit to the recovery
    queue."""
    if queue.path == RECOVERY_PATH:
        return False
    return any(
        above.submit_acl.grants(user, groups) or above.admin_acl.grants(user, groups) for above in queue.lineage()
    )


def may_administer(queue: Queue, user: str, groups: Sequence[str]) -> bool:
    """Tells whether *user* may administer *queue*."""
    return any(above.admin_acl.grants(user, groups) for above in queue.lineage())
