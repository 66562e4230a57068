"""Scenarios as text: what the shim says, a line of dashes, what the core answers.

A file is a header comment followed by steps. A step is some input lines, ``----`` and the expected lines up to the
next blank line; ``no answer`` stands for none. ``=== title`` starts a fresh core, so that one file holds many
scenarios. Lines that start with ``#`` are comments.

Input lines are a directive, names and ``option=value`` pairs; amounts are base units and may stand bare
(``vcore=1000``) or in braces (``max={vcore=1000}``). ``at=12s`` on any line moves the clock there first. A line that
starts with ``+`` belongs to the same request as the line before. Names with ``{1..9}`` or ``{9..1}`` stand for one line
each, in that order, and so do answers that differ in nothing else.

    partition NAME nodesort=binpacking weights={..} guaranteemode=strict preemption=off quota=on limit=0.5 batch=2
                   gangs=upstream coexist=on
                   governor="{..}" victim="{..}" policies="[..]" cost=NAME        flow style YAML
                   monitor="{..}"    the periodic policy: rounds each 5 s, notices of 10 s, all at once unless told
                   topology=zone,rack
    queue PATH guaranteed={..} max={..} parent maxapplications=N PROPERTY=VALUE
    limit PATH users=U,* groups=G,* max={..} apps=N                   one entry of the queue's limits
    yaml TEXT                         the whole configuration, in one line of flow style
    register [RM]   update-config [RM]    with the configuration lines since the last one
    node N [RES] draining attr.NAME=VALUE action=N occupied={..}      + existing KEY ...
                 devices=g0:A100:80Gi:link,g1:A100:80Gi               id, type, memory, link group; ``-``: none
    resize N [RES] devices=..   drain N   undrain N   decommission N
    app A queue=PATH user=U groups=G,H force gang={..} timeout=60s style=Hard tag.NAME=VALUE       remove-app A
    ask K app=A [RES] p=N created=T required=N self=no other=yes originator group=G placeholder legacy
                                      instance=N: which of its key; maxallocations=N on legacy asks
                                      dependent: on other placements, so asked about in turn
                                      topology=required:rack or preferred:rack:4, with the size of slices
                                      want=2 or 2,same or 0.25 or 16Gi or 1,A100: devices; held=g0,g1: it holds these
                                      runtime=5m: its own minimum run time
                                      minimum=N: members of its task group that are of use to anybody
    run K node=N ...                  as ask, already running on N
    resize-ask K [RES] node=N         what is known of K again, with another size
    foreign F node=N [RES] kind=static                                release-foreign F
    release K app=A type=TIMEOUT      withdraw K app=A                K may be *, or - with id=ID
    cycle budget=N                    until nothing is left to do; ``once``: a single slice
    cycles until=60s every=1s         one cycle each so often; answers are marked with their time. ``leaving``: whoever
                                      is told to leave has left before the next one
    leave                             all who were told to leave have left
    preempt application|allocation|node|queue NAME [RES] waived=gang,need reason=TEXT by=WHO    by hand; ``dry``: only
                                      who would go
    preempt-cycle                     one periodic preemption round
    attach predicates victims scaling events notices timeout=1s   what the shim answers or hears from now on; ``detach``
    attach predicates awaits          as above, and it waits itself for the placement that a question names
    answer K refuse=N,N reason=TEXT   to the open question about ask K; without ``refuse`` yes to all nodes
    answer K depends                  as above, and says that other placements decide
    acknowledge K node=N              the shim has the placement of K in place, on N if it says where
    answer K last=1                   to a question about victims; ``no``: never. ``node=N`` picks one of several
    reply A instead=K,K saved.K=9s    to the last notice of application A, with others to take and when K was saved
    explain K                         what keeps ask K from being placed, and what preemption would do
    status                            the core's own totals
    show queue|node|app|request|user|total|attempts|domain NAME FIELDS...      a domain by its path, a/r1

Left out, a node has 10,000 vcore and 10 memory, an ask 1,000 vcore, an application is ``app1`` in ``root.a``; a
scenario without configuration has the one leaf ``root.a``. ``queue=PATH`` on an ask or run stands for an
application of that queue, which is added silently on first use. ``K#N`` is instance N (above 0) of key K.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kornel.core.domain.resources import Resources

RM: Final = "rm-1"
DIVIDER: Final = "----"
_RESOURCE_NAMES: Final = frozenset({"vcore", "memory", "gpu", "pods", "s", "h", "f"})
_RANGE: Final = re.compile(r"\{([0-9]+)\.\.([0-9]+)\}")
_NUMBERED: Final = re.compile(r"([^ 0-9,=]+)([0-9]+)(?=[ ,]|$)")
_LEAST_FOLDED: Final = 3
_TIME: Final = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)(ms|s|m|h)?")
_UNIT_NS: Final = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


class ScenarioError(ValueError):
    """A line of a scenario that the language does not know."""


@dataclass
class Block:
    """One step as written: everything up to the dashes, and the lines expected after them."""

    raw: list[str]
    expected: list[str]
    line: int

    @property
    def answers(self) -> list[str]:
        """The expected lines one by one."""
        return [line for text in self.expected for line in unfold(text)]

    @property
    def inputs(self) -> list[str]:
        return [text for text in self.raw if text.strip() and not text.startswith(("#", "==="))]


@dataclass
class Scenario:
    """The steps that one core goes through."""

    title: str
    blocks: list[Block] = field(default_factory=list)


def parse(text: str) -> list[Scenario]:
    """The scenarios of one file."""
    scenarios = [Scenario("")]
    raw: list[str] = []
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if line.startswith("==="):
            scenarios.append(Scenario(line.strip("= ")))
        if line.strip() != DIVIDER:
            raw.append(line)
            continue
        expected: list[str] = []
        for _, answer in lines:
            if not answer.strip():
                break
            expected.append(answer.rstrip())
        scenarios[-1].blocks.append(Block(raw, expected, number))
        raw = []
    if any(line.strip() and not line.startswith("#") for line in raw):
        raise ScenarioError(f"input after the last {DIVIDER} is never run: {raw[-1]!r}")
    return [scenario for scenario in scenarios if scenario.blocks]


def render(scenarios: Iterable[Scenario]) -> str:
    """The file again, with the expected lines as they now are."""
    steps = ["\n".join([*block.raw, DIVIDER, *block.expected]) for s in scenarios for block in s.blocks]
    return "\n\n".join(steps) + "\n"


def load(path: Path) -> list[Scenario]:
    return parse(path.read_text(encoding="utf-8"))


@dataclass
class Line:
    """One input line taken apart."""

    directive: str
    names: list[str]
    options: dict[str, str]

    @property
    def name(self) -> str:
        return self.names[0] if self.names else ""

    def flag(self, name: str) -> bool:
        return name in self.names[1:] or self.options.get(name) in ("yes", "true")

    def resources(self, default: Resources | None) -> Resources | None:
        """Amounts given bare or as ``resources={..}``; ``resources=none`` is no resource at all."""
        given = self.options.get("resources")
        if given is not None:
            return None if given == "none" else amounts(given)
        bare = {name: int(value) for name, value in self.options.items() if name in _RESOURCE_NAMES}
        return Resources(bare) if bare else default

    def amounts(self, name: str) -> Resources | None:
        text = self.options.get(name)
        return amounts(text) if text is not None else None


def take_apart(text: str) -> Line:
    words = shlex.split(text)
    directive = next(word for word in words if not word.startswith("at="))
    words.remove(directive)
    names = [word for word in words if "=" not in word]
    options = dict(word.split("=", 1) for word in words if "=" in word)
    return Line(directive, names, options)


def requests_of(inputs: Sequence[str]) -> list[list[Line]]:
    """Lines of one request together."""
    requests: list[list[Line]] = []
    for text in inputs:
        if text.startswith("+"):
            requests[-1] += map(take_apart, unfold(text[1:]))
        elif text.startswith("reply"):
            requests.append([take_apart(text)])
        elif text.startswith("yaml"):
            requests.append([Line("yaml", [text.removeprefix("yaml").strip()], {})])
        else:
            requests.append([take_apart(each) for each in unfold(text)])
    return requests


def unfold(text: str) -> list[str]:
    """The lines that *text* stands for: one for each number of its first range, in which all its ranges go along."""
    ranges = [_numbers(match) for match in _RANGE.finditer(text)]
    if not ranges:
        return [text]
    pieces = _RANGE.split(text)[::3]
    return [
        "".join(piece + str(next_) for piece, next_ in zip(pieces, (*each, ""), strict=True))
        for each in zip(*ranges, strict=True)
    ]


def fold(lines: Sequence[str]) -> list[str]:
    """*lines* with those behind each other as one that differ only in a number that goes up or down by one."""
    folded: list[str] = []
    at = 0
    while at < len(lines):
        text, length = max((_fold_from(lines, at, step) for step in (1, -1)), key=lambda found: found[1])
        folded.append(text)
        at += length
    return folded


def _fold_from(lines: Sequence[str], at: int, step: int) -> tuple[str, int]:
    """The longest fold that begins at line *at*, and how many lines it stands for."""
    best = lines[at], 1
    for match in _NUMBERED.finditer(lines[at]):
        before, first, after = lines[at][: match.start(2)], int(match[2]), lines[at][match.end(2) :]
        count = 1
        while at + count < len(lines) and lines[at + count] == f"{before}{first + step * count}{after}":
            count += 1
        if count >= max(_LEAST_FOLDED, best[1] + 1):
            best = f"{before}{{{first}..{first + step * (count - 1)}}}{after}", count
    return best


def _numbers(match: re.Match[str]) -> range:
    first, last = int(match[1]), int(match[2])
    return range(first, last + 1) if first <= last else range(first, last - 1, -1)


def amounts(text: str) -> Resources:
    """``{vcore=4,memory=2}``; empty braces are an empty resource."""
    inner = text.strip("{}")
    pairs = (pair.split("=") for pair in inner.split(",") if pair)
    return Resources({name.strip(): int(value) for name, value in pairs})


def time_ns(text: str) -> int:
    """``12s``, ``0.5s``, ``100ms``, ``60m`` or ``72h`` in nanoseconds."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ScenarioError(f"{text!r} is no time")
    return round(float(match[1]) * _UNIT_NS[match[2] or "s"])


def shown(resources: Resources) -> str:
    inner = ",".join(f"{name}={amount}" for name, amount in sorted(resources.items()))
    return f"{{{inner}}}"
