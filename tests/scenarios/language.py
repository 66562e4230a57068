"""Scenarios as text: what the shim says, a line of dashes, what the core answers.

A file is a header comment followed by steps. A step is some input lines, ``----`` and the expected lines up to the
next blank line; ``no answer`` stands for none. ``=== title`` starts a fresh core, so that one file holds many
scenarios. Lines that start with ``#`` are comments.

Input lines are a directive, names and ``option=value`` pairs; amounts are base units and may stand bare
(``vcore=1000``) or in braces (``max={vcore=1000}``). ``at=12s`` on any line moves the clock there first. A line that
starts with ``+`` belongs to the same request as the line before.

    partition NAME nodesort=binpacking weights={..} guaranteemode=strict preemption=off quota=on limit=0.5 batch=2
                   gangs=upstream
                   governor="{..}" victim="{..}" policies="[..]" cost=NAME        flow style YAML
                   topology=zone,rack
    queue PATH guaranteed={..} max={..} parent maxapplications=N PROPERTY=VALUE
    limit PATH users=U,* groups=G,* max={..} apps=N                   one entry of the queue's limits
    yaml TEXT                         the whole configuration, in one line of flow style
    register [RM]   update-config [RM]    with the configuration lines since the last one
    node N [RES] draining attr.NAME=VALUE action=N occupied={..}      + existing KEY ...
    resize N [RES]   drain N   undrain N   decommission N
    app A queue=PATH user=U groups=G,H force gang={..} timeout=60s style=Hard tag.NAME=VALUE       remove-app A
    ask K app=A [RES] p=N created=T required=N self=no other=yes originator group=G placeholder legacy
                                      instance=N: which of its key; maxallocations=N on legacy asks
                                      dependent: on other placements, so asked about in turn
                                      topology=required:rack or preferred:rack:4, with the size of slices
                                      minimum=N: members of its task group that are of use to anybody
    run K node=N ...                  as ask, already running on N
    resize-ask K [RES] node=N         what is known of K again, with another size
    foreign F node=N [RES] kind=static                                release-foreign F
    release K app=A type=TIMEOUT      withdraw K app=A                K may be *, or - with id=ID
    cycle budget=N                    until nothing is left to do; ``once``: a single slice
    cycles until=60s every=1s         one cycle each so often; answers are marked with their time
    preempt-cycle                     one periodic preemption round
    attach predicates victims scaling events timeout=1s   what the shim answers or hears from now on; ``detach``
    answer K refuse=N,N reason=TEXT   to the open question about ask K; without ``refuse`` yes to all nodes
    answer K depends                  as above, and says that other placements decide
    acknowledge K node=N              the shim has the placement of K in place, on N if it says where
    answer K last=1                   to a question about victims; ``no``: never. ``node=N`` picks one of several
    status                            the core's own totals
    show queue|node|app|request|user|total|attempts|domain NAME FIELDS...      a domain by its path, a/r1

Left out, a node has 10,000 vcore and 10 memory, an ask 1,000 vcore, an application is ``app1`` in ``root.a``; a
scenario without configuration has the one leaf ``root.a``. ``queue=PATH`` on an ask or run stands for an
application of that queue, which is added silently on first use. ``K#N`` is instance N (above 0) of key K.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from kornel.core.config.problems import ConfigError
from kornel.core.domain.application_states import AppEvent
from kornel.core.domain.commands import (
    AllocationSpec,
    AnswerCallbacks,
    ApplicationRef,
    ApplicationSpec,
    AttachCallbacks,
    Command,
    CommandRefused,
    DetachCallbacks,
    NodeAction,
    NodeSpec,
    PlacementKey,
    PredicatesAnswer,
    PreemptionPredicatesAnswer,
    RegisterManager,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.effects import (
    Allocated,
    AllocationRejected,
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationRemoved,
    ApplicationUpdated,
    AskReleased,
    Effect,
    EventRecorded,
    NodeAccepted,
    NodeRejected,
    PlacementVoid,
    PredicatesAsked,
    PreemptionDecided,
    PreemptionPredicatesAsked,
    Released,
    SchedulingFailed,
)
from kornel.core.domain.events import EventChange, EventDetail, EventType
from kornel.core.domain.gangs import MINIMUM_TAG
from kornel.core.domain.partition_names import full_partition_name
from kornel.core.domain.priorities import NOTHING_WAITS, PRIORITY_MIN
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import read_request
from kornel.core.model.allocations import Allocation, identity_of
from kornel.core.model.applications import Application
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Vector
from kornel.core.partition.books import audit
from kornel.core.partition.engine import Engine
from kornel.core.partition.state import PartitionState
from kornel.core.policies import user_limits
from kornel.core.service.wire import APPLICATION_TIME_TAG, creation_time
from kornel.core.telling.partitions.partition_status import partition_status
from kornel.core.telling.queues.above_max import above_max_of
from tests.reading import status_of

RM: Final = "rm-1"
NO_ANSWER: Final = "no answer"
DIVIDER: Final = "----"
_MOST_SLICES: Final = 10_000
_RESOURCE_NAMES: Final = frozenset({"vcore", "memory", "gpu", "pods", "s", "h", "f"})
_DEFAULT_EVENTS: Final = frozenset(event.value for event in AppEvent)
_TIME: Final = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)(ms|s|m|h)?")
_UNIT_NS: Final = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


class ScenarioError(ValueError):
    """A line of a scenario that the language does not know."""


class Unsound(AssertionError):
    """The books or the laws did not hold after a step."""


@dataclass
class Block:
    """One step as written: everything up to the dashes, and the lines expected after them."""

    raw: list[str]
    expected: list[str]
    line: int

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


class Configuration:
    """Configuration lines, gathered into the text of a queues.yaml."""

    def __init__(self) -> None:
        self._partitions: list[dict[str, Any]] = []
        self._text: str | None = None

    def __bool__(self) -> bool:
        return bool(self._partitions) or self._text is not None

    def yaml(self, text: str) -> None:
        self._text = text

    def text(self) -> str:
        if self._text is not None:
            return self._text
        return json.dumps({"partitions": self._partitions}, indent=1)

    def partition(self, line: Line) -> None:
        options = line.options
        config: dict[str, Any] = {"name": line.name or "default", "queues": [_bare("root")]}
        if "gangs" in options:
            config["gang"] = {"scheduling": options["gangs"]}
        if "nodesort" in options or "weights" in options:
            config["nodesortpolicy"] = {"type": options.get("nodesort", "fair")}
            if "weights" in options:
                config["nodesortpolicy"]["resourceweights"] = dict(amounts(options["weights"]))
        if "topology" in options:
            config["topology"] = options["topology"].split(",")
        preemption: dict[str, Any] = {}
        if "preemption" in options:
            preemption["enabled"] = options["preemption"] != "off"
        if "quota" in options:
            preemption["quotapreemptionenabled"] = options["quota"] == "on"
        if "guaranteemode" in options:
            preemption["guaranteemode"] = options["guaranteemode"]
        for name in ("governor", "victim", "policies"):
            if name in options:
                preemption[name] = yaml.safe_load(options[name])
        if "cost" in options:
            preemption["cost"] = options["cost"]
        cycle = {name: json.loads(options[name]) for name in ("limit", "batch", "interval_ms") if name in options}
        if cycle:
            preemption["cycle"] = cycle
        if preemption:
            config["preemption"] = preemption
        self._partitions.append(config)

    def _place(self, path: str) -> dict[str, Any]:
        """The queue at *path*, made as it is first met."""
        if not self._partitions:
            self.partition(Line("partition", [], {}))
        place: dict[str, Any] = self._partitions[-1]["queues"][0]
        for name in path.split(".")[1:]:
            children = place.setdefault("queues", [])
            found = next((child for child in children if child["name"] == name), None)
            if found is None:
                found = _bare(name)
                children.append(found)
            place = found
        return place

    def limit(self, line: Line) -> None:
        limit: dict[str, Any] = {"limit": ""}
        for key in ("users", "groups"):
            if key in line.options:
                limit[key] = line.options[key].split(",")
        if "max" in line.options:
            limit["maxresources"] = _quantities(amounts(line.options["max"]))
        if "apps" in line.options:
            limit["maxapplications"] = int(line.options["apps"])
        self._place(line.name).setdefault("limits", []).append(limit)

    def queue(self, line: Line) -> None:
        place = self._place(line.name)
        if line.flag("parent"):
            place["parent"] = True
        for key, value in line.options.items():
            if key in ("guaranteed", "max"):
                place.setdefault("resources", {})[key] = _quantities(amounts(value))
            elif key == "maxapplications":
                place[key] = int(value)
            elif key == "submitacl":
                place[key] = value
            else:
                place.setdefault("properties", {})[key] = value


def _bare(name: str) -> dict[str, Any]:
    return {"name": name, "submitacl": "*"} if name == "root" else {"name": name}


def _quantities(resources: Resources) -> dict[str, str]:
    """Base units as the configuration writes them: vcore in thousandths."""
    return {name: f"{amount}m" if name == "vcore" else str(amount) for name, amount in resources.items()}


class Stage:
    """A core and the shim that talks to it, one line at a time. Every step is audited."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.now_ns = 0
        self._given = Configuration()
        self._active = ""
        self._started = False
        self._silent: set[str] = set()
        self._questions: list[PredicatesAsked | PreemptionPredicatesAsked] = []
        self._apps_of_queues: dict[str, str] = {}

    def play(self, inputs: Sequence[str]) -> list[str]:
        """Run the input lines of one step; returns what the core answered, as text."""
        answers: list[str] = []
        for request in _requests(inputs):
            first = request[0]
            if "at" in first.options:
                self._move_to(time_ns(first.options.pop("at")))
            if first.directive in ("partition", "queue", "limit", "yaml"):
                self._configure(first)
                continue
            if first.directive == "fresh":
                self._started = True
                continue
            if not self._started and first.directive not in ("register", "update-config"):
                answers += self._register(Line("register", [], {}))
            self._started = True
            answers += self._perform(request)
        return answers or [NO_ANSWER]

    def _move_to(self, now_ns: int) -> None:
        if now_ns < self.now_ns:
            raise ScenarioError("time does not run backwards")
        self.now_ns = now_ns

    def _configure(self, line: Line) -> None:
        if line.directive == "yaml":
            self._given.yaml(" ".join(line.names))
        elif line.directive == "partition":
            self._given.partition(line)
        elif line.directive == "limit":
            self._given.limit(line)
        else:
            self._given.queue(line)

    def _perform(self, request: list[Line]) -> list[str]:
        first = request[0]
        handler: Callable[[Line], list[str]] | None = {
            "register": self._register,
            "update-config": self._update_configuration,
            "cycle": self._cycle,
            "cycles": self._cycles,
            "preempt-cycle": lambda _: self._describe(self.engine.preempt(self.now_ns)),
            "attach": self._attach,
            "detach": lambda _: self._apply(DetachCallbacks(RM)),
            "answer": self._answer,
            "acknowledge": self._acknowledge,
            "status": lambda _: self._status(),
            "show": self._show,
        }.get(first.directive)
        if handler is not None:
            return handler(first)
        return self._apply(self._command(request))

    def _apply(self, command: Command) -> list[str]:
        try:
            effects = self.engine.apply(command, self.now_ns)
        except CommandRefused as refused:
            self._check()
            return [f"refused {refused.fault.name}"]
        except ConfigError:
            self._check()
            return ["refused configuration"]
        return self._describe(effects)

    def _describe(self, effects: Sequence[Effect]) -> list[str]:
        self._check()
        for effect in effects:
            if isinstance(effect, PredicatesAsked | PreemptionPredicatesAsked):
                self._questions.append(effect)
        for effect in effects:
            if isinstance(effect, ApplicationUpdated | EventRecorded) and effect.at_ns != self.now_ns:
                raise Unsound(f"{effect} does not carry the time it happened at, {self.now_ns}")
        return describe(effects)

    def _check(self) -> None:
        """Books and laws after every step."""
        for name in self.engine.partition_names():
            state = self.engine.partition(name)
            assert state is not None
            broken = audit.check(state)
            if broken:
                raise Unsound("\n".join(map(str, broken)))
            if state.law_violations:
                raise Unsound(f"{state.law_violations} laws of preemption were broken")

    def _register(self, line: Line) -> list[str]:
        if not self._given and not self._active:
            self._given.queue(Line("queue", ["root.a"], {}))
        if self._given:
            self._active = self._given.text()
        self._given = Configuration()
        rm_id = line.options.get("rm", line.name or RM)
        return self._apply(RegisterManager(rm_id, self._active))

    def _update_configuration(self, line: Line) -> list[str]:
        text = self._given.text() if self._given else self._active
        self._given = Configuration()
        answers = self._apply(UpdateConfiguration(line.name or RM, text))
        if not any(answer.startswith("refused") for answer in answers):
            self._active = text
        return answers

    def _attach(self, line: Line) -> list[str]:
        return self._apply(
            AttachCallbacks(
                RM,
                predicates="predicates" in line.names,
                preemption_predicates="victims" in line.names,
                scheduling_states="scaling" in line.names,
                events="events" in line.names,
                timeout_ns=time_ns(line.options.get("timeout", "1s")),
            )
        )

    def _answer(self, line: Line) -> list[str]:
        """The oldest open question about an ask, on ``node=`` if given; answered twice, the question stays the same."""
        node = line.options.get("node", "")
        question = next(q for q in self._questions if q.key == line.name and (not node or node in _nodes_of(q)))
        if not line.flag("again"):
            self._questions.remove(question)
        if isinstance(question, PredicatesAsked):
            reason = line.options.get("reason", "refused")
            refused = tuple((name, reason) for name in line.options.get("refuse", "").split(",") if name)
            answer = PredicatesAnswer(question.question, refused, line.flag("depends"))
            return self._apply(AnswerCallbacks(RM, (answer,)))
        last = int(line.options.get("last", "-1"))
        verdict = PreemptionPredicatesAnswer(question.question, success=not line.flag("no"), last=last)
        return self._apply(AnswerCallbacks(RM, preemption_predicates=(verdict,)))

    def _acknowledge(self, line: Line) -> list[str]:
        placed = PlacementKey(_partition(line), line.name, line.options.get("node", ""))
        return self._apply(AnswerCallbacks(RM, acknowledged=(placed,)))

    def _cycle(self, line: Line) -> list[str]:
        answers = self._run_slices(int(line.options.get("budget", "1000")), once="once" in line.names)
        self._check()
        return answers

    def _run_slices(self, budget: int, *, once: bool = False) -> list[str]:
        """Runs slices until there is nothing more to do; checks the books after each that has effects."""
        answers: list[str] = []
        for _ in range(_MOST_SLICES):
            result = self.engine.cycle(self.now_ns, budget)
            if result.effects:
                answers += self._describe(result.effects)
            if once or not result.more:
                return answers
        raise Unsound(f"{_MOST_SLICES} slices of {budget} came to no end")

    def _cycles(self, line: Line) -> list[str]:
        until, every = time_ns(line.options["until"]), time_ns(line.options["every"])
        answers: list[str] = []
        while self.now_ns < until:
            self.now_ns = min(until, self.now_ns + every)
            answers += [f"@{self.now_ns / 10**9:g}s {answer}" for answer in self._run_slices(1_000)]
        self._check()
        return answers

    def _command(self, request: list[Line]) -> Command:
        kind = request[0].directive
        for line in request:
            if line.directive not in _REQUESTS:
                raise ScenarioError(f"{line.directive!r} is no directive, or stands in the wrong request")
        rm_id = request[0].options.pop("rm", RM)
        if kind in _NODE_ACTIONS:
            nodes: list[NodeSpec] = []
            for line in request:
                if line.directive == "existing":
                    spec = self._allocation(line)._replace(node_id=nodes[-1].node_id)
                    nodes[-1] = nodes[-1]._replace(existing=(*nodes[-1].existing, spec))
                else:
                    nodes.append(_node(line))
            return UpdateNodes(rm_id, tuple(nodes))
        if kind in ("app", "remove-app"):
            return UpdateApplications(
                rm_id,
                tuple(_application(line) for line in request if line.directive == "app"),
                tuple(
                    ApplicationRef(line.name, _partition(line)) for line in request if line.directive == "remove-app"
                ),
            )
        return UpdateAllocations(
            rm_id,
            tuple(self._allocation(line) for line in request if line.directive in _ALLOCATIONS),
            tuple(self._release(line) for line in request if line.directive == "withdraw"),
            tuple(self._release(line) for line in request if line.directive in _RELEASES - {"withdraw"}),
        )

    def _application_of(self, line: Line) -> str:
        """``app=``, or the silent application of ``queue=``."""
        queue = line.options.get("queue")
        if queue is None:
            return line.options.get("app", "app1")
        application = line.options.get("app", queue.removeprefix("root."))
        if application not in self._silent:
            self._silent.add(application)
            self.engine.apply(
                UpdateApplications(RM, (ApplicationSpec(application, queue, _partition(line), user="user"),)),
                self.now_ns,
            )
        return application

    def _allocation(self, line: Line) -> AllocationSpec:
        options = line.options
        created = options.get("created")
        foreign = line.directive == "foreign"
        topology = _topology_tags(options.get("topology", ""))
        minimum = ((MINIMUM_TAG, options["minimum"]),) if "minimum" in options else ()
        spec = AllocationSpec(
            key="" if line.name == "-" else line.name,
            application_id="" if foreign else self._application_of(line),
            partition=_partition(line),
            resources=line.resources(Resources({"vcore": 1000})),
            priority=int(options.get("p", "0")),
            node_id=options.get("node", ""),
            task_group=options.get("group", ""),
            placeholder=line.flag("placeholder"),
            originator=line.flag("originator"),
            allow_preempt_self=options.get("self", "yes") != "no",
            allow_preempt_other=options.get("other", "no") == "yes",
            created_s=time_ns(created) // 10**9 if created is not None else None,
            required_node=options.get("required", ""),
            foreign=options.get("kind", "default") if foreign else "",
            legacy=line.flag("legacy"),
            max_allocations=int(options.get("maxallocations", "1")),
            instance=int(options.get("instance", "0")),
            dependent=line.flag("dependent"),
            topology=read_request(topology),
            tags=(*minimum, *topology),
        )
        if line.directive != "resize-ask":
            return spec
        known = self._state(line).requests[identity_of(spec.key, spec.instance)].spec
        return known._replace(resources=spec.resources, node_id=spec.node_id)

    def _state(self, line: Line) -> PartitionState:
        state = self.engine.partition(_partition(line))
        assert state is not None, line
        return state

    def _release(self, line: Line) -> ReleaseSpec:
        foreign = line.directive == "release-foreign"
        kind = line.options.get("type", "STOPPED_BY_RM")
        return ReleaseSpec(
            _partition(line),
            "" if foreign else self._application_of(line),
            "" if line.name in ("*", "-") else line.name,
            int(kind) if kind.isdigit() else TerminationType[kind],
            allocation_id=line.options.get("id", ""),
        )

    def _status(self) -> list[str]:
        core = status_of(self.engine)
        answers = [f"manager {core.rm_id or 'nobody'}"]
        answers += [
            f"partition {p.name} nodes={p.nodes} asks={p.asks} allocations={p.allocations} "
            f"reservations={p.reservations} capacity={shown(p.capacity)}"
            for p in core.partitions
        ]
        return answers

    def _show(self, line: Line) -> list[str]:
        kind, name, *fields = line.names if len(line.names) > 1 else [line.name, ""]
        state = self.engine.partition(_partition(line))
        if state is None:
            return [f"no partition {_partition(line)}"]
        return [_SHOWN[kind](state, name, fields)]


