"""The stage of a scenario: a core and the shim that talks to it, audited after every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kornel.core.config.text.problems import ConfigError
from kornel.core.domain.commands import (
    AllocationSpec,
    AnswerCallbacks,
    ApplicationRef,
    ApplicationSpec,
    AttachCallbacks,
    Command,
    CommandRefused,
    DetachCallbacks,
    NodeSpec,
    PlacementKey,
    PredicatesAnswer,
    PreemptByHand,
    PreemptionNoticeAnswer,
    PreemptionPredicatesAnswer,
    PreemptTarget,
    RegisterManager,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.devices import read_wants
from kornel.core.domain.effects import (
    ApplicationUpdated,
    Effect,
    EventRecorded,
    PredicatesAsked,
    PreemptionNotice,
    PreemptionPredicatesAsked,
)
from kornel.core.domain.gangs import MINIMUM_TAG
from kornel.core.domain.history.event_records import unpack_effects
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import read_request
from kornel.core.engine.engine import Engine
from kornel.core.model.allocations import identity_of
from kornel.core.model.run_times import MIN_RUNTIME_TAG
from kornel.core.preemption.quota.by_hand import drive as by_hand
from kornel.core.state.books import audit
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.allocations.explanation import AskReport
from kornel.core.telling.explain import Named
from tests.reading import read, status_of
from tests.scenarios.answers import describe
from tests.scenarios.configuration_lines import Configuration
from tests.scenarios.language import RM, Line, ScenarioError, requests_of, shown, time_ns, unfold
from tests.scenarios.request_lines import (
    ALLOCATIONS,
    NODE_ACTIONS,
    RELEASES,
    REQUESTS,
    device_tags,
    make_application,
    make_node,
    partition_of,
    topology_tags,
)
from tests.scenarios.shown_explanations import explain_ask
from tests.scenarios.shown_records import SHOWN

NO_ANSWER: Final = "no answer"
_MOST_SLICES: Final = 10_000


class Unsound(AssertionError):
    """The books or the laws did not hold after a step."""


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
        self._notices: dict[str, int] = {}
        """The last notice by application."""

    @property
    def state(self) -> PartitionState:
        """The default partition."""
        found = self.engine.partition(f"[{RM}]default")
        assert found is not None
        return found

    def play(self, inputs: Sequence[str]) -> list[str]:
        """Run the input lines of one step; returns what the core answered, as text."""
        answers: list[str] = []
        for request in requests_of(inputs):
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
            "preempt-cycle": lambda _: self._preempt(),
            "leave": lambda _: self._leave(),
            "preempt": self._preempt_by_hand,
            "reply": self._reply,
            "attach": self._attach,
            "detach": lambda _: self._apply(DetachCallbacks(RM)),
            "answer": self._answer,
            "acknowledge": self._acknowledge,
            "status": lambda _: self._status(),
            "show": self._show,
            "explain": self._explain,
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

    def _describe(self, decided: Sequence[Effect]) -> list[str]:
        self._check()
        effects = unpack_effects(decided)
        for effect in effects:
            if isinstance(effect, PredicatesAsked | PreemptionPredicatesAsked):
                self._questions.append(effect)
            elif isinstance(effect, PreemptionNotice):
                self._notices[effect.application_id] = effect.notice
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
                preemption_notices="notices" in line.names,
                timeout_ns=time_ns(line.options.get("timeout", "1s")),
                awaits_placements="awaits" in line.names,
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
        placed = PlacementKey(partition_of(line), line.name, line.options.get("node", ""))
        return self._apply(AnswerCallbacks(RM, acknowledged=(placed,)))

    def _reply(self, line: Line) -> list[str]:
        """What an application says to its last notice: whom it would rather lose, and when its work was saved."""
        named = line.options["instead"].split(",") if "instead" in line.options else []
        instead = tuple(key for each in named for key in unfold(each))
        saved = tuple(
            (name.removeprefix("saved."), time_ns(when))
            for name, when in line.options.items()
            if name.startswith("saved.")
        )
        answer = PreemptionNoticeAnswer(self._notices[line.name], True, instead, saved)
        return self._apply(AnswerCallbacks(RM, notices=(answer,)))

    def _preempt_by_hand(self, line: Line) -> list[str]:
        target, name = PreemptTarget(line.names[0]), line.names[1]
        amount = line.resources(None) if target is PreemptTarget.QUEUE else None
        waived = tuple(each for each in line.options.get("waived", "").split(",") if each)
        reason, by = line.options.get("reason", ""), line.options.get("by", "ops")
        order = PreemptByHand(RM, partition_of(line), target, name, amount, waived, reason, by)
        if "dry" not in line.names:
            return self._apply(order)
        found = by_hand.foresee_order(self.state, order, self.now_ns)
        return [f"would {answer}" for answer in describe([found])] + [f"would end {each.key}" for each in found.victims]

    def _leave(self) -> list[str]:
        """All who were told to leave have left."""
        state = self._state(Line("leave", [], {}))
        ended = tuple(
            ReleaseSpec(each.spec.partition, each.spec.application_id, each.key, TerminationType.PREEMPTED_BY_SCHEDULER)
            for each in state.requests.values()
            if each.preempted
        )
        return self._apply(UpdateAllocations(RM, releases=ended)) if ended else []

    def _preempt(self) -> list[str]:
        return self._describe(self.engine.preempt(self.now_ns))

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
            came = self._run_slices(1_000)
            if "leaving" in line.names:
                came += [*self._leave(), *self._run_slices(1_000)]
            answers += [f"@{self.now_ns / 10**9:g}s {answer}" for answer in came]
        self._check()
        return answers

    def _command(self, request: list[Line]) -> Command:
        kind = request[0].directive
        for line in request:
            if line.directive not in REQUESTS:
                raise ScenarioError(f"{line.directive!r} is no directive, or stands in the wrong request")
        rm_id = request[0].options.pop("rm", RM)
        if kind in NODE_ACTIONS:
            nodes: list[NodeSpec] = []
            for line in request:
                if line.directive == "existing":
                    spec = self._allocation(line)._replace(node_id=nodes[-1].node_id)
                    nodes[-1] = nodes[-1]._replace(existing=(*nodes[-1].existing, spec))
                else:
                    nodes.append(make_node(line))
            return UpdateNodes(rm_id, tuple(nodes))
        if kind in ("app", "remove-app"):
            return UpdateApplications(
                rm_id,
                tuple(make_application(line) for line in request if line.directive == "app"),
                tuple(
                    ApplicationRef(line.name, partition_of(line)) for line in request if line.directive == "remove-app"
                ),
            )
        return UpdateAllocations(
            rm_id,
            tuple(self._allocation(line) for line in request if line.directive in ALLOCATIONS),
            tuple(self._release(line) for line in request if line.directive == "withdraw"),
            tuple(self._release(line) for line in request if line.directive in RELEASES - {"withdraw"}),
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
                UpdateApplications(RM, (ApplicationSpec(application, queue, partition_of(line), user="user"),)),
                self.now_ns,
            )
        return application

    def _allocation(self, line: Line) -> AllocationSpec:
        options = line.options
        created = options.get("created")
        foreign = line.directive == "foreign"
        topology = topology_tags(options.get("topology", ""))
        devices = device_tags(options.get("want", ""), options.get("held", ""))
        minimum = ((MINIMUM_TAG, options["minimum"]),) if "minimum" in options else ()
        runtime = ((MIN_RUNTIME_TAG, options["runtime"]),) if "runtime" in options else ()
        spec = AllocationSpec(
            key="" if line.name == "-" else line.name,
            application_id="" if foreign else self._application_of(line),
            partition=partition_of(line),
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
            devices=read_wants(devices),
            tags=(*minimum, *runtime, *topology, *devices),
        )
        if line.directive != "resize-ask":
            return spec
        known = self._state(line).requests[identity_of(spec.key, spec.instance)].spec
        return known._replace(resources=spec.resources, node_id=spec.node_id)

    def _state(self, line: Line) -> PartitionState:
        state = self.engine.partition(partition_of(line))
        assert state is not None, line
        return state

    def _release(self, line: Line) -> ReleaseSpec:
        foreign = line.directive == "release-foreign"
        kind = line.options.get("type", "STOPPED_BY_RM")
        return ReleaseSpec(
            partition_of(line),
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

    def _explain(self, line: Line) -> list[str]:
        report = read(self.engine, partition_of(line), self.now_ns).explain(Named(line.name))
        assert isinstance(report, AskReport), line
        return explain_ask(report)

    def _show(self, line: Line) -> list[str]:
        kind, name, *fields = line.names if len(line.names) > 1 else [line.name, ""]
        state = self.engine.partition(partition_of(line))
        if state is None:
            return [f"no partition {partition_of(line)}"]
        return [SHOWN[kind](state, name, fields)]


def _nodes_of(question: PredicatesAsked | PreemptionPredicatesAsked) -> tuple[str, ...]:
    return question.node_ids if isinstance(question, PredicatesAsked) else (question.node_id,)
