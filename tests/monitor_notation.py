"""The notation of the worked cases of the periodic policy, read into plain values that know no backend.

A file holds cases; a case is a line ``case NAME`` or ``case NAME like OTHER`` and what follows it up to the next:

    tree     A(B C) D           queues below root, children in parentheses
    G        100(50 50) 20      guaranteed, one number a queue in the order of the tree; 0: none
    U        90(90 0) 10        used, likewise
    M        B=45               max; not named: unlimited
    P        B=20 D=5           pending
    prio     B=2                priority.offset
    disabled A                  queues with preemption.policy disabled, ``root`` among them
    fence    A                  ... and fence
    cluster  200                not given: the guarantees of all leaves together
    size     2                  of each container
    set      per_round=0.1 balance natural_factor=0.2
    ideal    A=10 B=60          what the queues should hold
    expect   B=10               how much each leaf gives up; ``none``: nobody gives up anything
    spares   E                  these give up nothing, whatever the others do

An amount of two types is written ``2:4``. ``like`` takes over every line of the other case that the new one lacks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

Vector = tuple[int, ...]
"""Amounts of the types ``f``, ``g``."""

TYPES = ("f", "g")


@dataclass(frozen=True)
class QueueLine:
    """Path below root."""

    path: str
    leaf: bool
    guaranteed: Vector
    used: Vector
    pending: Vector
    maximum: Vector | None
    priority: int
    policy: str | None


@dataclass(frozen=True)
class MonitorCase:
    name: str
    queues: tuple[QueueLine, ...]
    cluster: Vector
    size: Vector
    root_disabled: bool
    settings: dict[str, float | bool] = field(default_factory=dict)
    ideal: dict[str, Vector] = field(default_factory=dict)
    expected: dict[str, Vector] | None = None
    """By queue name; ``None``: only ``spared`` counts."""
    spared: tuple[str, ...] = ()

    def leaves(self) -> list[QueueLine]:
        return [queue for queue in self.queues if queue.leaf]


def parse(text: str) -> list[MonitorCase]:
    """All cases of *text*."""
    lines: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.split("#", 1)[0].strip()
        if not line:
            continue
        word, _, rest = line.partition(" ")
        if word == "case":
            name, _, like = (part.strip() for part in rest.partition(" like "))
            current = lines[name] = dict(lines[like]) if like else {}
            for result in ("expect", "spares", "ideal") if like else ():
                current.pop(result, None)
        else:
            current[word] = rest.strip()
    return [_case(name, words) for name, words in lines.items()]


def _case(name: str, words: dict[str, str]) -> MonitorCase:
    paths = _paths(words["tree"])
    names = [path.rpartition(".")[2] for path in paths]
    guaranteed = dict(zip(names, _numbers(words["G"]), strict=True))
    used = dict(zip(names, _numbers(words["U"]), strict=True))
    width = len(guaranteed[names[0]])
    nothing = (0,) * width
    pending, maximum, prio = (_named(words.get(word, "")) for word in ("P", "M", "prio"))
    policies = {one: word for word in ("disabled", "fence") for one in words.get(word, "").split()}
    queues = tuple(
        QueueLine(
            path,
            not any(other.startswith(f"{path}.") for other in paths),
            guaranteed[queue],
            used[queue],
            pending.get(queue, nothing),
            maximum.get(queue),
            prio.get(queue, (0,))[0],
            policies.get(queue),
        )
        for path, queue in zip(paths, names, strict=True)
    )
    leaves = [queue for queue in queues if queue.leaf]
    total = tuple(sum(leaf.guaranteed[t] for leaf in leaves) for t in range(width))
    settings: dict[str, float | bool] = {"per_round": 1, "natural_factor": 1}
    for part in words.get("set", "").split():
        key, given, value = part.partition("=")
        settings[key] = float(value) if given else True
    expected = words.get("expect")
    return MonitorCase(
        name,
        queues,
        _vector(words["cluster"]) if "cluster" in words else total,
        _vector(words.get("size", "1")),
        "root" in policies,
        settings,
        _named(words.get("ideal", "")),
        None if expected is None else _named("" if expected == "none" else expected),
        tuple(words.get("spares", "").split()),
    )


def _paths(tree: str) -> list[str]:
    paths: list[str] = []
    above: list[str] = []
    for token in re.findall(r"\w+|[()]", tree):
        if token == "(":
            above.append(paths[-1])
        elif token == ")":
            above.pop()
        else:
            paths.append(f"{above[-1]}.{token}" if above else token)
    return paths


def _numbers(text: str) -> list[Vector]:
    return [_vector(token) for token in re.findall(r"[\d:]+", text)]


def _named(text: str) -> dict[str, Vector]:
    return {name: _vector(amount) for name, _, amount in (part.partition("=") for part in text.split())}


def _vector(text: str) -> Vector:
    return tuple(int(amount) for amount in text.split(":"))