def _requests(inputs: Sequence[str]) -> list[list[Line]]:
    """Lines of one request together."""
    requests: list[list[Line]] = []
    for text in inputs:
        if text.startswith("+"):
            requests[-1].append(take_apart(text[1:]))
        elif text.startswith("yaml"):
            requests.append([Line("yaml", [text.removeprefix("yaml").strip()], {})])
        else:
            requests.append([take_apart(text)])
    return requests


_ALLOCATIONS: Final = frozenset({"ask", "run", "resize-ask", "foreign", "existing"})
_NODE_ACTIONS: Final = {
    "node": NodeAction.CREATE,
    "resize": NodeAction.UPDATE,
    "drain": NodeAction.DRAIN_NODE,
    "undrain": NodeAction.DRAIN_TO_SCHEDULABLE,
    "decommission": NodeAction.DECOMISSION,
}
_RELEASES: Final = frozenset({"release", "release-foreign", "withdraw"})
_REQUESTS: Final = frozenset({*_ALLOCATIONS, *_NODE_ACTIONS, *_RELEASES, "app", "remove-app"})


def _nodes_of(question: PredicatesAsked | PreemptionPredicatesAsked) -> tuple[str, ...]:
    return question.node_ids if isinstance(question, PredicatesAsked) else (question.node_id,)


