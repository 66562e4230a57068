"""Who is protected by a minimum run time, and until when: from the words of the rule (preemption.md L) and from nothing
but paths, settings and seconds, as an administrator would work it out on paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """What one queue says itself, in seconds; ``None``: nothing, so that what the queue above says counts."""

    least: int | None = None
    most: int | None = None


@dataclass(frozen=True)
class Task:
    """A task that runs in the leaf at *queue* since the second *since*. *states*: its own minimum, if it has a tag that
    can be read."""

    queue: str
    since: int
    states: int | None = None


def children_up_to(path: str) -> list[str]:
    """``root.p.v`` gives ``root``, ``root.p`` and ``root.p.v``."""
    parts = path.split(".")
    return [".".join(parts[: at + 1]) for at in range(len(parts))]


def counting_queue(victim: str, taker: str) -> str:
    """The child of the lowest queue that both are in or below, on the victim's side; the victim's leaf if there is no
    such child, because the taker is that leaf."""
    mine, theirs = children_up_to(victim), children_up_to(taker)
    below = [queue for queue in mine if queue not in theirs]
    return below[0] if below else victim


def protected_until(settings: Mapping[str, Setting], task: Task, taker: str) -> int:
    """The first second at which *task* may be taken for *taker*, a leaf that asks or a queue above its max."""
    least, most = 0, None
    for queue in children_up_to(counting_queue(task.queue, taker)):
        said = settings.get(queue, Setting())
        least = least if said.least is None else said.least
        most = most if said.most is None else said.most
    wanted = least
    if task.states is not None:
        wanted = min(task.states, max(least, most or 0))
    return task.since + wanted
