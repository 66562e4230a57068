"""The cluster as a shim and an administrator see it at one moment: plain records and plain sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.oracles.claims import built
from tests.oracles.plain_limits import Limits, Owned, WrittenLimit, chosen_group
from tests.oracles.rules.world import Amounts, is_inside


@dataclass(frozen=True)
class Queue:
    """One queue as it is configured."""

    path: str
    guaranteed: Amounts = field(default_factory=dict)
    maximum: Amounts = field(default_factory=dict)
    limits: tuple[WrittenLimit, ...] = ()
    applications: int = 0
    """The largest number of applications that run; 0: any."""
    offset: int = 0
    fence: bool = False
    by_priority: bool = True
    """Tells whether ``application.sort.priority`` is enabled."""
    stateaware: bool = False
    preemption: str = ""


@dataclass(frozen=True)
class Node:
    """One node. ``foreign``: what other schedulers use there."""

    name: str
    capacity: Amounts
    foreign: Amounts = field(default_factory=dict)
    drained: bool = False
    rack: str = ""
    """The domain in which it stands; empty: none."""


@dataclass(frozen=True)
class Application:
    """One application with the task groups that have a minimum."""

    name: str
    queue: str
    user: str = "amy"
    groups: tuple[str, ...] = ()
    created: int = 0
    minimums: Mapping[str, int] = field(default_factory=dict)
    """By task group, the number of members below which it is of no use."""
    members: int = 0
    """The number of members that the gang announces; 0: it is none."""
    size: Amounts = field(default_factory=dict)
    """What each of them asks for."""


@dataclass(frozen=True)
class Task:
    """A task before and after it is placed. ``refused``: nodes on which the shim will not have it."""

    key: str
    application: str
    amounts: Amounts
    priority: int = 0
    created: int = 0
    required_node: str = ""
    may_preempt: bool = True
    opted_out: bool = False
    originator: bool = False
    group: str = ""
    placeholder: bool = False
    refused: frozenset[str] = frozenset()
    in_rack: bool = False
    """Tells whether its group, all of its application and task group who say so, has to run in one rack."""


@dataclass(frozen=True)
class Claim:
    """Room kept for the task *key* of a waiter: on a node, or, if ``node`` is empty, below the limit ``below``."""

    key: str
    firm: bool
    node: str = ""
    below: str = ""


@dataclass(frozen=True)
class Waiter:
    """Whoever waits: one task, or the members of a gang that are placed together."""

    tasks: tuple[Task, ...]
    repairs: bool = False
    """Tells whether it brings a gang of which some run back to its minimum."""

    @property
    def name(self) -> str:
        return self.tasks[0].key

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(task.key for task in self.tasks)

    @property
    def application(self) -> str:
        return self.tasks[0].application

    @property
    def priority(self) -> int:
        """The priority of its least important member."""
        return min(task.priority for task in self.tasks)

    @property
    def since(self) -> int:
        return max(task.created for task in self.tasks)

    @property
    def required(self) -> bool:
        return any(task.required_node for task in self.tasks)

    @property
    def in_rack(self) -> bool:
        return self.tasks[0].in_rack

    def amount(self, t: str) -> int:
        return sum(task.amounts.get(t, 0) for task in self.tasks)

    def types(self) -> list[str]:
        return sorted({t for task in self.tasks for t, amount in task.amounts.items() if amount})


@dataclass
class Scene:
    """Everything that is public at one moment."""

    queues: dict[str, Queue]
    applications: dict[str, Application]
    nodes: dict[str, Node]
    running: dict[str, tuple[Task, str]] = field(default_factory=dict)
    """By key, victims that have not left yet included."""
    leaving: dict[str, str] = field(default_factory=dict)
    """The keys of victims that have not left, with the task for which each leaves; empty: for a limit."""
    waiting: dict[str, Task] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    states: dict[str, str] = field(default_factory=dict)
    """The last state of each application that the shim was told."""
    now: int = 0
    strict: bool = False
    still: bool = False
    """Tells whether nothing of it changes any more once it was looked at."""
    ended: dict[tuple[str, str], int] = field(default_factory=dict)
    """By application and task group, when a running member of it left last."""
    short: dict[tuple[str, str], int] = field(default_factory=dict)
    """By application and task group, how many members were lost, and are missing since (rule 7)."""
    known: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was worked out from queues and applications alone; copies share it."""
    _found: list[Waiter] | None = field(default=None, init=False, repr=False, compare=False)

    def copied(self) -> Scene:
        """Returns the scene as it is, which nothing changes any more."""
        copy = replace(
            self,
            nodes=dict(self.nodes),
            running=dict(self.running),
            leaving=dict(self.leaving),
            waiting=dict(self.waiting),
            ended=dict(self.ended),
            short=dict(self.short),
            states=dict(self.states),
            applications=dict(self.applications),
            still=True,
        )
        copy.known = self.known
        return copy

    def types(self) -> list[str]:
        """Returns the types that nodes have."""
        return sorted({t for node in self.nodes.values() for t in node.capacity})

    def task(self, key: str) -> Task:
        return self.waiting[key] if key in self.waiting else self.running[key][0]

    def leaf(self, application: str) -> str:
        return self.applications[application].queue

    def limits(self) -> Limits:
        return {path: queue.limits for path, queue in self.queues.items()}

    def chosen_group(self, application: str) -> str | None:
        if application not in self.known:
            owner = self.applications[application]
            self.known[application] = chosen_group(self.limits(), Owned(owner.user, owner.groups, owner.queue))
        group: str | None = self.known[application]
        return group

    def sum_running(self, t: str, counts: Callable[[Task, str], bool]) -> int:
        """Returns what the running tasks that *counts* accepts (task, node) use of *t*."""
        return sum(task.amounts.get(t, 0) for task, node in self.running.values() if counts(task, node))

    def inside(self, path: str) -> Callable[[Task, str], bool]:
        """Returns a test for tasks in the queue *path* and below."""
        return lambda task, _: is_inside(self.leaf(task.application), path)

    def claimed(self, t: str, counts: Callable[[Task], bool], *, but: Iterable[str] = (), doubt: bool = False) -> int:
        """Returns what is firmly claimed of *t* by tasks that *counts* accepts, without those of the keys *but*.

        *doubt*: as in :meth:`claimants`.
        """
        keys = {task.key for task in self.claimants(doubt=doubt)} - set(but)
        return sum(self.waiting[key].amounts.get(t, 0) for key in keys if counts(self.waiting[key]))

    def claimants(self, *, doubt: bool = False) -> list[Task]:
        """Returns the waiting tasks whose firm claims count in limits (rule 1).

        Whether a claim on a node that the shim refuses its holder still counts, although nothing will be placed there,
        is not said: with *doubt* it does.
        """
        firm = [(c, self.waiting[c.key]) for c in self.claims if c.firm and c.key in self.waiting]
        return [task for claim, task in firm if doubt or claim.node not in task.refused]

    def waiters(self) -> list[Waiter]:
        """Returns all who wait: gangs with a minimum none of whose group runs as units, others one by one.

        A real task whose group still has placeholders waits for one of these, and is no waiter; nor is a member of a
        gang with a minimum while others of its group are leaving.
        """
        if self._found is not None:
            return self._found
        found: list[Waiter] = []
        units: dict[tuple[str, str], list[Task]] = {}
        for task in self.waiting.values():
            if self.states.get(task.application) in ("Failing", "Failed", "Resuming"):
                continue
            members = self.members(task)
            if task.group and not task.placeholder and any(other.placeholder for other in members):
                continue
            least = self.applications[task.application].minimums.get(task.group, 0)
            if least > 1 and any(other.key in self.leaving for other in members):
                continue
            runs = sum(other.key in self.running for other in members)
            if least > 1 and not runs and (task.placeholder or built.TASKS_GATHER):
                units.setdefault((task.application, task.group), []).append(task)
            else:
                found.append(Waiter((task,), repairs=self.short.get((task.application, task.group), 0) > 0))
        found += [Waiter(tuple(tasks)) for tasks in units.values()]
        self._found = found if self.still else None
        return found

    def count_short(self, task: Task, change: int) -> None:
        """Counts *change* more members of the group of *task* as missing, once it was lost, placed or ended.

        One that its owner ends may be done. Never more than the group lacks; where nothing of it runs, or what runs is
        leaving, it is placed anew as a whole.
        """
        least = self.applications[task.application].minimums.get(task.group, 0)
        if least > 1:
            runs = [other.key for other in self.members(task) if other.key in self.running]
            stays = set(runs) - self.leaving.keys()
            group = task.application, task.group
            self.short[group] = max(0, min(self.short.get(group, 0) + change, least - len(runs))) if stays else 0

    def members(self, task: Task) -> list[Task]:
        """Returns the waiting and running members of the group of *task*; nobody if it is in none."""
        if not task.group:
            return []
        everybody = [*self.waiting.values(), *(other for other, _ in self.running.values())]
        return [o for o in everybody if (o.application, o.group) == (task.application, task.group)]

    def waiter(self, key: str) -> Waiter | None:
        """Returns the waiter with the task *key*; ``None``: it waits for a placeholder, or does not wait."""
        return next((waiter for waiter in self.waiters() if key in waiter.keys), None)

    def holder(self, claim: Claim) -> Waiter | None:
        return self.waiter(claim.key)

    def holds(self, waiter: Waiter, *, firm: bool) -> list[Claim]:
        return [claim for claim in self.claims if claim.key in waiter.keys and claim.firm == firm]

    def claims_of(self, tasks: Iterable[Task]) -> list[Claim]:
        """Returns what *tasks* claim on nodes."""
        keys = {task.key for task in tasks}
        return [claim for claim in self.claims if claim.node and claim.key in keys]

    def is_new(self, application: str) -> bool:
        """Tells whether *application* has not begun to run."""
        return self.states.get(application, "New") in ("New", "Accepted")