def _partition(line: Line) -> str:
    return full_partition_name(RM, line.options.get("partition", ""))


def _node(line: Line) -> NodeSpec:
    action: int = _NODE_ACTIONS[line.directive]
    if line.flag("draining"):
        action = NodeAction.CREATE_DRAIN
    default = Resources({"vcore": 10_000, "memory": 10}) if line.directive == "node" else None
    return NodeSpec(
        node_id="" if line.name == "-" else line.name,
        action=int(line.options.get("action", action)),
        partition=_partition(line),
        attributes=tuple(
            (key.removeprefix("attr."), value) for key, value in line.options.items() if key.startswith("attr.")
        ),
        capacity=line.resources(default),
        occupied=line.amounts("occupied"),
    )


def _topology_tags(text: str) -> tuple[tuple[str, str], ...]:
    """The tags that ``required:rack:4`` stands for."""
    wish, _, rest = text.partition(":")
    level, _, size = rest.partition(":")
    tags = ((f"kornel.topology.{wish}", level),) if text else ()
    return (*tags, ("kornel.topology.sliceSize", size)) if size else tags


def _application(line: Line) -> ApplicationSpec:
    options = line.options
    tags = [(key.removeprefix("tag."), value) for key, value in options.items() if key.startswith("tag.")]
    if line.flag("force"):
        tags.append(("application.create.force", "true"))
    return ApplicationSpec(
        application_id="" if line.name == "-" else line.name,
        queue=options.get("queue", "root.a"),
        partition=_partition(line),
        user=options.get("user", "user"),
        groups=tuple(options["groups"].split(",")) if "groups" in options else (),
        tags=tuple(tags),
        placeholder_timeout_ms=time_ns(options.get("timeout", "0s")) // 10**6,
        placeholder_ask=line.amounts("gang"),
        gang_style=options.get("style", ""),
        created_s=creation_time(tags, APPLICATION_TIME_TAG),
    )


