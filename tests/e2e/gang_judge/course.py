"""The course of one world: a shim that does something at random, hears what comes of it, and has it judged."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import httpx

from kornel.core.service.machine.clock import SECOND_NS
from kornel.shim_client import (
    Allocated,
    ApplicationUpdated,
    Ask,
    AskRejected,
    CallbackHandler,
    PredicatesQuestion,
    PreemptionQuestion,
    Released,
    ShimClient,
    devices_attribute,
    devices_of,
)
from kornel.shim_client.asks import Device
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import explain_pb2
from tests.e2e.gang_judge.exact_places import count_places, find_places
from tests.e2e.gang_judge.exact_plans import rooms_of, within_maxima
from tests.e2e.gang_judge.message_judge import (
    Decision,
    find_best,
    judge_placements,
    judge_victims,
    judge_wholeness,
)
from tests.e2e.gang_judge.random_worlds import GangDraft, World, configure
from tests.e2e.gang_judge.shim_books import Application, Books, Node, Task, add_up, path_of
from tests.e2e.harness import Core, create, resource, running_core
from tests.e2e.rest.shim import TRUSTING_NOBODY
from tests.patience import PATIENCE_S

ASKER = re.compile(
    r"for ask (?P<ask>[^\s,]+)(?P<unit>, one of a gang,)? of application (?P<application>\S+)( \(plan (?P<plan>\d+)\))?"
)
COST = re.compile(r"(\d+) victims? w")
PLACES = re.compile(r"(\d+) of (\d+) places")
REST_S = 20
PATIENCE = 30
"""How often the books are compared before a difference counts."""
MOST_TASKS = 14


class Disagreement(AssertionError):
    """The core did something else than the rules say, as the judge reads them."""


@dataclass
class Preemption:
    """Victims that were asked to leave for somebody who has not been placed yet."""

    ask: str
    application: str
    is_unit: bool
    victims: set[str]
    changes: int
    """How many changes of the world there had been."""
    nodes: set[str]
    """Where the victims ran."""
    plan: int = 0
    """The number of the plan of a unit."""


@dataclass
class Course(CallbackHandler):
    """A world, its core, and what happened. *story* tells it for people."""

    world: World
    core: Core
    client: ShimClient
    http: httpx.AsyncClient
    books: Books = field(default_factory=Books)
    story: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    held: dict[str, list[Task]] = field(default_factory=dict)
    preemptions: list[Preemption] = field(default_factory=list)
    checks: dict[str, int] = field(default_factory=dict)
    changes: int = 0
    number: int = 0
    messages: int = 0
    reactions: list[Released] = field(default_factory=list)
    doubts: list[tuple[Books, Decision]] = field(default_factory=list)
    """Decisions that would be wrong if nothing had been held since it was read, with the books before them."""
    saved: list[Mapping[str, Any]] = field(default_factory=list)
    """The claims below the maxima of queues, as read last."""
    expected_places: dict[str, list[str]] = field(default_factory=dict)
    plans: dict[int, tuple[int, set[str]]] = field(default_factory=dict)
    """By number, how many changes of the world there had been when a plan began, and its victims."""
    called_off: set[int] = field(default_factory=set)

    # What the core asks and says

    async def predicates(self, question: PredicatesQuestion) -> Mapping[str, str]:
        return {name: "refused" for name in question.node_ids if (question.key, name) in self.books.refused}

    async def preemption_predicates(self, question: PreemptionQuestion) -> int | None:
        return None if (question.key, question.node_id) in self.books.refused else question.start_index

    async def listen(self) -> None:
        async for batch in self.client.update_batches():
            self.messages += 1
            self.hear(batch)

    def hear(self, batch: Sequence[object]) -> None:
        """Judges one message and enters it in the books."""
        if told := [line for update in batch if (line := tell(update))]:
            self.story.append(f"   core: {' '.join(told)}")
        decisions: dict[tuple[str, str, bool], Decision] = {}
        placed: list[Task] = []
        for update in batch:
            match update:
                case Released(key=key, termination=si.PREEMPTED_BY_SCHEDULER, message=message):
                    found = ASKER.search(message)
                    if found is None:
                        self.faults.append(f"a victim of nobody: {message}")
                        continue
                    name = found["application"]
                    decision = Decision(name, found["ask"], bool(found["unit"]), int(found["plan"] or 0))
                    decisions.setdefault((name, "" if found["unit"] else found["ask"], decision.is_unit), decision)
                    decisions[name, "" if found["unit"] else found["ask"], decision.is_unit].victims.append(key)
                case Allocated():
                    placed += self.note_placement(update)
                case Released():
                    self.note_release(update)
                case ApplicationUpdated(application_id=name, state=state):
                    self.note_state(name, state)
                case AskRejected(key=key, reason=reason):
                    self.faults.append(f"{key} was refused: {reason}")
        self.faults += judge_placements(self.books, placed, self.held)
        self.preemptions = [each for each in self.preemptions if not any(self.took_over(each, task) for task in placed)]
        touched = {task.ask.application_id for task in placed if task.ask.placeholder}
        for number, decision in enumerate(decisions.values()):
            alone = not self.preemptions and not self.victims() and not number and not placed
            held = {name: [task for task in tasks if not task.node] for name, tasks in self.held.items()}
            found = judge_victims(self.books, decision, None)
            self.faults += found
            if alone and not found and judge_victims(self.books, decision, held):
                self.doubts.append((deepcopy(self.books), decision))
            self.count("units that preempted" if decision.is_unit else "asks that preempted")
            if alone and decision.is_unit:
                self.count("plans compared with the exact ones")
            if any((task := self.books.find(key)) and task.ask.task_group for key in decision.victims):
                self.count("members of gangs that were victims")
            for key in decision.victims:
                task = self.books.find(key)
                if task is not None:
                    task.victim_of = decision.application
            if decision.plan:
                self.plans.setdefault(decision.plan, (self.changes, set()))[1].update(decision.victims)
            victims = set(decision.victims)
            nodes = {task.node for task in map(self.books.find, victims) if task is not None}
            self.preemptions.append(
                Preemption(decision.ask, decision.application, decision.is_unit, victims, self.changes, nodes)
            )
        for name in touched:
            self.faults += judge_wholeness(self.books.applications[name])

    def took_over(self, preemption: Preemption, placed: Task) -> bool:
        """Tells whether the task that was *placed* has the room of *preemption*, because it is more important than the
        ask of the same leaf for which victims left."""
        waiting = self.books.find(preemption.ask)
        if waiting is None or preemption.is_unit or placed.node not in preemption.nodes:
            return False
        leaves = {self.books.applications[task.ask.application_id].queue for task in (waiting, placed)}
        return len(leaves) == 1 and placed.ask.priority > waiting.ask.priority

    def note_placement(self, update: Allocated) -> list[Task]:
        task = self.books.find(update.key)
        if task is None:
            self.faults.append(f"{update.key} is placed, and nobody asks for it")
            return []
        task.node, task.devices = update.node_id, devices_of(update.message)
        if task.ask.task_group and not task.ask.placeholder:
            waits = self.expected_places.get(f"{update.application_id}/{task.ask.task_group}", [])
            if task.node in waits:
                waits.remove(task.node)
                return []
        return [task]

    def note_release(self, update: Released) -> None:
        task = self.books.find(update.key)
        match update.termination:
            case si.PLACEHOLDER_REPLACED | si.TIMEOUT:
                if task is not None:
                    task.ending = True
                self.changes += update.termination == si.TIMEOUT
                self.reactions.append(update)
            case si.STOPPED_BY_RM if task is not None:
                self.drop(task)
            case _:
                pass

    def drop(self, task: Task) -> None:
        """Enters that *task* has ended, other than by being replaced."""
        application = self.books.applications[task.ask.application_id]
        del application.tasks[task.key]
        if task.ask.placeholder:
            application.lost[task.ask.task_group] = application.lost.get(task.ask.task_group, 0) + 1
        application.disturbed = bool(application.staying()) and (application.disturbed or not task.victim_of)

    def note_state(self, name: str, state: str) -> None:
        application = self.books.applications.get(name)
        if application is not None:
            application.state = state
            if state in ("Completed", "Failed", "Rejected"):
                if application.running():
                    self.faults.append(f"{name} is {state}, and runs")
                del self.books.applications[name]

    # What the shim does

    async def begin(self) -> None:
        world = self.world
        self.tell(f"world {world.seed}")
        self.books.levels = world.levels
        self.books.queues = dict(world.queues)
        if world.has_predicates:
            await self.client.attach_callbacks(self)
        for name, queue in world.queues.items():
            self.tell(f"queue {name}: guaranteed {queue.guaranteed} max {queue.maximum} fence {queue.fence}")
        self.tell(f"topology {world.levels}, delay {world.delay_s}, predicates {world.has_predicates}")
        for node in list(world.nodes.values()):
            await self.add_node(node)
        await self.fill()

    async def fill(self) -> None:
        """Fills the cluster with single tasks and a gang or two."""
        dice = self.world.dice
        for _ in range(dice.randint(3, 5)):
            if dice.random() < 0.3:
                await self.submit_gang(elsewhere=True)
            await self.submit_tasks()

    async def add_node(self, node: Node) -> None:
        self.tell(f"node {node.name}: {dict(node.capacity)} in {node.domains}, devices {dict(node.devices)}")
        info = create(node.name, None, **node.capacity)
        info.attributes.update(zip(self.world.all_levels, node.domains, strict=True))
        if node.devices:
            devices = [Device(name, link=link) for name, link in node.devices.items()]
            info.attributes.update(devices_attribute(devices))
        self.books.nodes[node.name] = node
        await self.client.create_nodes([info])
        await self.settle()

    async def add_application(self, application: Application, **fields: Any) -> None:
        self.books.applications[application.name] = application
        user = si.UserGroupInformation(user="ann", groups=["staff"])
        tags = {"kornel.survivesLosses": "true"} if application.survives else {}
        await self.client.add_applications(
            [
                si.AddApplicationRequest(
                    applicationID=application.name, queueName=application.queue, ugi=user, tags=tags, **fields
                )
            ]
        )

    def next_name(self, letter: str) -> str:
        self.number += 1
        return f"{letter}{self.number}"

    def room_for_tasks(self) -> int:
        return MOST_TASKS - sum(1 for _ in self.books.tasks())

    async def submit_tasks(self) -> None:
        dice, room = self.world.dice, self.room_for_tasks()
        count = min(dice.randint(2, 5), room)
        if count <= 0:
            return
        application = Application(self.next_name("s"), self.world.draw_leaf(gang=False))
        size, priority = self.world.draw_size(), dice.choice([0, 0, 0, 1, -1])
        opted_out, preempts = dice.random() < 0.2, dice.random() < 0.3
        devices = self.world.draw_devices()
        self.tell(
            f"tasks {application.name} in {application.queue}: {count} x {size} priority {priority} "
            f"opted out {opted_out} preempts {preempts} {devices or ''}"
        )
        await self.add_application(application)
        await self.ask(
            application,
            [
                Ask(f"{application.name}-{at}", application.name, size, priority=priority,
                    allow_preempt_self=not opted_out, allow_preempt_other=preempts, devices=devices)
                for at in range(count)
            ],
        )  # fmt: skip

    async def ask(self, application: Application, asks: Sequence[Ask]) -> None:
        for ask in asks:
            application.tasks[ask.key] = Task(ask)
            if ask.placeholder:
                application.asked[ask.task_group] = application.asked.get(ask.task_group, 0) + 1
        await self.client.submit_asks(asks)
        await self.settle()

    async def submit_gang(self, *, elsewhere: bool = False) -> None:
        """Submits a gang, in a queue that is owed much unless it is to be *elsewhere*."""
        draft = self.world.draw_gang(elsewhere=elsewhere)
        count = sum(number for number, _ in draft.groups.values())
        if sum(bool(each.gang) for each in self.books.applications.values()) >= 3 or count > self.room_for_tasks() + 4:
            return
        application = Application(
            self.next_name("g"), draft.queue,
            add_up({kind: n * amount for kind, amount in size.items()} for n, size in draft.groups.values()),
            draft.hard, draft.stated, draft.survives,
        )  # fmt: skip
        if any(
            amount > self.books.queues[queue].maximum.get(kind, amount)
            for queue in path_of(draft.queue)
            for kind, amount in application.gang.items()
        ):
            return
        self.tell(f"gang {application.name} {draft}")
        forecast = await self.suppose(draft)
        fields: dict[str, Any] = {
            "placeholderAsk": resource(**application.gang),
            "gangSchedulingStyle": "Hard" if draft.hard else "",
        }
        if draft.timeout_s:
            fields["executionTimeoutMilliSeconds"] = draft.timeout_s * 1_000
        await self.add_application(application, **fields)
        asks = [
            Ask(
                f"{application.name}-{group}{at}", application.name, dict(size), priority=draft.priority,
                task_group=group, placeholder=True, allow_preempt_other=True,
                allow_preempt_self=not draft.opted_out, topology=draft.topology, devices=draft.devices,
                tags={} if draft.stated is None else {"kornel.gangMinimum": str(draft.stated)},
            )
            for group, (number, size) in draft.groups.items()
            for at in range(number)
        ]  # fmt: skip
        for ask in asks:
            for name in draft.refused.get(ask.key.partition("-")[2], ()):
                self.books.refused.add((ask.key, name))
        before = set(self.victims())
        if len(asks) > 1 and self.world.dice.random() < 0.3:
            half = len(asks) // 2
            await self.ask(application, asks[:half])
            if application.is_unit and application.running():
                self.faults.append(f"{application.name} is placed before all of it was asked for")
            await self.ask(application, asks[half:])
        else:
            await self.ask(application, asks)
        if forecast is not None:
            self.compare_forecast(application, forecast, set(self.victims()) - before)

    async def suppose(self, draft: GangDraft) -> explain_pb2.WhatIfResponse | None:
        """Asks what would come of the gang, where the question can say all of it."""
        if not draft.hard or draft.stated is not None or len(draft.groups) > 1 or draft.refused or self.world.delay_s:
            return None
        ((count, size),) = draft.groups.values()
        tags = (draft.topology.encode_tags() if draft.topology else {}) | (
            draft.devices.encode_tags() if draft.devices else {}
        )
        supposed = explain_pb2.SupposedAsk(
            queue=draft.queue, resources=size, count=count, priority=draft.priority, user="ann", groups=["staff"],
            gang=True, tags=tags,
        )  # fmt: skip
        return await self.client.what_if(explain_pb2.WhatIfRequest(ask=supposed))

    def compare_forecast(
        self, application: Application, forecast: explain_pb2.WhatIfResponse, victims: set[str]
    ) -> None:
        """Judges whether the forecast came true at once."""
        for_it = {key for key in victims if (task := self.books.find(key)) and task.victim_of == application.name}
        now_ns = self.core.clock.now_ns()
        due = [each for each in forecast.preemptions if each.not_before_ns <= now_ns]
        expected = {victim.key for each in due for victim in each.victims}
        nodes = sorted(task.node for task in application.running())
        self.count(
            "forecasts of placements" if forecast.placed
            else "forecasts of preemption" if forecast.preemptions
            else "forecasts of waiting"
        )  # fmt: skip
        if expected != for_it:
            self.faults.append(f"what-if foresaw victims {sorted(expected)}, and {sorted(for_it)} left: {forecast}")
        planned = sorted(each.node_id for each in forecast.preemptions)
        # A gang preempts beside what others hold by age, but comes before them, so it may run at once.
        if sorted(each.node_id for each in forecast.placed) != nodes and nodes != planned:
            self.faults.append(f"what-if foresaw places {forecast.placed}, and they are {nodes}: {forecast}")

    def victims(self) -> list[str]:
        return [task.key for task in self.books.tasks() if task.victim_of]

    async def end_victims(self, share: float) -> None:
        leaving = [key for key in self.victims() if self.world.dice.random() < share]
        self.tell(f"ended: {leaving}")
        releases = []
        for key in leaving:
            task = self.books.find(key)
            if task is not None:
                releases.append(self.client.release_of(task.ask.application_id, key, si.PREEMPTED_BY_SCHEDULER))
                self.drop(task)
        await self.client.release(releases)
        await self.settle()

    async def fail_start(self) -> None:
        able = [
            task
            for application in self.books.applications.values()
            for task in application.staying()
            if application.state in ("Accepted", "Running")
        ]
        if not able:
            return
        task = self.world.dice.choice(able)
        self.tell(f"{task.key} cannot be started on {task.node}")
        task.avoided.add(task.node)
        task.node, task.devices = "", ()
        application = self.books.applications[task.ask.application_id]
        application.disturbed = bool(application.staying())
        self.changes += 1
        await self.client.release([self.client.release_of(application.name, task.key, si.SCHEDULING_FAILED_ON_RM)])
        await self.settle()

    async def end_task(self) -> None:
        able = [task for task in self.books.tasks() if task.stays]
        if not able:
            return
        task = self.world.dice.choice(able)
        self.tell(f"{task.key} ends by itself")
        self.changes += 1
        await self.client.release([self.client.release_of(task.ask.application_id, task.key, si.STOPPED_BY_RM)])
        await self.settle()

    async def remove_application(self) -> None:
        if not self.books.applications:
            return
        name = self.world.dice.choice(sorted(self.books.applications))
        self.tell(f"application {name} is removed")
        self.changes += 1
        del self.books.applications[name]
        await self.client.send_applications([si.RemoveApplicationRequest(applicationID=name, partitionName="default")])
        await self.settle()

    async def lose_node(self) -> None:
        if len(self.books.nodes) < 2:
            return
        name = self.world.dice.choice(sorted(self.books.nodes))
        self.tell(f"node {name} is lost")
        self.changes += 1
        del self.books.nodes[name]
        await self.client.send_nodes([si.NodeInfo(nodeID=name, action=si.NodeInfo.DECOMISSION)])
        await self.settle()

    async def bring_node(self) -> None:
        if len(self.books.nodes) < 5:
            self.number += 1
            self.changes += 1
            await self.add_node(self.world.draw_node(f"m{self.number}"))

    async def turn_node(self) -> None:
        """Closes a node, or opens a closed one."""
        node = self.books.nodes[self.world.dice.choice(sorted(self.books.nodes))]
        node.is_open = not node.is_open
        self.changes += 1
        self.tell(f"node {node.name} is {'open' if node.is_open else 'closed'}")
        action = si.NodeInfo.DRAIN_TO_SCHEDULABLE if node.is_open else si.NodeInfo.DRAIN_NODE
        await self.client.send_nodes([si.NodeInfo(nodeID=node.name, action=action)])
        await self.settle()

    async def change_limits(self) -> None:
        world = self.world
        name = world.dice.choice(sorted(self.books.queues))
        world.redraw_queue(self.books.queues, name)
        self.changes += 1
        queue = self.books.queues[name]
        self.tell(f"queue {name}: guaranteed {queue.guaranteed} max {queue.maximum} fence {queue.fence}")
        await self.client.update_configuration(configure(world.levels, self.books.queues, world.delay_s))
        await self.settle()

    async def change_levels(self) -> None:
        """Takes the innermost level out of the topology, or puts it back."""
        if not self.world.all_levels:
            return
        levels = (
            self.world.all_levels if len(self.books.levels) < len(self.world.all_levels) else self.books.levels[:-1]
        )
        self.books.levels = self.world.levels = levels
        self.changes += 1
        self.tell(f"topology {levels}")
        await self.client.update_configuration(configure(levels, self.books.queues, self.world.delay_s))
        await self.settle()

    async def change_node(self) -> None:
        """Moves a node to another rack, or gives it another size."""
        name = self.world.dice.choice(sorted(self.books.nodes))
        before, node = self.books.nodes[name], self.world.draw_node(name)
        node.is_open, node.devices = before.is_open, before.devices
        if self.world.dice.random() < 0.5:
            node.capacity = before.capacity
        else:
            node.domains = before.domains
        self.changes += 1
        self.tell(f"node {name} is now {dict(node.capacity)} in {node.domains}")
        self.books.nodes[name] = node
        for application in self.books.applications.values():
            application.disturbed = application.disturbed or any(task.node == name for task in application.running())
        info = create(name, None, **node.capacity)
        info.action = si.NodeInfo.UPDATE
        info.attributes.update(zip(self.world.all_levels, node.domains, strict=True))
        await self.client.send_nodes([info])
        await self.settle()

    async def start_tasks(self) -> None:
        """Asks for the real tasks of a gang whose placeholders run."""
        able = [
            each
            for each in self.books.applications.values()
            if each.gang and any(task.ask.placeholder and task.stays for task in each.tasks.values())
            and not any(task.victim_of for task in each.tasks.values())
        ]  # fmt: skip
        if not able:
            return
        application = self.world.dice.choice(able)
        placeholders = [task for task in application.staying() if task.ask.placeholder]
        self.tell(f"{application.name} starts its tasks")
        for task in placeholders:
            self.expected_places.setdefault(f"{application.name}/{task.ask.task_group}", []).append(task.node)
        await self.ask(
            application,
            [
                Ask(f"t-{task.key}", application.name, task.size, priority=task.ask.priority,
                    allow_preempt_self=task.ask.allow_preempt_self, allow_preempt_other=True,
                    task_group=task.ask.task_group, devices=task.ask.devices)
                for task in placeholders
            ],
        )  # fmt: skip

    async def confirm_releases(self) -> None:
        """Ends what the core asked to end in another way than by preemption."""
        while self.reactions:
            update = self.reactions.pop(0)
            task = self.books.find(update.key)
            if task is not None:
                if update.termination == si.PLACEHOLDER_REPLACED:
                    del self.books.applications[update.application_id].tasks[task.key]
                else:
                    self.drop(task)
            await self.client.release([self.client.release_of(update.application_id, update.key, update.termination)])
            await self.become_quiet()

    # Quiet points

    async def settle(self) -> None:
        """Returns when nothing more happens while the clock stands still, and judges."""
        await self.become_quiet()
        await self.confirm_releases()
        for _ in range(PATIENCE):
            if not (wrong := await self.judge_books()):
                break
            # What was sent, or what comes back, may still be on its way on a busy machine.
            await self.become_quiet()
            await self.confirm_releases()
        self.faults += wrong
        self.judge_doubts()
        self.judge_preemptions()
        if self.faults:
            raise Disagreement("\n".join([*self.story, "", *self.faults]))

    async def become_quiet(self) -> None:
        heard = -1
        while heard != self.messages:
            heard = self.messages
            await self.client.flush()
            await self.core.settle()

    async def rest(self) -> None:
        """Lets time pass, and judges who waits."""
        self.tell(f"{REST_S} s pass")
        # A node where a task could not be started is left out for a second or two.
        for task in self.books.tasks():
            task.avoided.clear()
        for _ in range(5):
            self.core.clock.advance(REST_S // 5 * SECOND_NS)
            await self.become_quiet()
            await self.confirm_releases()
        self.core.clock.advance(SECOND_NS)
        await self.settle()
        await self.judge_decisions()
        await self.judge_waiting()
        if self.faults:
            raise Disagreement("\n".join([*self.story, "", *self.faults]))

    def tell(self, line: str) -> None:
        self.story.append(line)

    def count(self, what: str) -> None:
        self.checks[what] = self.checks.get(what, 0) + 1

    async def get(self, path: str) -> Any:
        answer = await self.http.get(f"/ws/v1/partition/default/{path}")
        if answer.status_code == 404:
            return None
        answer.raise_for_status()
        return answer.json()

    async def judge_books(self) -> list[str]:
        """Returns how what the core says over HTTP differs from a recount; reads what is held."""
        books = self.books
        faults: list[str] = []
        nodes = {node["nodeID"]: node for node in await self.get("nodes")}
        self.held = {}
        if nodes.keys() != books.nodes.keys():
            faults.append(f"nodes are {sorted(nodes)}, not {sorted(books.nodes)}")
            return faults
        for name, node in nodes.items():
            if node["schedulable"] != books.nodes[name].is_open:
                faults.append(f"{name} is schedulable: {node['schedulable']}")
            faults += compare(
                f"node {name}", node.get("allocated", {}), add_up(task.size for task in books.on_node(name))
            )
            here = sorted(entry["allocationKey"] for entry in node.get("allocations", ()))
            if here != sorted(task.key for task in books.on_node(name)):
                faults.append(f"on {name} run {here}, not {sorted(task.key for task in books.on_node(name))}")
            for key in node.get("reservations", ()):
                task = books.find(key)
                if task is None or task.node:
                    faults.append(f"{name} holds room for {key}, which does not wait")
                else:
                    self.held.setdefault(name, []).append(task)
        entry = await self.get("queues")
        entries = [entry]
        while entries:
            entry = entries.pop()
            entries += entry.get("children", ())
            here_tasks = list(books.below(entry["queuename"]))
            for field_name, tasks in (
                ("allocatedResource", [task for task in here_tasks if task.node]),
                ("preemptingResource", [task for task in here_tasks if task.victim_of]),
                ("pendingResource", [task for task in here_tasks if not task.node]),
            ):
                faults += compare(
                    f"{field_name} of {entry['queuename']}",
                    entry.get(field_name, {}),
                    add_up(task.size for task in tasks),
                )
        for user in await self.get("usage/users"):
            used = add_up(task.size for task in books.tasks() if task.node)
            faults += compare("usage of ann", user["queues"].get("resourceUsage", {}), used)
        if books.levels:
            for domain in await self.get("domains"):
                inside = [
                    name
                    for name in books.nodes
                    if books.nodes[name].is_open and books.domain(name, domain["level"]) == tuple(domain["path"])
                ]
                faults += compare(f"domain {domain['path']}", domain.get("free", {}), add_up(map(books.free, inside)))
                held = add_up(self.hold(name) for name in inside)
                if not self.preemptions and not self.victims():
                    faults += compare(f"held in {domain['path']}", domain.get("held", {}), held)
        return faults

    def hold(self, name: str) -> dict[str, int]:
        """Returns how much of what is free on the node *name* others hold."""
        free, held = self.books.free(name), add_up(task.size for task in self.held.get(name, ()))
        return {kind: min(free.get(kind, 0), amount) for kind, amount in held.items()}

    def judge_doubts(self) -> None:
        """Judges decisions once more by what is held now: somebody may have come to hold room by age just before."""
        for books, decision in self.doubts:
            held: dict[str, list[Task]] = {}
            for name, tasks in self.held.items():
                waited = [books.find(task.key) for task in tasks if task.ask.application_id != decision.application]
                held[name] = [task for task in waited if task and not task.node and not lends(books, task, decision)]
            # One gang at a time saves places by age, and another one may have done so a moment before. Who has a
            # guarantee may be owed nothing of it, and lends then.
            alone = {name: [task for task in tasks if not task.ask.task_group] for name, tasks in held.items()}
            faults = [judge_victims(books, decision, each) for each in (held, alone, {})]
            self.faults += faults[0] if all(faults) else []
        self.doubts.clear()

    def judge_preemptions(self) -> None:
        """Judges whether those for whom victims left are placed when the last one is gone."""
        for each in list(self.preemptions):
            application = self.books.applications.get(each.application)
            waiting = None if application is None else application.tasks.get(each.ask)
            if waiting is None or waiting.node:
                self.preemptions.remove(each)
                self.count("preemptions that served")
                continue
            # A task that could not be started on a node is kept off it for a while.
            if waiting.avoided or any(self.books.find(key) for key in each.victims):
                continue
            # What leaves first makes room for the first of those that wait for room.
            if not each.is_unit and self.victims():
                continue
            if each.changes == self.changes:
                self.faults.append(f"all victims for {each.ask} have left, and it waits: {sorted(each.victims)}")
            self.preemptions.remove(each)
            self.count("preemptions that the world undid")

    async def judge_decisions(self) -> None:
        """Judges whether plans were called off only because the world changed, and what is said about that."""
        for each in (await self.get("preemptions"))["preemptions"]:
            plan = each.get("gangPlan", 0)
            if each["outcome"] != "UNIT_CALLED_OFF" or plan in self.called_off:
                continue
            self.called_off.add(plan)
            self.count("plans called off")
            changes, victims = self.plans.get(plan, (self.changes, set()))
            said, cost = each.get("detail", ""), COST.search(each.get("detail", ""))
            if changes == self.changes:
                self.faults.append(f"plan {plan} was called off, and nothing had changed: {said}")
            elif cost is None or int(cost[1]) != len(victims):
                self.faults.append(f"plan {plan} cost {sorted(victims)}, and it is said: {said}")

    async def judge_waiting(self) -> None:
        """Judges, after a rest, whether somebody waits who should not."""
        if self.victims():
            return
        triggered = {each.ask for each in self.preemptions}
        keys = {task.key for tasks in self.held.values() for task in tasks}
        if self.preemptions or keys & triggered:
            return
        self.count("rests judged")
        self.saved = [each for each in await self.get("claims") if each["placeKind"] == "queue"]
        for application in list(self.books.applications.values()):
            waiting = application.waiting()
            if not waiting or application.state in ("Failing", "Resuming"):
                continue
            if application.is_unit and not any(
                task.node and task.ask.task_group for task in application.tasks.values()
            ):
                if application.is_complete():
                    await self.judge_waiting_unit(application)
                continue
            self.judge_waiting_tasks(application)

    def held_for_others(self, tasks: Sequence[Task]) -> dict[str, list[Task]]:
        own = {task.key for task in tasks}
        return {name: [task for task in held if task.key not in own] for name, held in self.held.items()}

    def saved_by_others(self, tasks: Sequence[Task]) -> dict[str, dict[str, int]]:
        """Returns what is saved below the max of each queue by others than *tasks*, who are not less important."""
        saved: dict[str, dict[str, int]] = {}
        for claim in self.saved:
            saver = self.books.find(claim["allocationKey"])
            if saver is None:
                self.faults.append(f"{claim['allocationKey']} saves below a max, and nobody waits with that key")
            elif not any(
                saver.ask.application_id == each.ask.application_id or saver.ask.priority < each.ask.priority
                for each in tasks
            ):
                saved[claim["place"]] = add_up([saved.get(claim["place"], {}), claim["held"]])
        return saved

    async def judge_waiting_unit(self, application: Application) -> None:
        books, members = self.books, application.list_unit()
        held = self.held_for_others(members)
        total = add_up(task.size for task in members)
        admitted = within_maxima(books, application.queue, total, self.saved_by_others(members))
        places = find_places(books, members, rooms_of(books, held))
        self.count("waiting gangs judged")
        if admitted and places is not None:
            self.faults.append(f"{application.name} waits, and would fit: {places}")
            return
        report = (await self.client.explain(members[0].key)).ask
        explained = " | ".join(f"{each.kind} {each.name}: {each.detail}" for each in report.blockers)
        preempts = all(task.ask.allow_preempt_other for task in members)
        plan = find_best(books, application, members, held) if preempts else None
        if plan is not None:
            self.faults.append(
                f"{application.name} waits, and {sorted(task.key for task in plan.victims)} could leave for it; "
                f"explain: {explained} {report.preemption}"
            )
        elif report.preemption.verdict in ("would-help", "under-way"):
            self.faults.append(f"{application.name}: no plan, and explain says {report.preemption}")
        for each in report.blockers:
            if each.kind == "gang-incomplete" and (found := PLACES.search(each.detail)):
                here, of = map(int, found.groups())
                self.count("explanations compared")
                equal = len(application.asked) == 1 and not any(task.ask.topology for task in members)
                refused = any(task.key == key for task in members for key, _ in books.refused)
                if of != len(members) or (
                    equal and not refused and here != count_places(books, members, rooms_of(books, held))
                ):
                    self.faults.append(f"{application.name}: explain says {each.detail}")  # fmt: skip

    def judge_waiting_tasks(self, application: Application) -> None:
        books = self.books
        for task in application.waiting():
            saved = self.saved_by_others([task])
            if application.waits_for_placeholder(task) or not within_maxima(books, application.queue, task.size, saved):
                continue
            self.count("waiting tasks judged")
            group, wish = task.ask.task_group, task.ask.topology
            together = [task]
            rooms = rooms_of(books, self.held_for_others([task]))
            if wish is not None and wish.required:
                running = [each for each in application.running() if each.ask.task_group == group]
                if running and wish.slice_size:
                    continue
                if running:
                    domains = {books.domain(each.node, wish.required) for each in running}
                    rooms = {name: room for name, room in rooms.items() if books.domain(name, wish.required) in domains}
                else:
                    together = [each for each in application.waiting() if each.ask.task_group == group]
                    rooms = rooms_of(books, self.held_for_others(together))
                    if not within_maxima(books, application.queue, add_up(each.size for each in together), saved):
                        continue
            places = find_places(books, together, rooms)
            if places is not None:
                self.faults.append(f"{task.key} waits, and would fit: {places}")

    # The course

    async def run(self, steps: int) -> None:
        await self.begin()
        dice = self.world.dice
        for _ in range(steps):
            acts: list[tuple[Any, float]] = [
                (self.submit_tasks, 2), (self.submit_gang, 4), (self.rest, 3), (self.end_task, 1.5),
                (self.remove_application, 1), (self.lose_node, 0.5), (self.bring_node, 0.5), (self.turn_node, 0.5),
                (self.change_limits, 1), (self.fail_start, 0.7), (self.start_tasks, 2),
            ]  # fmt: skip
            if self.victims():
                acts.append((lambda: self.end_victims(dice.choice([0.5, 1, 1])), 8))
            act = dice.choices([each for each, _ in acts], [weight for _, weight in acts])[0]
            await act()
        for _ in range(4):
            if self.victims():
                await self.end_victims(1)
            await self.rest()
        for name in sorted(self.books.applications):
            if name in self.books.applications:
                del self.books.applications[name]
                await self.client.send_applications(
                    [si.RemoveApplicationRequest(applicationID=name, partitionName="default")]
                )
        self.preemptions.clear()
        await self.settle()
        (status,) = (await self.client.status(audit=True)).partitions
        if (status.law_violations, status.invariant_violations) != (0, 0):
            raise Disagreement("\n".join([*self.story, f"the core's own checks: {status}"]))


def compare(what: str, said: Mapping[str, int], counted: Mapping[str, int]) -> list[str]:
    """Returns how two amounts differ."""
    if {k: v for k, v in said.items() if v} == {k: v for k, v in counted.items() if v}:
        return []
    return [f"{what}: {dict(said)} by the core, {dict(counted)} counted"]


def tell(update: object) -> str:
    """Returns a few words for people about an update."""
    match update:
        case Allocated(key=key, node_id=node):
            devices = ",".join(devices_of(update.message))
            return f"{key}@{node}{'/' + devices if devices else ''}"
        case Released(key=key, termination=si.PREEMPTED_BY_SCHEDULER, message=message):
            return f"-{key} ({message})"
        case Released(key=key, termination=termination):
            return f"-{key} {si.TerminationType.Name(termination)}"
        case ApplicationUpdated(application_id=name, state=state):
            return f"{name}:{state}"
        case AskRejected(key=key, reason=reason):
            return f"{key} rejected: {reason}"
    return ""


@asynccontextmanager
async def running_course(seed: int) -> AsyncIterator[Course]:
    """The world of *seed*, with a core of its own."""
    async with (
        running_core(rest_address="127.0.0.1:0", alone=False) as core,
        ShimClient(core.address, "rm-1") as client,
        httpx.AsyncClient(
            base_url=f"http://{core.server.rest_address}", timeout=PATIENCE_S, verify=TRUSTING_NOBODY
        ) as http,
    ):
        course = Course(World(seed), core, client, http)
        await client.register(config=configure(course.world.levels, course.world.queues, course.world.delay_s))
        listening = asyncio.create_task(course.listen())
        try:
            yield course
        finally:
            listening.cancel()
            (failed,) = await asyncio.gather(listening, return_exceptions=True)
            if isinstance(failed, Exception):
                raise failed


def lends(books: Books, holder: Task, decision: Decision) -> bool:
    """Whether what *holder* saves by age is room for those of *decision* in any case: one of them asks, they are more
    important, or nobody guarantees *holder* anything."""
    asked, application = books.find(decision.ask), books.applications[holder.ask.application_id]
    names = application.queue.split(".")
    above = [books.queues.get(".".join(names[: at + 1])) for at in range(len(names))]
    more = asked is not None and asked.ask.priority > holder.ask.priority
    return more or not any(queue is not None and queue.guaranteed for queue in above)


async def run_world(seed: int, steps: int = 16) -> dict[str, int]:
    """Runs the world of *seed*, and returns how often what was judged. Raises :class:`Disagreement`."""
    async with running_course(seed) as course:
        try:
            await course.run(steps)
        except Disagreement:
            raise
        except Exception as error:
            raise Disagreement("\n".join([*course.story, f"{type(error).__name__}: {error}"])) from error
        return course.checks


async def run_worlds(seeds: Iterable[int], width: int = 6) -> dict[str, int]:
    """Runs the worlds of *seeds*, *width* of them at a time, and returns how often what was judged."""
    waiting = list(seeds)
    checks: dict[str, int] = {}

    async def run_next() -> None:
        while waiting:
            for what, count in (await run_world(waiting.pop(0))).items():
                checks[what] = checks.get(what, 0) + count

    async with asyncio.TaskGroup() as group:
        for _ in range(width):
            group.create_task(run_next())
    return checks
