"""Plays a random world on the engine and has the rule of claims judge every decision and every quiet point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from kornel.core.domain import commands, effects
from kornel.core.domain.commands import AllocationSpec, NodeAction, NodeSpec, TerminationType, UpdateAllocations
from kornel.core.domain.effects import PredicatesAsked, PreemptionDecided, PreemptionPredicatesAsked, Released
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import TopologyRequest, Wish
from kornel.core.engine.engine import Engine
from kornel.core.state.options import EngineOptions
from tests.oracles.claims import checks
from tests.oracles.claims.checks import Finding
from tests.oracles.claims.limits import amounts_refused, applications_refused
from tests.oracles.claims.order import keeps_back
from tests.oracles.claims.scene import Scene, Task, Waiter
from tests.oracles.rules.world import Amounts, ancestors
from tests.properties.claims.claims_read import read_claims, read_owners
from tests.properties.claims.random_worlds import START_S, Event, World, configuration

RM: Final = "rm"
PARTITION: Final = "[rm]default"
IN_RACK: Final = TopologyRequest(Wish.REQUIRED, "rack")
SECOND: Final = 10**9
IDLE_STEPS_S: Final = (*[1] * 6, *[4] * 5, 16, 16, 30, 60)
"""How long nothing may happen until a world counts as quiet, step by step."""
FIRST_IDLE: Final = 4
"""The number of such steps after which only the last ones are judged, unless claims change."""
MOST_S: Final = 400
MOST_SLICES: Final = 400
EVERY_QUIET_POINT: Final = (checks.find_idle_room, checks.find_hopeless_claims, checks.find_idle_line)
PASSED_OVER: Final = (
    checks.find_passed_over, checks.find_equal_passed, checks.find_queue_passed, checks.find_not_inherited
)  # fmt: skip


@dataclass
class Course:
    """One world from start to quiet. ``seen``: which of the situations that matter it had."""

    world: World
    trace: Callable[[str], None] | None = None
    findings: list[Finding] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        world = self.world
        self.engine = Engine(EngineOptions(reservation_percent=world.percent))
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
        self.departures: list[tuple[int, str]] = []
        self.again: list[Task] = []
        self.live: set[str] = set()
        self.allowed: dict[str, Counter[str]] = {}
        """For each ask with victims, what the queues of its path used when they were told, by path and type."""
        self.questions: list[PredicatesAsked | PreemptionPredicatesAsked] = []
        self.effects = 0
        """The number of effects so far."""
        self.asked: dict[str, list[list[float]]] = {}
        """By ask of this slice, after how many effects the shim was asked about it, and has answered. Meanwhile it has
        room if the shim agrees, and nobody waits for the answer."""
        self.decided: dict[str, float] = {}
        """By application, after how many effects it was decided where the tasks placed last are to run."""
        self.born = 0
        self.last = START_S + max((event.second for event in world.events), default=0)
        self.busy = False
        self.idle = 0
        """For how many steps nothing has happened."""

    def play(self) -> Course:
        """Plays the world until nothing happens any more, or far too much has."""
        self._set_up()
        events, idle = list(self.world.events), 0
        while idle < len(IDLE_STEPS_S) and self.scene.now < self.last + MOST_S:
            self.busy = False
            for event in [event for event in events if event.second + START_S <= self.scene.now]:
                events.remove(event)
                self._do(event)
            self._settle()
            idle = self.idle = 0 if self.busy or self.departures or events else idle + 1
            self.scene.now += IDLE_STEPS_S[idle - 1] if idle else 1
        return self

    def _set_up(self) -> None:
        self._apply(commands.RegisterManager(RM, configuration(self.world)))
        if self.world.asked:
            self._apply(commands.AttachCallbacks(RM, predicates=True, preemption_predicates=True))
        for node in self.world.nodes:
            at = _attributes(node.rack)
            self._change_node(NodeSpec(node.name, NodeAction.CREATE, PARTITION, at, capacity=_amounts(node.capacity)))
        for task, name in self.world.running:
            if self._revive(task.application):
                self.scene.running[task.key] = (task, name)
                self._send([task], name)

    def _do(self, event: Event) -> None:
        """Does what the world says happens now."""
        scene, self.busy, what = self.scene, True, event.what
        node = scene.nodes.get(event.name)
        if what == "ask":
            self._submit(event.tasks)
        elif what in ("again", "break"):
            mine = [t for t, _ in scene.running.values() if t.application == event.name and not t.placeholder]
            for task in mine[: 1 if what == "break" else len(mine)]:
                self._end(task, again=True)
        elif what in ("end", "follow", "withdraw"):
            keys = scene.waiting if what == "withdraw" else scene.running
            tasks = [task for key in keys if not (task := scene.task(key)).placeholder]
            if what == "end" and event.name:
                tasks = [task for task in tasks if task.application == event.name]
            for task in tasks[event.number % len(tasks) :][:1] if tasks else ():
                self._end(task, again=what == "follow")
        elif node is not None and not (what == "lose" and len(scene.nodes) == 1):
            self._say(f"{what} {node.name}")
            self._count(f"{what} with a claim", any(claim.node == node.name for claim in scene.claims))
            self._change(event, node.name)

    def _change(self, event: Event, name: str) -> None:
        """Drains, opens or loses the node, moves it to another rack, or changes its foreign load."""
        scene, node = self.scene, self.scene.nodes[name]
        if event.what == "lose":
            lost = [task for task, at in scene.running.values() if at == name]
            del scene.nodes[name]
            for task in lost:
                self._forget(task.key, lost=True)
            self._change_node(NodeSpec(name, NodeAction.DECOMISSION, PARTITION))
            self.again += [task for task in lost if self.world.recreate or task.group]
        elif event.what == "move":
            scene.nodes[name] = replace(node, rack=event.rack)
            self._change_node(NodeSpec(name, NodeAction.UPDATE, PARTITION, _attributes(event.rack)))
        elif event.what == "foreign":
            scene.nodes[name] = replace(node, foreign=event.amounts or {})
            load = _amounts(event.amounts or {})
            spec = AllocationSpec(f"f-{name}", "", PARTITION, load, node_id=name, foreign="default")
            self._apply(UpdateAllocations(RM, (spec,)))
        else:
            drains = event.what == "drain"
            scene.nodes[name] = replace(node, drained=drains)
            action = NodeAction.DRAIN_NODE if drains else NodeAction.DRAIN_TO_SCHEDULABLE
            self._change_node(NodeSpec(name, action, PARTITION))

    def _change_node(self, spec: NodeSpec) -> None:
        self._apply(commands.UpdateNodes(RM, (spec,)))

    def _submit(self, tasks: Iterable[Task]) -> None:
        """Sends asks of one application in one request."""
        tasks = list(tasks)
        if self._revive(tasks[0].application):
            for task in tasks:
                self._say(f"ask {task.key} {dict(task.amounts)} p{task.priority} of {task.application}")
                self.scene.waiting[task.key] = task
            self._send(tasks)

    def _end(self, task: Task, *, again: bool) -> None:
        """Ends the task for its owner, who may ask for it *again*. A victim is left alone."""
        if task.key not in self.scene.leaving:
            self._say(f"{task.key} ends")
            self._forget(task.key)
            self._release(task, TerminationType.STOPPED_BY_RM)
            self.again += [task] * again

    def _release(self, task: Task, why: TerminationType) -> list[effects.Effect]:
        entry = commands.ReleaseSpec(PARTITION, task.application, task.key, why)
        return self._apply(UpdateAllocations(RM, releases=(entry,)))

    def _forget(self, key: str, *, lost: bool = False) -> None:
        """Forgets a task that has ended. *lost*: with its node or to preemption."""
        ran, _ = self.scene.running.get(key, (None, ""))
        for known in (self.scene.running, self.scene.waiting, self.scene.leaving, self.allowed):
            known.pop(key, None)
        if ran is not None:
            self.scene.ended[ran.application, ran.group] = self.scene.now
            self.scene.count_short(ran, int(lost))
        self.departures = [(at, other) for at, other in self.departures if other != key]

    def _revive(self, name: str) -> bool:
        """Adds the application if the engine does not know it, or no longer does. Tells whether it was accepted."""
        known = self.scene.applications[name]
        if name not in self.live:
            self.live.add(name)
            total = {t: amount * known.members for t, amount in known.size.items()}
            spec = commands.ApplicationSpec(
                name, known.queue, PARTITION, known.user, known.groups, created_s=known.created
            )
            style = "Hard" if known.minimums.get("g", 0) > 1 else "Soft"
            spec = spec._replace(placeholder_ask=_amounts(total), gang_style=style) if total else spec
            self._apply(commands.UpdateApplications(RM, (spec,)))
        return self.scene.states.get(name) != "Rejected"

    def _send(self, tasks: Iterable[Task], node: str = "") -> None:
        specs = [
            AllocationSpec(t.key, t.application, PARTITION, _amounts(t.amounts), t.priority, node)._replace(
                task_group=t.group,
                placeholder=t.placeholder,
                originator=t.originator,
                allow_preempt_self=not t.opted_out,
                allow_preempt_other=t.may_preempt,
                created_s=t.created,
                required_node=t.required_node,
                topology=IN_RACK if t.in_rack else None,
            )
            for t in tasks
        ]
        self._apply(UpdateAllocations(RM, tuple(specs)))

    def _settle(self) -> None:
        """Lets the engine do all that it wants to do in this second, and victims leave that are due; then judges."""
        for _ in range(MOST_SLICES):
            self.asked = {question.key: [[0, inf]] for question in self.questions}
            self._read()
            result = self.engine.cycle(self.scene.now * SECOND, 1)
            self._hear(result.effects)
            asked, self.questions = self.questions, []
            for question in asked:
                next(iter(span for span in self.asked[question.key] if span[1] == inf), [0, 0])[1] = self.effects
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
            if not (result.more or asked or due or again):
                self._read()
                self._judge_quiet()
                return
        self._find(checks.find_endless(self.scene, MOST_SLICES))

    def _answer(self, question: PredicatesAsked | PreemptionPredicatesAsked) -> commands.Command:
        scene, key, number = self.scene, question.key, question.question
        refused = scene.task(key).refused if key in scene.waiting or key in scene.running else ()
        if isinstance(question, PredicatesAsked):
            nodes = tuple((node, "refused") for node in question.node_ids if node in refused)
            return commands.AnswerCallbacks(RM, (commands.PredicatesAnswer(number, nodes),))
        agrees = question.node_id not in refused
        answer = commands.PreemptionPredicatesAnswer(
            number, success=agrees, last=question.start_index if agrees else -1
        )
        return commands.AnswerCallbacks(RM, preemption_predicates=(answer,))

    def _start_members(self) -> None:
        """Sends the real tasks of gangs all of whose placeholders run, in the places of the placeholders."""
        for gang in self.world.applications:
            mine = [task for task, _ in self.scene.running.values() if task.application == gang.name]
            asks = any(task.application == gang.name for task in self.scene.waiting.values())
            if gang.members and len(mine) == gang.members and all(task.placeholder for task in mine) and not asks:
                self._submit([replace(t, key=f"{t.key}r", placeholder=False, created=self.scene.now) for t in mine])

    def _leave(self, key: str) -> None:
        task, node = self.scene.running[key]
        self._say(f"{key} has left {node}")
        self._forget(key, lost=True)
        self.busy = True
        self._release(task, TerminationType.PREEMPTED_BY_SCHEDULER)
        self.again += [task] * (self.world.recreate or bool(task.group))

    def _apply(self, command: commands.Command) -> list[effects.Effect]:
        heard = self.engine.apply(command, self.scene.now * SECOND)
        self._hear(heard)
        return heard

    def _read(self) -> None:
        """Reads the claims. Victims pass on with a claim, and what a queue above its max may have for them."""
        scene, before = self.scene, self.scene.claims
        scene.claims = read_claims(self.engine, PARTITION)
        owners = read_owners(self.engine, PARTITION)
        scene.leaving |= {key: owner for key, owner in owners.items() if scene.leaving.get(key)}
        for claim in (claim for claim in scene.claims if claim.firm and claim not in before):
            leaf = scene.leaf(scene.task(claim.key).application)
            for former in before:
                allowed = self.allowed.get(former.key)
                passed = former.firm and former.node == claim.node and former.key in scene.waiting
                if passed and allowed and scene.leaf(scene.task(former.key).application) == leaf:
                    self.allowed.setdefault(claim.key, allowed)

    def _hear(self, heard: Iterable[effects.Effect]) -> None:
        """Follows *heard* in the books, and judges what it decides by the scene before."""
        scene = self.scene
        before = scene.copied()
        batches: dict[str, dict[str, str]] = {}
        told: dict[str, list[PreemptionDecided]] = {}
        for effect in heard:
            self.effects += 1
            match effect:
                case effects.Allocated(spec, node, _) if spec.key in scene.waiting:
                    batches.setdefault(spec.application_id, {})[spec.key] = node
                    # It has its room since the shim was asked about it.
                    self.decided[spec.application_id] = self.asked.get(spec.key, [[self.effects]])[-1][0]
                case PreemptionDecided() if effect.victims and effect.key:
                    told.setdefault(f"{effect.application_id} {effect.gang_plan or effect.key}", []).append(effect)
                case Released(_, _, key, TerminationType.PREEMPTED_BY_SCHEDULER, _) if key in scene.running:
                    scene.leaving.setdefault(key, "")
                    self.departures.append((scene.now + self.world.leave_after, key))
                    self.busy = True
                case Released(_, _, key, TerminationType.PLACEHOLDER_REPLACED, _) if key in scene.running:
                    self._replace(scene.running[key][0])
                case Released(_, _, key, _, _) | effects.AskReleased(_, _, key, _, _):
                    self._forget(key)
                case effects.ApplicationUpdated(name, state, _, _) if state != "Expired":
                    self._change_state(name, state)
                case effects.ApplicationRejected(name, _):
                    scene.states[name] = "Rejected"
                case PredicatesAsked() | PreemptionPredicatesAsked():
                    self.questions.append(effect)
                    self.asked.setdefault(effect.key, []).append([self.effects, inf])
        for decisions in told.values():
            self._judge_victims(before, decisions)
        for places in batches.values():
            before = self._judge_placed(before, places)

    def _replace(self, placeholder: Task) -> None:
        """Confirms that the placeholder has left: a real task takes its place, which is no placement."""
        scene, self.busy = self.scene, True
        self._forget(placeholder.key)
        waiting, scene.waiting = scene.waiting, {}
        for effect in self._release(placeholder, TerminationType.PLACEHOLDER_REPLACED):
            if isinstance(effect, effects.Allocated) and effect.spec.key in waiting:
                scene.running[effect.spec.key] = (waiting.pop(effect.spec.key), effect.node_id)
        scene.waiting = waiting

    def _change_state(self, name: str, state: str) -> None:
        self.scene.states[name] = state
        if state in ("Completed", "Failed"):
            self.live.discard(name)
            self.scene.states[name] = "New"
            for key in [key for key, task in self.scene.waiting.items() if task.application == name]:
                self._forget(key)

    def _judge_placed(self, before: Scene, places: dict[str, str]) -> Scene:
        """Judges tasks of one application that were placed by one decision. Returns the scene after it."""
        self.busy = True
        self._say(f"placed {places}")
        self._find(checks.find_unrest(before, self.last))
        tasks = tuple(before.waiting[key] for key in places)
        after = read_claims(self.engine, PARTITION)
        kept = tuple(claim for claim in before.claims if claim in after or claim.key in places)
        ended = [claim for claim in before.claims if claim not in kept]
        keys = {claim.key for claim in after}
        moved = [claim for claim in before.claims if claim not in after and claim.key in keys & before.waiting.keys()]
        for group in [tasks] if tasks[0].group else [(task,) for task in tasks]:
            waiter = before.waiter(group[0].key)
            placed = Waiter(group, repairs=waiter is not None and waiter.repairs)
            most: Counter[str] = Counter()
            for task in group:
                most |= self.allowed.pop(task.key, Counter())
            # A claim that ended in this slice may have ended before the placement.
            self._find(checks.find_limit_passed(replace(before, claims=kept), placed, most))
            theirs = {task.key: places[task.key] for task in group}
            self._find(checks.find_closed_node(before, placed, theirs))
            # If the shim was asked, others may have taken the room for the rest of the group meanwhile.
            at_once = not any(task.key in self.asked for task in group)
            self._find(checks.find_wrong_rack(before, placed, theirs, at_once=at_once))
            self._find(checks.find_kept_room(replace(before, claims=kept), placed, theirs, moved, ended))
            self._find(checks.find_split_gang(before, placed))
            passed = [finding for check in PASSED_OVER for finding in check(before, placed, theirs)]
            self.doubtful += (finding for finding in passed if not self._is_asked(finding.ask, tasks[0]))
            self.doubtful += checks.find_spent_limit(before, placed, self.quiet)
            before = before.copied()
            for task in group:
                before.running[task.key] = (before.waiting.pop(task.key), places[task.key])
                self.scene.running[task.key] = (self.scene.waiting.pop(task.key, task), places[task.key])
                self.scene.count_short(task, -1)
        return before

    def _is_asked(self, key: str, placed: Task) -> bool:
        """Tells whether the shim was being asked about *key* when it was decided where *placed* is to run."""
        at = self.decided[placed.application]
        return any(begin <= at <= end for begin, end in self.asked.get(key, []))

    def _judge_victims(self, before: Scene, decisions: list[PreemptionDecided]) -> None:
        """Judges one plan: for whom victims were told to leave."""
        keys = [victim.key for decision in decisions for victim in decision.victims]
        leaving = {victim.key: decision.key for decision in decisions for victim in decision.victims}
        self.scene.leaving |= {key: ask for key, ask in leaving.items() if key in self.scene.leaving}
        self._say(f"{decisions[0].kind}: {keys} leave for {[decision.key for decision in decisions]}")
        self._count(f"victims of kind {decisions[0].kind}", keys)
        self._find(checks.find_unrest(before, self.last))
        waiter = before.waiter(decisions[0].key)
        if waiter is not None:
            # Of a unit that is repaired, the others keep their places, and what they were allowed (B.11).
            kept = {claim.key for claim in before.holds(waiter, firm=True)}
            if len(waiter.tasks) > 1 and kept < waiter.keys:
                waiter = replace(waiter, tasks=tuple(task for task in waiter.tasks if task.key not in kept))
            self._find(checks.find_vain_victims(before, waiter, keys))
            self._find(checks.find_astray_victims(before, waiter, decisions[0].node_id))
            paths = ancestors(before.leaf(waiter.application))[:-1]
            used = Counter({f"{p}/{t}": before.sum_running(t, before.inside(p)) for p in paths for t in waiter.types()})
            self.allowed |= dict.fromkeys(waiter.keys, used)

    def _judge_quiet(self) -> None:
        """Judges what did not happen: what still stands as at the quiet point before is a finding."""
        scene = self.scene
        self._find(finding for finding in self.doubtful if finding.ask in scene.waiting)
        self.doubtful = []
        if FIRST_IDLE < self.idle < len(IDLE_STEPS_S) - 2 and not self.busy and scene.claims == self.quiet.claims:
            return
        found = [finding for check in EVERY_QUIET_POINT for finding in check(scene)]
        self._find(finding for finding in found if finding.what in self.suspected)
        self.suspected = {finding.what for finding in found}
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
                self._count(f"{' '.join(bound.name.split()[:3])} binds".replace(bound.path, "a queue"), there=True)
            for what in applications_refused(scene, waiter, doubt=True):
                self._count(f"{what.split()[0].strip(':')} binds", there=True)
            reasons = {keeps_back(scene, holder, waiter) for holder in holders if waiter.name != holder.name}
            self._count("a loan is possible", reasons - {""})
            self._count("a gang waits as a unit", len(waiter.tasks) > 1)
            self._count("a gang comes again", waiter.tasks[0].group and not waiter.tasks[0].placeholder)
            self._count("a gang has lost members", waiter.repairs)
            self._count("the shim refuses an ask", waiter.tasks[0].refused)
            self._count("a required node", waiter.required)
            self._count("a rack is required", waiter.in_rack)
            self._count("a unit requires a rack", waiter.in_rack and len(waiter.tasks) > 1)
            self._count("a saved claim in a rack", waiter.in_rack and scene.holds(waiter, firm=False))

    def _count(self, what: str, there: object) -> None:
        if there:
            self.seen[what] = 1

    def _find(self, found: Iterable[Finding]) -> None:
        for finding in found:
            if finding.what not in self.found:
                self.found.add(finding.what)
                self.findings.append(replace(finding, world=str(self.world.number), second=finding.second - START_S))
                self._say(f"    !! {finding.kind}: {finding.ask} {finding.holder}: {finding.says}")

    def _say(self, line: str) -> None:
        if self.trace is not None:
            claims = " ".join(f"{claim.key}@{claim.node}{'!' * claim.firm}" for claim in self.scene.claims)
            self.trace(f"{self.scene.now - START_S:>4} {line}  [{claims}]")


def _attributes(rack: str) -> tuple[tuple[str, str], ...]:
    return (("rack", rack),)


def _amounts(amounts: Amounts) -> Resources:
    return Resources(dict(amounts))