def describe(effects: Sequence[Effect]) -> list[str]:
    """Effects, one line each, but for those that no shim hears of."""
    preemptors = {
        (victim.application_id, victim.key): effect.key or effect.queue
        for effect in effects
        if isinstance(effect, PreemptionDecided)
        for victim in effect.victims
    }
    return [_describe(effect, preemptors) for effect in effects if not isinstance(effect, ApplicationRemoved)]


def _describe(effect: Effect, preemptors: dict[tuple[str, str], str]) -> str:
    match effect:
        case NodeAccepted(node_id):
            return f"accept node {node_id}"
        case NodeRejected(node_id, reason):
            return f"reject node {node_id} {_token(reason)}".replace("  ", " - ")
        case ApplicationAccepted(application_id):
            return f"accept app {application_id}"
        case ApplicationRejected(application_id, reason):
            return f"reject app {application_id} {_token(reason)}".replace("  ", " - ")
        case ApplicationUpdated(application_id, state, _, message):
            why = "" if message in _DEFAULT_EVENTS else f" {message}"
            return f"app {application_id} {state}{why}"
        case Allocated(spec, node_id, _):
            return f"allocate {_instance(spec.key, spec.instance)} on {node_id}"
        case Released(partition, application_id, key, termination, _, instance):
            preemptor = preemptors.get((application_id, key))
            by = f" for={preemptor}" if preemptor and termination == TerminationType.PREEMPTED_BY_SCHEDULER else ""
            where = "" if partition == full_partition_name(RM, "") else f" partition={partition}"
            return f"release {_instance(key, instance)} {TerminationType(termination).name}{by}{where}"
        case AskReleased(_, _, key, termination, _):
            return f"release-ask {key} {TerminationType(termination).name}"
        case AllocationRejected(key, _, reason, legacy):
            return f"reject {key or '-'} {_token(reason)}{' legacy' if legacy else ''}"
        case PredicatesAsked(key=key, node_ids=node_ids, allocate=allocate, dependent=dependent):
            return (
                f"may {key} run on {','.join(node_ids)}{'' if allocate else ' later'}{' in turn' if dependent else ''}"
            )
        case PlacementVoid(key=key):
            return f"not placed {key}"
        case PreemptionPredicatesAsked(key=key, node_id=node_id, victims=victims, start_index=start):
            return f"may {key} run on {node_id} without {','.join(victims)} start={start}"
        case SchedulingFailed(key=key):
            return f"scale up for {key}"
        case EventRecorded():
            return _event(effect)
        case PreemptionDecided(kind="quota", queue=queue, outcome=Outcome.VICTIM_STUCK, victims=victims):
            return f"stuck {queue} {','.join(victim.key for victim in victims)}"
        case PreemptionDecided(kind="quota", queue=queue, outcome=outcome, detail=detail):
            return f"enforce {queue} {outcome}: {detail}"
        case PreemptionDecided(
            kind="governor", application_id=application, queue=queue, outcome=outcome, detail=detail
        ):
            return f"pause {queue or application or 'all'} {outcome}: {detail}"
        case PreemptionDecided(outcome=Outcome.SHADOW | Outcome.VICTIM_STUCK as outcome, key=key, victims=victims):
            return f"refuse {key} {outcome} {','.join(victim.key for victim in victims)}"
        case PreemptionDecided(outcome=Outcome.TRIGGERED, key=key, node_id=node_id):
            return f"reserve {node_id} for={key}"
        case PreemptionDecided(key=key, outcome=outcome):
            return f"refuse {key} {outcome}"
    raise AssertionError(f"nobody knows how to show {effect!r}")


