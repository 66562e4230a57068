"""Application requests: all additions are checked and answered, then all removals are done (protocol.md 6)."""

from __future__ import annotations

import re
from typing import Final

from core.domain.commands import ApplicationRef, ApplicationSpec
from core.domain.effects import ApplicationAccepted, ApplicationRejected
from core.domain.reasons import Ignored, Rejection
from core.domain.settings import QueueProperties, SortPolicy
from core.model.applications import Application
from core.model.queues import Queue
from core.model.shapes import TooManyTypes
from core.partition import lifecycle, removal
from core.partition.state import PartitionState
from core.policies.queue_placement import RECOVERY_QUEUE, place

_USER: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9:#/_.@-]*[$]?")
_TRUE: Final = frozenset({"1", "t", "true"})


def add(state: PartitionState, spec: ApplicationSpec, now_ns: int) -> None:
    """Checks in the order of 6.1; the first that fails rejects, and nothing changes."""
    forced = _forced(spec)
    user = spec.user or ("nobody" if forced else "")
    refused = _refuse_identity(state, spec, user)
    if refused is None:
        queue = place(state, spec, forced=forced)
        refused = _refuse_queue(state, spec, queue)
    if refused is not None:
        state.effects.append(ApplicationRejected(spec.application_id, refused))
        if not refused.startswith((Rejection.APPLICATION_EXISTS, Rejection.INVALID_ID)):
            lifecycle.reject(state, spec.application_id, now_ns)
        return
    leaf = queue if isinstance(queue, Queue) else _recovery_queue(state)
    application = Application(spec, leaf, user, now_ns, len(state.types.names))
    leaf.applications[spec.application_id] = application
    state.applications[spec.application_id] = application
    state.effects.append(ApplicationAccepted(spec.application_id))


def remove(state: PartitionState, ref: ApplicationRef, now_ns: int) -> None:
    """An unknown application is ignored."""
    application = state.applications.get(ref.application_id)
    if application is None:
        state.ignore(Ignored.UNKNOWN_APPLICATION, ref.application_id)
        return
    removal.remove_application(state, application, now_ns)


def _forced(spec: ApplicationSpec) -> bool:
    return any(key.lower() == "application.create.force" and value.lower() in _TRUE for key, value in spec.tags)


def _refuse_identity(state: PartitionState, spec: ApplicationSpec, user: str) -> str | None:
    if not spec.application_id:
        return f"{Rejection.INVALID_ID}: an application needs an ID"
    if not _USER.fullmatch(user):
        return f"{Rejection.USER_INVALID}: {user!r} is no user name"
    if spec.application_id in state.applications:
        return f"{Rejection.APPLICATION_EXISTS}: application {spec.application_id} exists already"
    return None


def _refuse_queue(state: PartitionState, spec: ApplicationSpec, queue: Queue | str | None) -> str | None:
    """Rows 5 to 9 of 6.1. *queue* is a path for a queue that is still to be created."""
    if queue is None:
        return f"{Rejection.NO_QUEUE}: no rule places an application for queue {spec.queue!r}"
    gang = spec.placeholder_ask
    if gang is None or gang.is_zero():
        return None
    if gang.has_negative():
        return f"{Rejection.INVALID_RESOURCE}: placeholderAsk has a negative quantity"
    if isinstance(queue, str):
        return None
    if queue.properties.sort_policy is not SortPolicy.FIFO:
        return f"{Rejection.GANG_NEEDS_FIFO}: queue {queue.path} does not sort fifo"
    try:
        pairs = state.types.shape(gang).pairs
    except TooManyTypes as error:
        return f"{Rejection.INVALID_RESOURCE}: {error}"
    for ancestor in queue.lineage()[:-1]:
        for t, amount in pairs:
            most = ancestor.max.get(t)
            if most is not None and amount > most:
                name = state.types.names[t]
                return f"{Rejection.GANG_TOO_LARGE}: {name} {amount} is above the max {most} of {ancestor.path}"
    return None


def _recovery_queue(state: PartitionState) -> Queue:
    """The queue for running work that no rule places, made on first need (protocol.md 6.4)."""
    path = f"root.{RECOVERY_QUEUE}"
    queue = state.queues.get(path)
    if queue is None:
        queue = state.new_queue(RECOVERY_QUEUE, state.root, leaf=True, properties=QueueProperties())
        queue.managed = False
        state.fair_terms_stale = True
    return queue
