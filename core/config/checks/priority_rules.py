"""Checks whether priority offsets in the queue tree reach the priorities of the system.

Rules: preemption.md G. Offsets add up on the way to the root, so their sum is checked; a fence hides those below it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kornel.core.config.keys import properties
from kornel.core.config.keys.declared import DeclaredQueue
from kornel.core.domain.settings import PriorityPolicy, QueueProperties

_SYSTEM_PRIORITY: Final = 2_000_000_000
_HIGHEST_USER_PRIORITY: Final = 1_000_000_000


class _Reach(NamedTuple):
    """The highest priority that users' tasks below a queue can show there, and the offsets that lead to it.

    offset  the sum of the offsets on the way; the highest priority of users is added unless ``fenced``
    paths   the queues that set them, the lowest first
    """

    offset: int
    fenced: bool = False
    paths: tuple[str, ...] = ()

    @property
    def shown(self) -> int:
        return self.offset if self.fenced else self.offset + _HIGHEST_USER_PRIORITY


def check_priorities(root: DeclaredQueue) -> None:
    """Warn of offsets below *root* that raise users' tasks to the priorities of the system.

    An offset on *root* itself has no effect; :mod:`.yunikorn_meanings` warns of it, because YuniKorn differs there.
    """
    for child in root.children:
        _check_queue(child)


def _check_queue(queue: DeclaredQueue) -> _Reach:
    below = [_check_queue(child) for child in queue.children]
    if queue.template is not None and queue.parent:
        below.append(_check_template(queue))
    base = max(below, key=lambda reach: reach.shown, default=_Reach(0))
    own = _own_offset(queue)
    reach = _with_offset(base, queue.path, own)
    at = queue.property_fields.get(properties.PRIORITY_OFFSET)
    if at is not None and own.priority_offset:
        said = _too_high(base, own, reach)
        if said:
            at.warning(said)
    return reach


def _check_template(queue: DeclaredQueue) -> _Reach:
    """Returns the reach of leaves made below *queue*."""
    template = queue.template
    assert template is not None, "only queues with a template come here"
    own = properties.resolve_properties(template.properties, leaf=True)
    path = f"{queue.path}.*"
    reach = _with_offset(_Reach(0), path, own)
    said = _too_high(_Reach(0), own, reach)
    if said:
        template.at.warning(f"{properties.PRIORITY_OFFSET} of the queues made from it: {said}")
    return reach


def _with_offset(base: _Reach, path: str, own: QueueProperties) -> _Reach:
    paths = (path,) if own.priority_offset else ()
    if own.priority_policy is PriorityPolicy.FENCE:
        return _Reach(own.priority_offset, fenced=True, paths=paths)
    return _Reach(base.offset + own.priority_offset, base.fenced, (*base.paths, *paths))


def _too_high(base: _Reach, own: QueueProperties, reach: _Reach) -> str:
    """Returns why the offset from *base* to *reach* is too high; empty if it is not, or if *base* was too high
    already."""
    offset, system = own.priority_offset, f"the priorities of the system ({_SYSTEM_PRIORITY} and above)"
    if own.priority_policy is PriorityPolicy.FENCE:
        return f"offset {offset} makes all below the fence count among {system}" if offset >= _SYSTEM_PRIORITY else ""
    if offset >= _SYSTEM_PRIORITY:
        return f"offset {offset} lifts every task to {system}"
    if offset >= _SYSTEM_PRIORITY - _HIGHEST_USER_PRIORITY:
        return f"offset {offset} lifts tasks of priority {_SYSTEM_PRIORITY - offset} and above to {system}"
    if offset <= 0 or base.shown >= _SYSTEM_PRIORITY or reach.shown < _SYSTEM_PRIORITY:
        return ""
    together = f"the offsets of {', '.join(reach.paths)} add up to {reach.offset}"
    if reach.fenced:
        return f"{together}: all below the fence count among {system}"
    return f"{together} and lift tasks of priority {_SYSTEM_PRIORITY - reach.offset} and above to {system}"


def _own_offset(queue: DeclaredQueue) -> QueueProperties:
    return properties.resolve_properties(queue.properties, leaf=not queue.parent)