def _event(event: EventRecorded) -> str:
    what = f"{EventType(event.type).name} {event.object_id} {EventChange(event.change).name}"
    parts = [f"event {what} {EventDetail(event.detail).name}"]
    if event.reference_id:
        parts.append(f"ref={event.reference_id}")
    if event.resources is not None:
        parts.append(shown(event.resources))
    if event.message:
        parts.append(f'"{event.message}"')
    return " ".join(parts)


def _instance(key: str, instance: int) -> str:
    return f"{key}#{instance}" if instance else key


def _token(reason: str) -> str:
    return reason.split(":", 1)[0]


def _rank(priority: int) -> str:
    return {NOTHING_WAITS: "none", PRIORITY_MIN: "MIN"}.get(priority, str(priority))


def _fields(known: dict[str, Callable[[], object]], asked: list[str], default: str) -> str:
    return " ".join(f"{name}={known[name]()}" for name in asked or default.split())


def _show_queue(state: PartitionState, path: str, fields: list[str]) -> str:
    queue = state.queues.get(path)
    if queue is None:
        return f"queue {path} absent"

    def vector(amounts_: Vector | dict[int, int]) -> Callable[[], str]:
        return lambda: shown(state.types.to_resources(amounts_))

    known: dict[str, Callable[[], object]] = {
        "used": vector(queue.used),
        "pending": vector(queue.pending),
        "preempting": vector(queue.preempting),
        "claimed": vector(queue.claimed),
        "preempted": vector(queue.preempted_total),
        "max": vector(queue.max),
        "guaranteed": vector(queue.guaranteed),
        "fair": vector(dict(queue.fair_terms)),
        "priority": lambda: _rank(queue.priority),
        "draining": lambda: "yes" if queue.draining else "no",
        "apps": lambda: len(queue.applications),
        "kind": lambda: ("managed" if queue.managed else "dynamic") + (" leaf" if queue.leaf else " parent"),
        "maxapplications": lambda: queue.max_applications,
        "running": lambda: queue.running,
        "allocating": lambda: len(queue.allocating),
        "sort": lambda: queue.properties.sort_policy,
        "due": lambda: f"{due_ns / 10**9:g}s" if (due_ns := state.enforcement.armed.get(queue)) is not None else "-",
        "victims": lambda: queue.properties.preemption_policy,
        "above": lambda: _above(state, queue),
    }
    return f"queue {path} {_fields(known, fields, 'used pending')}"


