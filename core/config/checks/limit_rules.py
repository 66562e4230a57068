"""Checks user and group limits: what one queue may list (V11 to V20), and what the levels above allow (V70, V71)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kornel.core.config.keys.declared import DeclaredLimit, DeclaredQueue
from kornel.core.config.text.fields import Field
from kornel.core.config.text.yaml_reader import shorten_text
from kornel.core.domain.names import GROUP_NAME, USER_NAME, is_group_name, is_user_name
from kornel.shared.readable_amounts import write_quantity

WILDCARD: Final = "*"


@dataclass(frozen=True, slots=True)
class _Bound:
    """The bound that the levels above set for one user or group; 0 applications: no bound."""

    resources: Mapping[str, int]
    applications: int
    setter: str


Bounds = Mapping[tuple[str, str], _Bound]
"""The bounds by kind (``user`` or ``group``) and name."""


def check_limits(root: DeclaredQueue) -> None:
    """Report every limit at or below *root* that is malformed or contradicts another."""
    for queue in root.walk_queues():
        _check_names(queue, "user")
        _check_names(queue, "group")
        for limit in queue.limits:
            _check_values(queue, limit)
    _check_levels(root, {})


def _limited_names(limit: DeclaredLimit, kind: str) -> list[tuple[str, Field]]:
    return limit.users if kind == "user" else limit.groups


def _check_names(queue: DeclaredQueue, kind: str) -> None:
    is_name, expected = (is_user_name, USER_NAME) if kind == "user" else (is_group_name, GROUP_NAME)
    seen: set[str] = set()
    for limit in queue.limits:
        for name, at in _limited_names(limit, kind):
            if name != WILDCARD and not is_name(name):
                at.error(f"{kind} {shorten_text(name)} is not valid", f"{expected}; or *")
            elif name in seen:
                at.error(f"{kind} {shorten_text(name)} is listed twice in the limits of {queue.path}", "once per queue")
            elif name != WILDCARD and WILDCARD in seen:
                at.error(f"{kind} {shorten_text(name)} comes after the {kind} *, which already covers it", "* last")
            elif name == WILDCARD and kind == "group" and not seen:
                at.error("group * without a named group before it", "at least one named group earlier in the limits")
            seen.add(name)


def _check_values(queue: DeclaredQueue, limit: DeclaredLimit) -> None:
    if limit.complete and not limit.users and not limit.groups:
        limit.at.error(f"{limit.label} names neither a user nor a group", "at least one")
    resources = limit.max_resources
    if resources is None or (resources.complete and not resources.values):
        if limit.complete and not limit.max_applications:
            limit.at.error(f"{limit.label} limits nothing", "maxapplications, maxresources or both")
    elif resources.complete and not any(resources.values.values()):
        resources.at.error(f"{limit.label}: all resources are 0", "at least one above 0")
    if queue.max_applications and limit.max_applications > queue.max_applications:
        limit.max_applications_field.error(
            f"{limit.label}: maxapplications {limit.max_applications} is above the {queue.max_applications} of queue "
            f"{queue.path}",
            f"at most {queue.max_applications}",
        )
    if resources is None or queue.max is None:
        return
    for name, amount in resources.values.items():
        most = queue.max.values.get(name, amount)
        if amount > most:
            own, least = (write_quantity(name, each) for each in (amount, most))
            message = f"{limit.label}: {name} {own} is above the max {least} of queue {queue.path}"
            resources.fields[name].error(message, f"at most {least}")


def _check_levels(queue: DeclaredQueue, above: Bounds) -> None:
    carried = dict(above)
    for limit in queue.limits:
        for kind in ("user", "group"):
            for name, at in _limited_names(limit, kind):
                bound = above.get((kind, name)) or above.get((kind, WILDCARD))
                by_wildcard = (kind, name) not in above
                carried[kind, name] = _narrow_bound(
                    queue, limit, f"{kind} {shorten_text(name)}", at, bound, by_wildcard
                )
    for child in queue.children:
        _check_levels(child, carried)


def _narrow_bound(
    queue: DeclaredQueue, limit: DeclaredLimit, who: str, at: Field, bound: _Bound | None, by_wildcard: bool
) -> _Bound:
    """Report where *limit* grants *who* more than *bound*. Returns the most that the levels below may grant."""
    resources = {} if limit.max_resources is None else limit.max_resources.values
    if bound is None:
        return _Bound(resources, limit.max_applications, queue.path)
    of = f"{'of * ' if by_wildcard else ''}in {bound.setter}"
    for name, amount in resources.items():
        most = bound.resources.get(name, amount)
        if amount > most:
            own, other = (write_quantity(name, each) for each in (amount, most))
            at.error(f"queue {queue.path}, {who}: {name} {own} is above the limit {other} {of}", f"at most {other}")
    if bound.applications and limit.max_applications > bound.applications:
        message = f"queue {queue.path}, {who}: maxapplications {limit.max_applications} is above the limit "
        at.error(f"{message}{bound.applications} {of}", f"at most {bound.applications}")
    least = dict(bound.resources)
    for name, amount in resources.items():
        least[name] = min(amount, least.get(name, amount))
    counts = [count for count in (bound.applications, limit.max_applications) if count]
    return _Bound(least, min(counts, default=0), queue.path)
