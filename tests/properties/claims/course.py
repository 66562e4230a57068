"""Plays a random world on the engine and has the rule of claims judge every decision and every quiet point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from kornel.core.domain.commands import (
    AllocationSpec,
    AnswerCallbacks,
    ApplicationSpec,
    AttachCallbacks,
    Command,
    NodeAction,
    NodeSpec,
    PredicatesAnswer,
    PreemptionPredicatesAnswer,
    RegisterManager,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.effects import (
    Allocated,
    ApplicationRejected,
    ApplicationUpdated,
    AskReleased,
    Effect,
    PredicatesAsked,
    PreemptionDecided,
    PreemptionPredicatesAsked,
    Released,
)
from kornel.core.domain.resources import Resources
from kornel.core.partition.engine import Engine
from tests.oracles.claims import checks
from tests.oracles.claims.checks import Finding
from tests.oracles.claims.limits import amounts_refused, applications_refused
from tests.oracles.claims.order import keeps_back
from tests.oracles.claims.scene import Scene, Task, Waiter
from tests.oracles.rules.world import Amounts, ancestors
from tests.properties.claims.claims_read import read_claims
from tests.properties.claims.random_worlds import START_S, Event, World, configuration

RM: Final = "rm"
PARTITION: Final = "[rm]default"
SECOND: Final = 10**9
IDLE_STEPS_S: Final = (*[1] * 6, *[4] * 5, 16, 16, 30, 60)
"""How long nothing may happen until a world counts as quiet, step by step."""
MOST_S: Final = 400
MOST_SLICES: Final = 400


@dataclass
class Course:
    """One world from start to quiet. ``seen``: which of the situations that matter it had."""

    world: World
    trace: Callable[[str], None] | None = None
    findings: list[Finding] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        world = self.world
        self.engine = Engine(reservation_percent=world.percent)
        self.scene = Scene(
            {queue.path: queue for queue in world.queues},
            {application.name: application for application in world.applications},
            {node.name: node for node in world.nodes},
            now=START_S,
            strict=world.strict,
        )
        self.quiet = self.scene.copied()
        """The scene at the last quiet point."""
        self.suspected: set[tuple[str, str, str]] = set()
        """Findings of the last quiet point, which count if they are still there at the next one."""
        self.doubtful: list[Finding] = []
        """Findings about asks that were passed over in this second."""
        self.found: set[tuple[str, str, str]] = set()
        """What was found already: each finding counts once in a world."""
        self.since: dict[str, int] = {}
        self.departures: list[tuple[int, str]] = []
        self.again: list[Task] = []
        self.live: set[str] = set()
        self.allowed: dict[str, dict[str, int]] = {}
        self.questions: list[PredicatesAsked | PreemptionPredicatesAsked] = []
        self.born = self.last = 0
        self.busy = False

    def play(self) -> Course:
        """Plays the world until nothing happens any more, or far too much has."""
        self._set_up()
        events, idle = list(self.world.events), 0
        self.last = START_S + max((event.second for event in events), default=0)
        while idle < len(IDLE_STEPS_S) and self.scene.now < self.last + MOST_S:
            self.busy = False
            for event in [event for event in events if event.second + START_S <= self.scene.now]:
                events.remove(event)
                self._do(event)
            self._settle()
            idle = 0 if self.busy or self.departures or events else idle + 1
            self.scene.now += IDLE_STEPS_S[idle - 1] if idle else 1
        return self

    def _set_up(self) -> None:
        world = self.world
        self._apply(RegisterManager(RM, configuration(world)))
        if world.asked:
            self._apply(AttachCallbacks(RM, predicates=True, preemption_predicates=True, timeout_ns=SECOND))
        created = (NodeSpec(n.name, NodeAction.CREATE, PARTITION, capacity=_amounts(n.capacity)) for n in world.nodes)
        self._apply(UpdateNodes(RM, tuple(created)))
        for task, node in world.running:
            self._revive(task.application)
            if self.scene.states.get(task.application) != "Rejected":
                self.scene.running[task.key] = (task, node)
                self._send([task], node)

    def _do(self, event: Event) -> None:
        """Does what the world says happens now."""
        scene, self.busy = self.scene, True
        node = scene.nodes.get(event.name)
        match event.what:
            case "ask":
                self._submit(event.tasks)
            case "end" | "withdraw" | "follow":
                free = scene.waiting if event.what == "withdraw" else scene.running
                tasks = [task for key in free if key not in scene.leaving and not (task := scene.task(key)).placeholder]
                if tasks:
                    task = tasks[event.number % len(tasks)]
                    self._end(task.key)
                    self.again += [task] * (event.what == "follow")
            case "again" | "break":
                mine = [t for t, _ in scene.running.values() if t.application == event.name and not t.placeholder]
                for task in mine[: 1 if event.what == "break" else len(mine)]:
                    if task.key not in scene.leaving:
                        self._end(task.key)
                        self.again.append(task)
            case "drain" | "open" if node is not None:
                self._say(f"{event.what} {node.name}")
                self._count("a drain with a claim", any(claim.node == node.name for claim in scene.claims))
                scene.nodes[node.name] = replace(node, drained=event.what == "drain")
                action = NodeAction.DRAIN_NODE if event.what == "drain" else NodeAction.DRAIN_TO_SCHEDULABLE
                self._apply(UpdateNodes(RM, (NodeSpec(node.name, action, PARTITION),)))
            case "lose" if node is not None and len(scene.nodes) > 1:
                self._say(f"lose {node.name}")
                self._count("a node lost with a claim", any(claim.node == node.name for claim in scene.claims))
                del scene.nodes[node.name]
                lost = [task for task, at in scene.running.values() if at == node.name]
                for task in lost:
                    self._forget(task.key)
                self._apply(UpdateNodes(RM, (NodeSpec(node.name, NodeAction.DECOMISSION, PARTITION),)))
                self.again += [task for task in lost if self.world.recreate or task.group]
            case "foreign" if node is not None:
                self._say(f"foreign {dict(event.amounts or {})} on {node.name}")
                self._count("foreign load beside a claim", any(claim.node == node.name for claim in scene.claims))
                scene.nodes[node.name] = replace(node, foreign=event.amounts or {})
                load = AllocationSpec(
                    f"f-{node.name}", "", PARTITION, _amounts(event.amounts or {}), node_id=node.name, foreign="default"
                )
                self._apply(UpdateAllocations(RM, (load,)))

    def _submit(self, tasks: Iterable[Task]) -> None:
        """Sends asks of one application in one request."""
        tasks = list(tasks)
        self._revive(tasks[0].application)
        if self.scene.states.get(tasks[0].application) == "Rejected":
            return
        for task in tasks:
            self._say(f"ask {task.key} {dict(task.amounts)} p{task.priority} of {task.application}")
            self.scene.waiting[task.key] = task
        self._send(tasks)

    def _end(self, key: str) -> None:
        task = self.scene.task(key)
        self._say(f"{key} ends")
        self._forget(key)
        self._release(task, TerminationType.STOPPED_BY_RM)

    def _release(self, task: Task, why: TerminationType) -> None:
        self._apply(UpdateAllocations(RM, releases=(ReleaseSpec(PARTITION, task.application, task.key, why),)))

    def _forget(self, key: str) -> None:
        for known in (self.scene.running, self.scene.waiting, self.scene.leaving, self.allowed):
            known.pop(key, None)
        self.departures = [(at, other) for at, other in self.departures if other != key]

    def _revive(self, name: str) -> None:
        """Adds the application if the engine does not know it, or no longer does."""
        known = self.scene.applications[name]
        if name in self.live:
            return
        self.live.add(name)
        total = {t: amount * known.members for t, amount in known.size.items()}
        spec = ApplicationSpec(
            name,
            known.queue,
            PARTITION,
            known.user,
            known.groups,
            placeholder_ask=_amounts(total) if total else None,
            gang_style="Hard" if known.minimums.get("g", 0) > 1 else "Soft",
            created_s=known.created,
        )
        self._apply(UpdateApplications(RM, (spec,)))

    def _send(self, tasks: Iterable[Task], node: str = "") -> None:
        specs = tuple(
            AllocationSpec(
                task.key,
                task.application,
                PARTITION,
                _amounts(task.amounts),
                task.priority,
                node,
                task.group,
                task.placeholder,
                task.originator,
                not task.opted_out,
                task.may_preempt,
                task.created,
                task.required_node,
            )
            for task in tasks
        )
        self._apply(UpdateAllocations(RM, specs))

    def _settle(self) -> None:
        """Lets the engine do all that it wants to do in this second, and victims leave that are due; then judges."""
        for _ in range(MOST_SLICES):
            self._read()
            result = self.engine.cycle(self.scene.now * SECOND, 1)
            self._hear(result.effects)
            asked, self.questions = self.questions, []
            for question in asked:
                self._apply(self._answer(question))
            due = [key for at, key in self.departures if at <= self.scene.now]
            for key in due:
                self._leave(key)
            again, self.again = self.again, []
            for task in again:
                self.born += 1
                key = f"{task.key.partition('+')[0]}+{self.born}"
                self._submit([replace(task, key=key, created=self.scene.now, placeholder=False)])
            self._start_members()
            if not result.more and not asked and not due and not again:
                break
        else:
            raise AssertionError(f"{MOST_SLICES} slices in one second")
        self._read()
        self._judge_quiet()

    def _answer(self, question: PredicatesAsked | PreemptionPredicatesAsked) -> Command:
        refused = self._refused(question.key)
        if isinstance(question, PredicatesAsked):
            nodes = tuple((node, "refused") for node in question.node_ids if node in refused)
            return AnswerCallbacks(RM, (PredicatesAnswer(question.question, nodes),))
        agrees = question.node_id not in refused
        answer = PreemptionPredicatesAnswer(
            question.question, success=agrees, last=question.start_index if agrees else -1
        )
        return AnswerCallbacks(RM, preemption_predicates=(answer,))

    def _refused(self, key: str) -> frozenset[str]:
        known = self.scene.waiting.get(key) or (self.scene.running[key][0] if key in self.scene.running else None)
        return known.refused if known is not None else frozenset()

    def _start_members(self) -> None:
        """Sends the real tasks of gangs all of whose placeholders run, in the places of the placeholders."""
        for gang in self.world.applications:
            mine = [task for task, _ in self.scene.running.values() if task.application == gang.name]
            if gang.members and len(mine) == gang.members and all(task.placeholder for task in mine):
                if not any(task.application == gang.name for task in self.scene.waiting.values()):
                    self._submit([replace(t, key=f"{t.key}r", placeholder=False, created=self.scene.now) for t in mine])

    def _leave(self, key: str) -> None:
        task, node = self.scene.running[key]
        self._say(f"{key} has left {node}")
        self._forget(key)
        self.busy = True
        self._release(task, TerminationType.PREEMPTED_BY_SCHEDULER)
        self.again += [task] * (self.world.recreate or bool(task.group))

    def _apply(self, command: Command) -> None:
        self._hear(self.engine.apply(command, self.scene.now * SECOND))

    def _read(self) -> None:
        self.scene.claims = read_claims(self.engine, PARTITION, self.since, self.scene.now)

    def _hear(self, effects: list[Effect]) -> None:
        """Follows *effects* in the books, and judges what they decide by the scene before."""
        scene = self.scene
        before = scene.copied()
        batches: dict[str, dict[str, str]] = {}
        told: dict[str, list[PreemptionDecided]] = {}
        for effect in effects:
            match effect:
                case Allocated(spec, node, _) if spec.key in scene.waiting:
                    batches.setdefault(spec.application_id, {})[spec.key] = node
                case PreemptionDecided() if effect.victims and effect.key:
                    told.setdefault(f"{effect.application_id} {effect.gang_plan or effect.key}", []).append(effect)
                case Released(_, _, key, TerminationType.PREEMPTED_BY_SCHEDULER, _) if key in scene.running:
                    scene.leaving.setdefault(key, "")
                    self.departures.append((scene.now + self.world.leave_after, key))
                    self.busy = True
                case Released(_, _, key, TerminationType.PLACEHOLDER_REPLACED, _) if key in scene.running:
                    self._replace(scene.running[key][0])
                case Released(_, _, key, _, _) | AskReleased(_, _, key, _, _):
                    self._forget(key)
                case ApplicationUpdated(name, state, _, _):
                    self._change_state(name, state)
                case ApplicationRejected(name, _):
                    self._drop(name)
                case PredicatesAsked() | PreemptionPredicatesAsked():
                    self.questions.append(effect)
        for decisions in told.values():
            self._hear_victims(before, decisions)
        for places in batches.values():
            self._hear_placed(before, places)

    def _replace(self, placeholder: Task) -> None:
        """Confirms that the placeholder has left: a real task takes its place, which is no placement."""
        self._forget(placeholder.key)
        entry = ReleaseSpec(PARTITION, placeholder.application, placeholder.key, TerminationType.PLACEHOLDER_REPLACED)
        effects = self.engine.apply(UpdateAllocations(RM, releases=(entry,)), self.scene.now * SECOND)
        for effect in effects:
            if isinstance(effect, Allocated) and effect.spec.key in self.scene.waiting:
                self.scene.running[effect.spec.key] = (self.scene.waiting.pop(effect.spec.key), effect.node_id)
        self._hear([effect for effect in effects if not isinstance(effect, Allocated)])
        self.busy = True

    def _change_state(self, name: str, state: str) -> None:
        if state == "Expired" or name not in self.scene.applications:
            return
        self.scene.states[name] = state
        if state in ("Completed", "Failed"):
            self.live.discard(name)
            for key in [key for key, task in self.scene.waiting.items() if task.application == name]:
                self._forget(key)
            self.scene.states[name] = "New"

    def _drop(self, name: str) -> None:
        """Forgets an application that may not come, such as a gang above the max of its queue."""
        self.scene.states[name] = "Rejected"
        for key in [key for key, task in self.scene.waiting.items() if task.application == name]:
            self._forget(key)

    def _hear_placed(self, before: Scene, places: dict[str, str]) -> None:
        """Judges tasks of one application that were placed by one decision."""
        scene = self.scene
        tasks = tuple(before.waiting[key] for key in places)
        self.busy = True
        self._find(checks.find_unrest(before, self.last))
        self._say(f"placed {places}")
        whole = [Waiter(tasks)] if tasks[0].group else [Waiter((task,)) for task in tasks]
        for placed in whole:
            waiter = before.waiter(placed.name)
            placed = replace(placed, repairs=waiter is not None and waiter.repairs)
            allowed: dict[str, int] = {}
            for key in placed.keys:
                allowed |= self.allowed.pop(key, {})
            self._find(checks.find_limit_passed(before, placed, allowed))
            self._find(checks.find_closed_node(before, placed, places))
            self._find(checks.find_split_gang(before, placed))
            self.doubtful += checks.find_passed_over(before, placed, places)
            self.doubtful += checks.find_equal_passed(before, placed, places)
            self.doubtful += checks.find_queue_passed(before, placed, places)
            self.doubtful += checks.find_not_inherited(before, placed, places)
            self.doubtful += checks.find_spent_limit(before, placed, self.quiet)
            self._count("a firm claim", before.holds(placed, firm=True))
            self._count("a saved claim", before.holds(placed, firm=False))
            before = before.copied()
            for task in placed.tasks:
                before.running[task.key] = (before.waiting.pop(task.key), places[task.key])
        for key, node in places.items():
            if key in scene.waiting:
                scene.running[key] = (scene.waiting.pop(key), node)

    def _hear_victims(self, before: Scene, decisions: list[PreemptionDecided]) -> None:
        """Judges one plan: for whom victims were told to leave."""
        keys = [victim.key for decision in decisions for victim in decision.victims]
        waiter = before.waiter(decisions[0].key)
        for decision in decisions:
            for victim in decision.victims:
                if victim.key in self.scene.leaving:
                    self.scene.leaving[victim.key] = decision.key
        self._say(f"{decisions[0].kind}: {keys} leave for {[decision.key for decision in decisions]}")
        self._find(checks.find_unrest(before, self.last))
        self._count(f"victims of kind {decisions[0].kind}", keys)
        if waiter is None:
            return
        self._find(checks.find_vain_victims(before, waiter, keys))
        for task in waiter.tasks:
            self.allowed[task.key] = {
                f"{path}/{t}": before.sum_running(t, before.inside(path))
                for path in ancestors(before.leaf(task.application))[:-1]
                for t in waiter.types()
            }

    def _judge_quiet(self) -> None:
        """Judges what did not happen: what still stands as at the quiet point before is a finding."""
        scene = self.scene
        self._find(finding for finding in self.doubtful if finding.ask in scene.waiting)
        self.doubtful = []
        lasting: set[tuple[str, str, str]] = set()
        for check in (checks.find_idle_room, checks.find_hopeless_claims, checks.find_idle_line):
            for finding in check(scene):
                lasting.add((finding.kind, finding.ask, finding.holder))
                if (finding.kind, finding.ask, finding.holder) in self.suspected:
                    self._find([finding])
        self.suspected = lasting
        self.quiet = scene.copied()
        self._look_around()

    def _look_around(self) -> None:
        """Counts which of the situations that matter are there now."""
        scene = self.scene
        saved = [claim for claim in scene.claims if not claim.firm]
        self._count("a saved claim", saved)
        self._count("several saved claims", len(saved) > 1)
        self._count("a firm claim", any(claim.firm for claim in scene.claims))
        holders = [holder for claim in saved if (holder := scene.holder(claim)) is not None]
        for waiter in scene.waiters():
            for bound in amounts_refused(scene, waiter, doubt=False):
                self._count(
                    f"a {bound.name.split()[0]} that binds" if bound.of_queue else "a user limit that binds", True
                )
                self._count("a group limit that binds", "group" in bound.name)
            for what in applications_refused(scene, waiter, doubt=True):
                self._count(f"{what.split()[0].strip(':')} that binds", True)
            reasons = {keeps_back(scene, holder, waiter) for holder in holders if waiter.name != holder.name}
            self._count("a loan that is possible", reasons - {""})
            self._count("a gang that waits as a unit", len(waiter.tasks) > 1)
            self._count("a gang that comes again", waiter.tasks[0].group and not waiter.tasks[0].placeholder)
            self._count("a gang below its minimum", waiter.repairs)
            self._count("an ask that the shim refuses somewhere", waiter.tasks[0].refused)
            self._count("a required node", waiter.required)

    def _count(self, what: str, there: object) -> None:
        if there:
            self.seen[what] = 1

    def _find(self, found: Iterable[Finding]) -> None:
        for finding in found:
            if (finding.kind, finding.ask, finding.holder) in self.found:
                continue
            self.found.add((finding.kind, finding.ask, finding.holder))
            finding = replace(finding, world=str(self.world.number), second=finding.second - START_S)
            self.findings.append(finding)
            self._say(f"    !! {finding.kind}: {finding.ask} {finding.holder}: {finding.says}")

    def _say(self, line: str) -> None:
        if self.trace is not None:
            claims = " ".join(f"{c.key}@{c.node}{'!' if c.firm else ''}" for c in self.scene.claims)
            self.trace(f"{self.scene.now - START_S:>4} {line}  [{claims}]")


def _amounts(amounts: Amounts) -> Resources:
    return Resources(dict(amounts))


def play(numbers: Iterable[int]) -> Iterator[Course]:
    """Plays the worlds of these numbers one after the other."""
    from tests.properties.claims.random_worlds import random_world

    for number in numbers:
        yield Course(random_world(number)).play()