def _above(state: PartitionState, queue: Queue) -> str:
    """How much the queue holds above its max, since when, what is done about it and what protects it."""
    found = above_max_of(state, queue)
    if found is None:
        return "-"
    leaving = f" leaving={shown(found.leaving)}" if found.leaving else ""
    why = "".join(f" | {reason}" for reason in found.protected)
    return f"{shown(found.above)} since={found.since_ns / 10**9:g}s{leaving} | {found.course}{why}"


def _show_node(state: PartitionState, node_id: str, fields: list[str]) -> str:
    node = state.nodes.get(node_id)
    if node is None:
        return f"node {node_id} absent"

    def vector(amounts_: Vector) -> Callable[[], str]:
        return lambda: shown(state.types.to_resources(amounts_))

    known: dict[str, Callable[[], object]] = {
        "capacity": vector(node.capacity),
        "free": vector(node.free),
        "allocated": vector(node.allocated),
        "occupied": vector(node.occupied),
        "score": lambda: f"{node.score:g}",
        "schedulable": lambda: "yes" if node.schedulable else "no",
        "reserved": lambda: ",".join(node.reservations) or "-",
        "attributes": lambda: ",".join(f"{key}:{value}" for key, value in node.attributes) or "-",
    }
    return f"node {node_id} {_fields(known, fields, 'free')}"


