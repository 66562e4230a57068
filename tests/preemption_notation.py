"""The notation of the worked preemption cases, read into plain values that know no backend.

A file holds cases; a case is a line ``case NAME`` or ``case NAME like OTHER`` and what follows it up to the next:

    queues   p{G=10 M=20} · p.v{G=c:5,m:1 fence} · p.a        dotted below root; ``root{...}`` sets the root
    nodes    n1=10 n2=c:2,m:8                                 n1..n3=5 means three nodes
    running  p.v: v1 5@n1 t1 p9 X O ds, v2..v4 1@n2 t2..t4    may be repeated
    reserved n1 61m p.h: h1 4 p0                              n1 held for 61 minutes for h1; ``triggered``, ``ds``
    change   p2{off=1}                                        with ``like``: amends queues of the other case
    mode     strict
    predicate v2 v3                                           passes only once all of these are gone
    ask      p.a: 5 p1
    call     v1 v2 @0                                         the first question put to the predicate
    expect   n1 ← v2, w1                                      or ``none``, or ``none: REASON``
    before   p{M=20}                                          the max that p had before it was lowered
    enforce  p miss=15                                        instead of an ask: bring p down to its max
    target   m:20,c:30                                        what has to be freed
    shares   p.a=m:12 · p.b=m:8,c:30                          and by which leaf
    expect   PARTIAL ← v1, v2 unmet 3                         or ``NONE unmet 40``

A queue's braces take G and M (guaranteed, max), a preemption policy (``fence``, ``disabled``, ``default``),
``pfence`` and ``off=`` (priority fence and offset), ``app=`` (the ID of its one application, else its own path).
Amounts without a type are of type ``f``. ``t`` is the tick of creation (higher: younger), ``p`` the priority, ``X``
opted out, ``O`` originator, ``ds`` bound to its required node (an ask: must run on ``n1``), ``leaving`` a victim
already. Each ``ask`` is followed by what is expected of it;
asks run one after the other while the victims of the earlier ones are still leaving. ``like`` takes over all lines of
another case whose first word does not occur in the new one; ``ask``, ``call`` and ``expect`` belong together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

Amounts = dict[str, int]

STEP_LINES = ("ask", "call", "enforce", "target", "shares", "expect")


@dataclass(frozen=True)
class QueueCase:
    path: str
    guaranteed: Amounts = field(default_factory=dict)
    maximum: Amounts = field(default_factory=dict)
    preemption_policy: str | None = None
    """As configured here; ``None``: not set."""
    priority_fence: bool = False
    priority_offset: int = 0
    application: str = ""


@dataclass(frozen=True)
class TaskCase:
    """An allocation, or with no node an ask."""

    queue: str
    key: str
    amounts: Amounts
    node: str = ""
    tick: int = 0
    priority: int = 0
    opted_out: bool = False
    originator: bool = False
    required_node: bool = False
    triggered: bool = False
    leaving: bool = False


@dataclass(frozen=True)
class ReservationCase:
    node: str
    minutes: int
    holder: TaskCase


@dataclass(frozen=True)
class Expected:
    """``node`` empty: nobody goes; then ``reason`` may name the outcome."""

    node: str = ""
    victims: frozenset[str] = frozenset()
    reason: str = ""


@dataclass(frozen=True)
class Step:
    ask: TaskCase
    expected: Expected
    call: tuple[tuple[str, ...], int] | None = None


@dataclass(frozen=True)
class Enforced:
    """A max that is enforced, and what comes of it. ``target``, ``shares``: ``None`` where the case does not say."""

    queue: str
    miss: int = 0
    target: Amounts | None = None
    shares: dict[str, Amounts] | None = None
    outcome: str = ""
    victims: frozenset[str] = frozenset()
    unmet: Amounts = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    name: str
    queues: tuple[QueueCase, ...] = ()
    nodes: tuple[tuple[str, Amounts], ...] = ()
    running: tuple[TaskCase, ...] = ()
    reservations: tuple[ReservationCase, ...] = ()
    steps: tuple[Step, ...] = ()
    strict: bool = False
    predicate: frozenset[str] = frozenset()
    enforced: Enforced | None = None
    before: tuple[QueueCase, ...] = ()

    def types(self) -> list[str]:
        """All resource types the case mentions."""
        amounts: list[Amounts] = [capacity for _, capacity in self.nodes]
        for queue in (*self.queues, *self.before):
            amounts += [queue.guaranteed, queue.maximum]
        amounts += [task.amounts for task in self.running]
        amounts += [step.ask.amounts for step in self.steps]
        amounts += [reservation.holder.amounts for reservation in self.reservations]
        return sorted({name for one in amounts for name in one})


Lines = list[tuple[str, str]]


def parse(text: str) -> list[Case]:
    """All cases of *text*. Raises :class:`ValueError` naming the case whose line cannot be read."""
    cases: list[Case] = []
    lines_of: dict[str, Lines] = {}
    for name, like, own in _blocks(text):
        try:
            lines = _merged(lines_of[like], own) if like else own
            lines_of[name] = lines
            cases.append(_case(name, lines))
        except (ValueError, KeyError, IndexError) as error:
            raise ValueError(f"{name}: {error}") from error
    return cases


def _blocks(text: str) -> Iterator[tuple[str, str, Lines]]:
    name, like = "", ""
    lines: Lines = []
    for raw in text.splitlines():
        line = raw.split("#", 1)[0].strip()
        if not line:
            continue
        word, _, rest = line.partition(" ")
        if word == "case":
            if name:
                yield name, like, lines
            name, _, like = (part.strip() for part in rest.partition(" like "))
            lines = []
        else:
            lines.append((word, rest.strip()))
    if name:
        yield name, like, lines


def _merged(inherited: Lines, own: Lines) -> Lines:
    words = {word for word, _ in own}
    if words & set(STEP_LINES):
        words |= set(STEP_LINES)
    words.discard("change")
    kept = [(word, rest) for word, rest in inherited if word not in words]
    if "queues" in words:
        kept = [(word, rest) for word, rest in kept if word != "change"]
    if words & set(STEP_LINES) and not {"ask", "enforce"} & {word for word, _ in own}:
        # Only another result: the question is the same.
        kept += [(word, rest) for word, rest in inherited if word in ("ask", "enforce")]
    return kept + own


def _case(name: str, lines: Lines) -> Case:
    queues: dict[str, QueueCase] = {}
    case = Case(name)
    asks = 0
    for word, rest in lines:
        match word:
            case "queues":
                for queue in _queues(rest):
                    queues[queue.path] = queue
            case "change":
                for part in rest.split("·"):
                    path = part.partition("{")[0].strip()
                    queues[path] = _queue(part, queues.get(path, QueueCase(path)))
            case "nodes":
                case = replace(case, nodes=case.nodes + tuple(_nodes(rest)))
            case "running":
                case = replace(case, running=case.running + tuple(_running(rest)))
            case "reserved":
                case = replace(case, reservations=(*case.reservations, _reserved(rest)))
            case "mode":
                case = replace(case, strict=rest == "strict")
            case "predicate":
                case = replace(case, predicate=frozenset(rest.split()))
            case "ask":
                asks += 1
                step = Step(_ask(rest, f"ask-{asks}"), Expected())
                case = replace(case, steps=(*case.steps, step))
            case "call":
                keys, _, start = rest.partition("@")
                last = replace(case.steps[-1], call=(tuple(keys.split()), int(start)))
                case = replace(case, steps=(*case.steps[:-1], last))
            case "before":
                case = replace(case, before=tuple(_queues(rest)))
            case "enforce":
                case = replace(case, enforced=_enforced(rest))
            case "target" | "shares" | "expect" if case.enforced is not None:
                case = replace(case, enforced=_come_of(case.enforced, word, rest))
            case "expect":
                last = replace(case.steps[-1], expected=_expected(rest))
                case = replace(case, steps=(*case.steps[:-1], last))
            case _:
                raise ValueError(f"unknown line {word!r}")
    return replace(case, queues=tuple(queues.values()))


def _amounts(text: str) -> Amounts:
    """``5`` or ``c:1,m:200``."""
    if ":" not in text:
        return {"f": int(text)}
    pairs = (part.split(":") for part in text.split(","))
    return {name: int(amount) for name, amount in pairs}


def _queues(text: str) -> Iterator[QueueCase]:
    for part in text.split("·"):
        path = part.partition("{")[0].strip()
        yield _queue(part, QueueCase(path))


def _queue(text: str, queue: QueueCase) -> QueueCase:
    for word in text.partition("{")[2].rstrip("} ").split():
        key, _, value = word.partition("=")
        match key:
            case "G":
                queue = replace(queue, guaranteed=_amounts(value))
            case "M":
                queue = replace(queue, maximum=_amounts(value))
            case "fence" | "disabled" | "default":
                queue = replace(queue, preemption_policy=key)
            case "pfence":
                queue = replace(queue, priority_fence=True)
            case "off":
                queue = replace(queue, priority_offset=int(value))
            case "app":
                queue = replace(queue, application=value)
            case _:
                raise ValueError(f"unknown queue setting {word!r}")
    return queue


def _range(text: str) -> list[str]:
    """``n01..n12`` spelt out; any other text is itself."""
    first, dots, last = text.partition("..")
    if not dots:
        return [text]
    numbers = [re.fullmatch(r"(.*?)(\d+)", end) for end in (first, last)]
    if numbers[0] is None or numbers[1] is None:
        raise ValueError(f"no range: {text}")
    (prefix, low), (_, high) = numbers[0].groups(), numbers[1].groups()
    return [f"{prefix}{number:0{len(low)}d}" for number in range(int(low), int(high) + 1)]


def _nodes(text: str) -> Iterator[tuple[str, Amounts]]:
    for part in text.split():
        names, _, capacity = part.partition("=")
        for name in _range(names):
            yield name, _amounts(capacity)


def _running(text: str) -> Iterator[TaskCase]:
    queue, _, tasks = text.partition(":")
    for task in re.split(r",\s+", tasks.strip()):
        keys, placed, *marks = task.split()
        size, _, nodes = placed.partition("@")
        ticks = next((mark for mark in marks if re.fullmatch(r"t\d+(\.\.t\d+)?", mark)), "t0")
        all_keys, all_nodes, all_ticks = _range(keys), _range(nodes), _range(ticks)
        for at, key in enumerate(all_keys):
            node = all_nodes[at] if len(all_nodes) > 1 else all_nodes[0]
            tick = all_ticks[at] if len(all_ticks) > 1 else all_ticks[0]
            base = TaskCase(queue.strip(), key, _amounts(size), node, int(tick[1:]))
            yield _marked(base, [mark for mark in marks if mark != ticks])


def _marked(task: TaskCase, marks: list[str]) -> TaskCase:
    for mark in marks:
        match mark:
            case "X":
                task = replace(task, opted_out=True)
            case "O":
                task = replace(task, originator=True)
            case "ds":
                task = replace(task, required_node=True)
            case "triggered":
                task = replace(task, triggered=True)
            case "leaving":
                task = replace(task, leaving=True)
            case _ if re.fullmatch(r"p-?\d+", mark):
                task = replace(task, priority=int(mark[1:]))
            case _:
                raise ValueError(f"unknown mark {mark!r}")
    return task


def _ask(text: str, key: str) -> TaskCase:
    queue, _, rest = text.partition(": ")
    size, *marks = rest.split()
    return _marked(TaskCase(queue.strip(), key, _amounts(size), tick=1000), marks)


def _reserved(text: str) -> ReservationCase:
    where, _, rest = text.partition(": ")
    node, minutes, queue = where.split()
    key, size, *marks = rest.split()
    holder = _marked(TaskCase(queue, key, _amounts(size)), marks)
    return ReservationCase(node, int(minutes.removesuffix("m")), holder)


def _expected(text: str) -> Expected:
    if text.startswith("none"):
        return Expected(reason=text.partition(":")[2].strip())
    node, _, victims = text.partition("←")
    return Expected(node.strip(), frozenset(victim.strip() for victim in victims.split(",")))


def _enforced(text: str) -> Enforced:
    queue, *options = text.split()
    miss = next((int(option.removeprefix("miss=")) for option in options), 0)
    return Enforced(queue, miss)


def _come_of(enforced: Enforced, word: str, text: str) -> Enforced:
    if word == "target":
        return replace(enforced, target=_amounts(text))
    if word == "shares":
        shares = (part.strip().split("=") for part in text.split("·"))
        return replace(enforced, shares={path: _amounts(amounts) for path, amounts in shares})
    said, _, unmet = text.partition(" unmet ")
    outcome, _, victims = said.partition("←")
    keys = frozenset(key for part in victims.split(",") if part.strip() for key in _range(part.strip()))
    return replace(enforced, outcome=outcome.strip(), victims=keys, unmet=_amounts(unmet) if unmet else {})