def _show_domain(state: PartitionState, path: str, _: list[str]) -> str:
    domain = state.topology.domains.get(tuple(path.split("/"))) if state.topology is not None else None
    if domain is None:
        return f"domain {path}: none"
    amounts_ = (state.types.to_resources(vector) for vector in (domain.capacity, domain.free, domain.held))
    capacity, free, held = map(shown, amounts_)
    return f"domain {domain.name}: nodes={len(domain.nodes)} capacity={capacity} free={free} held={held}"


def _show_app(state: PartitionState, application_id: str, fields: list[str]) -> str:
    application = state.applications.get(application_id)
    if application is None:
        return f"app {application_id} absent"
    known: dict[str, Callable[[], object]] = {
        "state": lambda: application.state,
        "queue": lambda: application.queue.path,
        "user": lambda: application.user,
        "group": lambda: application.limit_group or "-",
        "headroom": lambda: _headroom(state, application),
        "pending": lambda: shown(state.types.to_resources(application.pending)),
        "real": lambda: shown(state.types.to_resources(application.real)),
        "placeholder": lambda: shown(state.types.to_resources(application.placeholder)),
        "priority": lambda: _rank(application.priority),
        "groups": lambda: (
            ",".join(f"{g.name}:{g.replaced}+{g.timed_out}/{g.count}" for g in application.task_groups.values()) or "-"
        ),
        "deadline": lambda: (
            "-" if application.placeholder_deadline_ns is None else f"{application.placeholder_deadline_ns / 10**9:g}s"
        ),
    }
    return f"app {application_id} {_fields(known, fields, 'state')}"


def _headroom(state: PartitionState, application: Application) -> str:
    """What the limits of its user and group leave; ``unlimited`` without any."""
    left = user_limits.headroom_of(application.accounts)
    return shown(state.types.to_resources(left)) if left else "unlimited"


def _show_user(state: PartitionState, user: str, _: list[str]) -> str:
    """What the status says of a user."""
    found = next((each for each in partition_status(state, audited=False).users if each.user == user), None)
    return f"user {user} absent" if found is None else f"user {user} used={shown(found.used)} apps={found.applications}"


def _show_request(state: PartitionState, key: str, fields: list[str]) -> str:
    visible, _, instance = key.partition("#")
    request = state.requests.get(identity_of(visible, int(instance or 0)))
    if request is None:
        return f"request {key} absent"

    def yes(value: bool) -> Callable[[], str]:
        return lambda: "yes" if value else "no"

    known: dict[str, Callable[[], object]] = {
        "node": lambda: request.node.node_id if request.node is not None else "-",
        "reserved": lambda: request.reservation.node.node_id if request.reservation is not None else "-",
        "size": lambda: shown(request.shape.resources),
        "priority": lambda: request.priority,
        "self": yes(request.spec.allow_preempt_self),
        "other": yes(request.spec.allow_preempt_other),
        "preempted": yes(request.preempted),
        "released": yes(request.released),
        "replaces": lambda: request.replaces.key if request.replaces is not None else "-",
        "triggered": yes(request.triggered),
        "waits": lambda: _waiting_room(state, request),
        "rearms": lambda: request.rearms,
        "missed": lambda: request.missed,
        "held": lambda: request.held_on.node_id if request.held_on is not None else "-",
        "failures": lambda: _failures(request),
    }
    return f"request {key} {_fields(known, fields, 'node')}"


def _failures(request: Allocation) -> str:
    """Why it was not placed, each with how often."""
    noted = request.failures.recent_first() if request.failures is not None else ()
    return ", ".join(f"{entry.message} x{entry.times}" for entry in noted) or "-"


def _waiting_room(state: PartitionState, request: Allocation) -> str:
    """What a pending request waits for: a queue's max, room on any node or on one, its victims, or just its turn."""
    if request.reservation is not None:
        return f"reserved:{request.reservation.node.node_id}"
    if request.pool is not None:
        return f"placeholder:{request.pool.name}"
    room = request.group.parked_at if request.group is not None else None
    if room is None:
        return "turn" if request.pending else "-"
    if room is state.gangs.gathering:
        return "gang"
    if any(gang_room.waiters is room for gang_room in state.gangs.rooms.values()):
        return "room-for-gang"
    for queue in state.queues.values():
        if any(groups is room for groups in queue.parked.values()):
            return queue.path
        for account in queue.accounts.values():
            if any(groups is room for groups in account.parked.values()):
                return f"{account.kind}:{account.name}@{queue.path}"
    if room is request.application.backoff_room:
        return "back-off"
    gate = request.application.held_at
    if gate is not None and room is request.application.held_groups:
        where = gate.path if isinstance(gate, Queue) else f"{gate.kind}:{gate.name}@{gate.queue.path}"
        return f"applications:{where}"
    return "room" if any(groups is room for groups in state.no_room.values()) else request.spec.required_node


def _show_attempts(state: PartitionState, _: str, __: list[str]) -> str:
    return f"attempts {state.preemption_attempts} preemptions {state.preemptions}"


def _show_total(state: PartitionState, _: str, __: list[str]) -> str:
    return f"total {shown(state.types.to_resources(state.root.max))}"


_SHOWN: Final[dict[str, Callable[[PartitionState, str, list[str]], str]]] = {
    "queue": _show_queue,
    "node": _show_node,
    "app": _show_app,
    "request": _show_request,
    "user": _show_user,
    "total": _show_total,
    "attempts": _show_attempts,
    "domain": _show_domain,
}
