"""Judges every answer against the contract, from commands and effects alone (protocol.md 6 to 11).

Each command is worked through entry by entry on the shim's own view; the entry says which answers are due, in which
order. State changes and reports may come in between. Answers that time brings (:meth:`Contract.hear_decisions`) are
judged by what the view says of nodes, asks and victims.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from core.config.loader import load
from core.config.problems import ConfigError
from core.domain.commands import (
    AllocationSpec,
    AnswerCallbacks,
    ApplicationRef,
    ApplicationSpec,
    AttachCallbacks,
    Command,
    DetachCallbacks,
    NodeAction,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    TerminationType,
    UnregisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from core.domain.effects import (
    Allocated,
    AllocationRejected,
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationUpdated,
    Effect,
    EventRecorded,
    NodeAccepted,
    NodeRejected,
    PredicatesAsked,
    PreemptionDecided,
    PreemptionPredicatesAsked,
    Released,
    SchedulingFailed,
)
from core.domain.partition_names import full_partition_name
from core.domain.resources import NOTHING
from tests.properties.machine.application_states import ENDED, check_change, on_removal
from tests.properties.machine.features import COUNTS
from tests.properties.machine.view import (
    EXPIRES_AFTER_NS,
    Amounts,
    ApplicationView,
    ContractBroken,
    ForeignView,
    Grave,
    NodeView,
    PartitionView,
    RequestView,
    add,
)

_USER: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9:#/_.@-]*[$]?")
_NOT_BURIED: Final = ("application-exists", "invalid-id", "partition-not-found")
_PLACEMENT: Final = frozenset(
    {"no-queue", "queue-not-leaf", "queue-create-failed", "gang-needs-fifo", "gang-too-large", "invalid-resource"}
)
_CONFIRMATIONS: Final = (
    TerminationType.TIMEOUT,
    TerminationType.PREEMPTED_BY_SCHEDULER,
    TerminationType.PLACEHOLDER_REPLACED,
)


E = TypeVar("E")


class Held(NamedTuple):
    """What only the core knows when it decides: who holds which node, and in which queue everybody is."""

    before: Mapping[str, frozenset[str]]
    """By node: keys of the asks it was held for before the decisions."""
    throughout: frozenset[str]
    """Nodes that stayed held for one of them all the time."""
    room: Callable[[], Callable[[str, Mapping[str, int]], str | None]]
    """As things stand: (application ID, amounts) to the queue without room for them. What fits is booked at once."""


class Contract:
    """The view of one shim of one engine."""

    def __init__(self) -> None:
        self.rm_id = ""
        self.partitions: dict[str, PartitionView] = {}
        self.attached: AttachCallbacks | None = None
        self.questions: dict[int, Effect] = {}
        self._asked: dict[str, set[str]] = {}
        """By key: nodes that the core asked about, and keeps room on until it is answered."""
        self.now_ns = 0
        self._updates: dict[str, list[str]] = {}
        """By application: the states it changed to during this command."""
        self._removing: set[str] = set()

    def partition_of(self, application_id: str) -> PartitionView | None:
        """Where *application_id* is live."""
        return next((p for p in self.partitions.values() if application_id in p.applications), None)

    def refused(self, command: Command, now_ns: int) -> None:
        """*command* was refused as a whole: it must have deserved that."""
        self.now_ns = now_ns
        if isinstance(command, RegisterManager):
            if not command.rm_id or (self.rm_id and command.rm_id != self.rm_id):
                return
            if _usable(command.config):
                raise ContractBroken("register", "a good registration was refused")
            self._forget()
            return
        if command.rm_id and command.rm_id == self.rm_id and not isinstance(command, UpdateConfiguration):
            raise ContractBroken("refused", f"{command} was refused as a whole")

    def hear(self, command: Command, effects: Sequence[Effect], now_ns: int, held: Held) -> None:
        """*command* was taken and answered with *effects*."""
        self.now_ns = now_ns
        self._updates = {}
        self._removing = set()
        if not isinstance(command, RegisterManager) and (not self.rm_id or command.rm_id != self.rm_id):
            raise ContractBroken("manager", f"{command} was taken from a manager that is not registered")
        answers = _Answers(effects, self._aside)
        match command:
            case RegisterManager(rm_id, config):
                self._forget()
                self.rm_id = rm_id
                self.partitions = {name: PartitionView() for name in _partitions(rm_id, config)}
            case UnregisterManager():
                self._forget()
            case UpdateConfiguration(_, config):
                self._configured(config, answers)
            case UpdateNodes(_, nodes):
                for spec in nodes:
                    self._node(spec, answers)
            case UpdateApplications(_, added, removed):
                for application in added:
                    self._application(application, answers)
                self._remove(removed, answers)
            case UpdateAllocations():
                self._allocations(command, answers)
            case AttachCallbacks():
                self.attached = command
                self.questions = {}
                self._decisions(answers, held)
            case DetachCallbacks():
                self.attached = None
                self.questions = {}
                self._decisions(answers, held)
            case AnswerCallbacks():
                answered = [answer.question for answer in command.predicates]
                answered += [answer.question for answer in command.preemption_predicates]
                for question in answered:
                    self.questions.pop(question, None)
                self._decisions(answers, held)
        answers.end()

    def hear_decisions(self, effects: Sequence[Effect], now_ns: int, held: Held) -> None:
        """A slice of the allocation cycle, or a round of preemption, decided *effects*."""
        self.now_ns = now_ns
        self._updates = {}
        answers = _Answers(effects, self._aside)
        self._decisions(answers, held)
        answers.end()

    def overdue(self) -> list[Grave]:
        """Applications whose expiry should have been reported by now."""
        return [g for p in self.partitions.values() for g in p.graves if g.due_ns <= self.now_ns]

    def _forget(self) -> None:
        """Registration starts afresh; who answers questions goes on doing so."""
        self.rm_id = ""
        self.partitions = {}
        self.questions = {}

    # What may come at any time.

    def _aside(self, effect: Effect) -> bool:
        """Take in *effect* if it is one that needs no entry to answer."""
        match effect:
            case ApplicationUpdated():
                self._changed(effect)
            case PreemptionDecided(partition=name, key=key, victims=victims):
                for victim in victims:
                    if self._known(name, victim.key).node != victim.node_id:
                        raise ContractBroken("victim", f"{victim.key} does not run on {victim.node_id}")
                if self._known(name, key).node:
                    raise ContractBroken("preemptor", f"{key} is placed already")
            case PredicatesAsked(partition=name, key=key, node_ids=nodes):
                if self.attached is None or not self.attached.predicates:
                    raise ContractBroken("question", "nobody wants to be asked about predicates")
                if unknown := [node for node in nodes if node not in self.partitions[name].nodes]:
                    raise ContractBroken("question", f"asked about nodes {unknown}")
                self._known(name, key)
                self.questions[effect.question] = effect
                self._asked.setdefault(key, set()).update(nodes)
            case PreemptionPredicatesAsked(partition=name, key=key):
                if self.attached is None or not self.attached.preemption_predicates:
                    raise ContractBroken("question", "nobody wants to be asked about preemption")
                self._known(name, key)
                self.questions[effect.question] = effect
            case SchedulingFailed(application_id, key):
                if self.attached is None or not self.attached.scheduling_states:
                    raise ContractBroken("scheduling state", "nobody wants to be told")
                request = self._request(application_id, key)
                if request.node:
                    raise ContractBroken("scheduling state", f"{key} is placed")
            case EventRecorded():
                pass
            case _:
                return False
        return True

    def _changed(self, effect: ApplicationUpdated) -> None:
        application_id, state, at_ns, message = effect
        if at_ns != self.now_ns:
            raise ContractBroken("state time", f"{effect} at {self.now_ns}")
        self._updates.setdefault(application_id, []).append(state)
        if state == "Expired":
            self._expired(application_id)
            return
        partition = self.partition_of(application_id)
        if partition is None:
            raise ContractBroken("state of nobody", f"{effect}")
        application = partition.applications[application_id]
        check_change(application_id, application.state, state, message)
        application.state = str(state)
        if state in ENDED:
            if partition.allocations_of(application_id):
                raise ContractBroken("ended", f"{application_id} is {state} and still holds something")
            if state == "Completed" and partition.asks_of(application_id):
                raise ContractBroken("ended", f"{application_id} is Completed and still asks")
            self._drop(partition, application_id)
            if application_id not in self._removing:
                partition.graves.append(Grave(application_id, self.now_ns + EXPIRES_AFTER_NS))

    def _expired(self, application_id: str) -> None:
        for partition in self.partitions.values():
            for grave in partition.graves:
                if grave.application_id == application_id and grave.due_ns <= self.now_ns:
                    partition.graves.remove(grave)
                    return
        raise ContractBroken("expiry", f"{application_id} expired for no reason")

    def _drop(self, partition: PartitionView, application_id: str) -> None:
        del partition.applications[application_id]
        for request in partition.of(application_id):
            del partition.requests[request.key]

    def _known(self, partition: str, key: str) -> RequestView:
        view = self.partitions.get(partition)
        request = view.requests.get(key) if view is not None else None
        if request is None:
            raise ContractBroken("unknown key", f"{key} of {partition} is nothing the shim knows of")
        return request

    def _request(self, application_id: str, key: str) -> RequestView:
        partition = self.partition_of(application_id)
        request = partition.requests.get(key) if partition is not None else None
        if request is None or request.owner != application_id:
            raise ContractBroken("unknown key", f"{key} of {application_id} is nothing the shim knows of")
        return request

    # Configuration.

    def _configured(self, config: str, answers: _Answers) -> None:
        listed = _partitions(self.rm_id, config)
        gone = [name for name in self.partitions if name not in listed]
        failing = {
            application_id
            for name in gone
            for application_id, application in self.partitions[name].applications.items()
            if application.state in ("New", "Accepted", "Running")
        }
        answers.pass_asides()
        told = {application_id for application_id, states in self._updates.items() if states == ["Failing"]}
        if told != failing or self._updates.keys() != failing:
            raise ContractBroken("partition removed", f"reported {self._updates}, failing are {failing}")
        for name in gone:
            del self.partitions[name]
        for name in listed:
            self.partitions.setdefault(name, PartitionView())

    # Nodes.

    def _node(self, spec: NodeSpec, answers: _Answers) -> None:
        partition = self.partitions.get(spec.partition)
        if spec.action in (NodeAction.CREATE, NodeAction.CREATE_DRAIN):
            self._create(spec, partition, answers)
            return
        node = partition.nodes.get(spec.node_id) if partition is not None else None
        if partition is None or node is None:
            return
        negative = any(amounts is not None and amounts.has_negative() for amounts in (spec.capacity, spec.occupied))
        if spec.action == NodeAction.UPDATE and not negative:
            if spec.capacity is not None:
                node.capacity = dict(spec.capacity)
            if spec.occupied is not None:
                partition.foreign[f"occupied/{spec.node_id}"] = ForeignView(spec.node_id, spec.occupied)
        elif spec.action in (NodeAction.DRAIN_NODE, NodeAction.DRAIN_TO_SCHEDULABLE):
            node.draining = spec.action == NodeAction.DRAIN_NODE
        elif spec.action == NodeAction.DECOMISSION:
            self._decommission(partition, spec.node_id, answers)

    def _create(self, spec: NodeSpec, partition: PartitionView | None, answers: _Answers) -> None:
        refusal = self._node_refusal(spec, partition)
        if refusal is not None or partition is None:
            rejected = answers.next(NodeRejected)
            if rejected.node_id != spec.node_id or _token(rejected.reason) != refusal:
                raise ContractBroken("node refusal", f"{rejected} instead of {refusal}")
            return
        if answers.next(NodeAccepted).node_id != spec.node_id:
            raise ContractBroken("node answer", f"{spec.node_id} was not accepted")
        for existing in spec.existing:
            self._take(partition, existing._replace(node_id=spec.node_id), answers)

    def _node_refusal(self, spec: NodeSpec, partition: PartitionView | None) -> str | None:
        """Why the node is not created; otherwise it is in the view now."""
        if partition is None:
            return "partition-not-found"
        if not spec.node_id:
            return "invalid-id"
        if spec.node_id in partition.nodes:
            return "node-exists"
        if any(amounts is not None and amounts.has_negative() for amounts in (spec.capacity, spec.occupied)):
            return "invalid-resource"
        draining = spec.action == NodeAction.CREATE_DRAIN
        partition.nodes[spec.node_id] = NodeView(spec.node_id, dict(spec.capacity or {}), draining)
        owners: dict[str, str] = {}
        for existing in spec.existing:
            refusal = self._refusal(existing._replace(node_id=spec.node_id))
            if refusal is None and owners.setdefault(existing.key, existing.application_id) != existing.application_id:
                refusal = "key-in-use"
            if refusal is not None:
                del partition.nodes[spec.node_id]
                return refusal
        if spec.occupied is not None:
            partition.foreign[f"occupied/{spec.node_id}"] = ForeignView(spec.node_id, spec.occupied)
        return None

    def _decommission(self, partition: PartitionView, node_id: str, answers: _Answers) -> None:
        """Everything on the node is released; replacements on their way elsewhere are confirmed (7.2)."""
        gone = partition.on(node_id)
        for request in gone:
            del partition.requests[request.key]
        del partition.nodes[node_id]
        for key in [key for key, foreign in partition.foreign.items() if foreign.node == node_id]:
            del partition.foreign[key]
        self._released(gone, answers)
        replacing = {(r.owner, r.spec.task_group) for r in gone if r.doomed == TerminationType.PLACEHOLDER_REPLACED}
        while self._replacement(partition, replacing, answers):
            pass

    # Applications.

    def _application(self, spec: ApplicationSpec, answers: _Answers) -> None:
        partition = self.partitions.get(spec.partition)
        refusal = self._application_refusal(spec, partition)
        answer = answers.take()
        if not isinstance(answer, ApplicationAccepted | ApplicationRejected):
            raise ContractBroken("application answer", f"{answer} to {spec}")
        if answer.application_id != spec.application_id:
            raise ContractBroken("application answer", f"{answer} to {spec}")
        if isinstance(answer, ApplicationAccepted):
            if refusal is not None or partition is None:
                raise ContractBroken("application answer", f"{spec} was accepted in spite of {refusal}")
            partition.applications[spec.application_id] = ApplicationView(spec)
            return
        token = _token(answer.reason)
        if token != refusal if refusal is not None else token not in _PLACEMENT:
            raise ContractBroken("application refusal", f"{answer} instead of {refusal}")
        if partition is not None and token not in _NOT_BURIED:
            partition.graves.append(Grave(spec.application_id, self.now_ns + EXPIRES_AFTER_NS))

    def _application_refusal(self, spec: ApplicationSpec, partition: PartitionView | None) -> str | None:
        """The first of rows 1 to 4 of 6.1 that applies."""
        forced = any(k.lower() == "application.create.force" and v.lower() == "true" for k, v in spec.tags)
        if partition is None:
            return "partition-not-found"
        if not spec.application_id:
            return "invalid-id"
        if not _USER.fullmatch(spec.user) and (spec.user or not forced):
            return "user-invalid"
        return "application-exists" if spec.application_id in partition.applications else None

    def _remove(self, refs: Iterable[ApplicationRef], answers: _Answers) -> None:
        leaving: dict[str, tuple[PartitionView, list[str], list[RequestView]]] = {}
        for application_id, name in refs:
            partition = self.partitions.get(name)
            application = partition.applications.get(application_id) if partition is not None else None
            if partition is None or application is None or application_id in leaving:
                continue
            gone, asks = partition.allocations_of(application_id), partition.asks_of(application_id)
            expected = on_removal(application.state, allocated=bool(gone))
            leaving[application_id] = (partition, expected, gone)
            self._removing.add(application_id)
            for request in (*gone, *asks):
                del partition.requests[request.key]
        for _, _, gone in leaving.values():
            self._released(gone, answers)
        answers.pass_asides()
        for application_id, (partition, expected, _) in leaving.items():
            told = self._updates.get(application_id, [])
            if told != expected:
                raise ContractBroken("removal", f"{application_id} reported {told}, expected {expected}")
            partition.applications.pop(application_id, None)

    # Allocations.

    def _allocations(self, command: UpdateAllocations, answers: _Answers) -> None:
        refused: list[tuple[AllocationSpec, str]] = []
        for spec in command.allocations:
            token = self._refusal(spec)
            if token is not None:
                refused.append((spec, token))
            else:
                self._take(self.partitions[spec.partition], spec, answers)
        for spec, token in refused:
            answer = answers.next(AllocationRejected)
            if answer[:2] != (spec.key, spec.application_id) or answer.legacy != spec.legacy:
                raise ContractBroken("rejection", f"{answer} instead of {token} for {spec}")
            if _token(answer.reason) != token:
                raise ContractBroken("rejection", f"{answer} instead of {token}")
        for entry in command.ask_releases:
            self._withdraw(entry)
        for entry in command.releases:
            self._release(entry, answers)

    def _refusal(self, spec: AllocationSpec) -> str | None:
        """The decision table of 8.1 with the rows of DB-5, DB-6 and DB-15; ``None``: it is taken."""
        partition = self.partitions.get(spec.partition)
        size = spec.resources
        if partition is None:
            return "partition-not-found"
        if spec.placeholder and not spec.task_group:
            return "placeholder-without-group"
        if not spec.key:
            return "invalid-key"
        if spec.foreign:
            if not spec.node_id:
                return "foreign-without-node"
            if spec.node_id not in partition.nodes:
                return "node-not-found"
            return "negative-resources" if size is not None and size.has_negative() else None
        application = partition.applications.get(spec.application_id)
        if application is None:
            return "application-not-found"
        if spec.node_id and spec.node_id not in partition.nodes:
            return "node-not-found"
        if spec.max_allocations < 1 or (spec.max_allocations > 1 and not COUNTS):
            return "max-allocations"
        if size is None or size.is_zero():
            return "no-resources"
        if size.has_negative():
            return "negative-resources"
        known = partition.requests.get(spec.key)
        if known is not None and known.owner != spec.application_id:
            return "key-in-use"
        closed = known is None and not spec.node_id and application.state == "Failing"
        return "application-state" if closed else None

    def _take(self, partition: PartitionView, spec: AllocationSpec, answers: _Answers) -> None:
        size = spec.resources if spec.resources is not None else NOTHING
        if spec.foreign:
            partition.foreign[spec.key] = ForeignView(spec.node_id, size)
            return
        request = partition.requests.get(spec.key)
        if request is None:
            request = partition.requests[spec.key] = RequestView(spec, size)
        request.size = size
        if spec.node_id and not request.node:
            if (request.owner, request.spec.task_group) in partition.replacing() and not answers.at(Allocated):
                return
            self._placed(partition, answers.next(Allocated), node_id=spec.node_id, key=spec.key)

    def _placed(self, partition: PartitionView, effect: Allocated, *, node_id: str = "", key: str = "") -> RequestView:
        """A ``new`` entry: of a known ask that was not placed, on a node that is known; for *key* on *node_id*."""
        request = partition.requests.get(effect.spec.key)
        if request is None or request.owner != effect.spec.application_id:
            raise ContractBroken("new", f"{effect} names no known ask")
        if request.node:
            raise ContractBroken("new", f"{effect}: it runs on {request.node} already")
        if effect.node_id not in partition.nodes:
            raise ContractBroken("new", f"{effect} names no known node")
        if effect.resources != request.size:
            raise ContractBroken("new", f"{effect} differs from the asked {request.size}")
        if (key and effect.spec.key != key) or (node_id and effect.node_id != node_id):
            raise ContractBroken("echo", f"{effect} instead of {key} on {node_id}")
        request.node = effect.node_id
        return request

    def _withdraw(self, entry: ReleaseSpec) -> None:
        partition = self.partitions.get(entry.partition)
        if partition is None or entry.termination == TerminationType.TIMEOUT:
            return
        for ask in partition.asks_of(entry.application_id):
            if entry.key in ("", ask.key):
                del partition.requests[ask.key]

    def _release(self, entry: ReleaseSpec, answers: _Answers) -> None:
        """Section 10.1 and 10.2; 3.6 for what the shim could not start; 10.4 for the odd cases."""
        partition = self.partitions.get(entry.partition)
        if partition is None:
            return
        if not entry.application_id:
            partition.foreign.pop(entry.key, None)
            return
        if not entry.key:
            self._release_all(partition, entry, answers)
            return
        request = partition.requests.get(entry.key)
        if request is None or request.owner != entry.application_id:
            return
        kind = entry.termination
        if kind == TerminationType.SCHEDULING_FAILED_ON_RM:
            answers.pass_asides()
            running = partition.applications[request.owner].state in ("Accepted", "Running")
            if request.node and request.doomed is None and running:
                request.node = ""
            return
        if kind == TerminationType.PLACEHOLDER_REPLACED and not request.placeholder:
            return
        if not request.node:
            if kind != TerminationType.TIMEOUT:
                del partition.requests[request.key]
            return
        self._leave(partition, [request], entry, answers)

    def _release_all(self, partition: PartitionView, entry: ReleaseSpec, answers: _Answers) -> None:
        kind = entry.termination
        if kind in (TerminationType.PLACEHOLDER_REPLACED, TerminationType.SCHEDULING_FAILED_ON_RM):
            return
        if kind != TerminationType.TIMEOUT:
            for ask in partition.asks_of(entry.application_id):
                del partition.requests[ask.key]
        self._leave(partition, partition.allocations_of(entry.application_id), entry, answers)

    def _leave(self, partition: PartitionView, gone: list[RequestView], entry: ReleaseSpec, answers: _Answers) -> None:
        """*gone* leave as *entry* says; a real ask that one of them was replaced by may be announced."""
        for request in gone:
            del partition.requests[request.key]
        if entry.termination not in _CONFIRMATIONS:
            self._released(gone, answers)
        replacing = {(r.owner, r.spec.task_group) for r in gone if r.doomed == TerminationType.PLACEHOLDER_REPLACED}
        self._replacement(partition, replacing, answers)

    def _released(self, gone: Iterable[RequestView], answers: _Answers) -> None:
        """The core confirms that all of *gone* are released, in any order, and nobody else."""
        due = {request.key: request.owner for request in gone}
        while due:
            answer = answers.next(Released)
            if due.pop(answer.key, None) != answer.application_id:
                raise ContractBroken("released", f"{answer}, still due are {due}")
            if answer.termination != TerminationType.STOPPED_BY_RM:
                raise ContractBroken("released", f"{answer} confirms a release of the shim")

    def _replacement(
        self, partition: PartitionView, replacing: set[tuple[str, str]], answers: _Answers
    ) -> RequestView | None:
        """The real ask that replaces a placeholder of one of these task groups, if one is announced now."""
        if not replacing or not answers.at(Allocated):
            return None
        request = self._placed(partition, answers.next(Allocated))
        if request.placeholder or (request.owner, request.spec.task_group) not in replacing:
            raise ContractBroken("replacement", f"{request} replaces nothing of {replacing}")
        return request

    # Decisions.

    def _decisions(self, answers: _Answers, held: Held) -> None:
        if answers.any(Allocated):
            free = {name: partition.free() for name, partition in self.partitions.items()}
            queue_room = held.room()
        while (effect := answers.take()) is not None:
            match effect:
                case Allocated(spec):
                    request = self._placed(self.partitions[spec.partition], effect)
                    self._judge_place(request, free[spec.partition], held)
                    full = queue_room(request.owner, request.size)
                    if full is not None:
                        raise ContractBroken("queue room", f"{request.key} of {request.owner} was placed over {full}")
                    add(free[spec.partition][request.node], request.size, -1)
                case Released():
                    self._told_to_leave(effect)
                case _ if type(effect).__name__ == "AskReleased":
                    # The G2 list for pending placeholders that the core drops (protocol.md 3.4).
                    dropped = Released(*effect)
                    if not self._known(dropped.partition, dropped.key).spec.legacy:
                        raise ContractBroken("released", f"{effect} of an ask that was not sent the older way")
                    self._told_to_leave(dropped)
                case _:
                    raise ContractBroken("decision", f"{effect} answers nobody")

    def _judge_place(self, request: RequestView, room: Mapping[str, Amounts], held: Held) -> None:
        """A placement of the core's own goes to an open node with room."""
        partition = self.partitions[request.spec.partition]
        node, required = partition.nodes[request.node], request.spec.required_node
        holders = held.before.get(request.node, frozenset())
        if required and required != request.node:
            raise ContractBroken("required node", f"{request.key} requires {required}, is on {request.node}")
        promised = request.key in holders or request.node in self._asked.pop(request.key, ())
        if node.draining and not required and not promised:
            raise ContractBroken("draining", f"{request.key} was placed on {request.node}, which drains")
        if request.node in held.throughout and not promised and not required:
            raise ContractBroken("held node", f"{request.key} is on {request.node}, held for {set(holders)}")
        if partition.applications[request.owner].state in ("Failing", "New"):
            raise ContractBroken("unserved", f"{request.key} of {partition.applications[request.owner]} was placed")
        for name, amount in request.size.items():
            if amount and amount > room[request.node].get(name, 0):
                raise ContractBroken("node room", f"{request.key} needs {amount} {name}: {room[request.node]}")

    def _told_to_leave(self, effect: Released) -> None:
        """The core wants an allocation gone, or drops a pending placeholder. Nobody is told twice (I11)."""
        request = self._known(effect.partition, effect.key)
        if request.owner != effect.application_id:
            raise ContractBroken("released", f"{effect} names the wrong application")
        if request.doomed is not None:
            raise ContractBroken("told twice", f"{effect}, told before: {request.doomed}")
        match effect.termination:
            case TerminationType.PREEMPTED_BY_SCHEDULER if request.node:
                request.doomed = effect.termination
            case TerminationType.TIMEOUT if request.placeholder:
                if request.node:
                    request.doomed = effect.termination
                else:
                    del self.partitions[effect.partition].requests[effect.key]
            case TerminationType.PLACEHOLDER_REPLACED if request.placeholder and request.node:
                request.doomed = effect.termination
            case _:
                raise ContractBroken("released", f"{effect} of {request}")


class _Answers:
    """The effects of one call, read in order; what may come at any time is taken in on the way."""

    def __init__(self, effects: Sequence[Effect], aside: Callable[[Effect], bool]) -> None:
        self._effects = effects
        self._at = 0
        self._aside = aside

    def pass_asides(self) -> None:
        while self._at < len(self._effects) and self._aside(self._effects[self._at]):
            self._at += 1

    def take(self) -> Effect | None:
        """The next answer; ``None``: there is none."""
        self.pass_asides()
        if self._at == len(self._effects):
            return None
        self._at += 1
        return self._effects[self._at - 1]

    def any(self, kind: type) -> bool:
        """Whether an answer of *kind* is still to come."""
        return any(isinstance(effect, kind) for effect in self._effects[self._at :])

    def at(self, kind: type) -> bool:
        """Whether the next answer is of *kind*."""
        self.pass_asides()
        return self._at < len(self._effects) and isinstance(self._effects[self._at], kind)

    def next(self, kind: type[E]) -> E:
        """The next answer, which must be of *kind*."""
        answer = self.take()
        if not isinstance(answer, kind):
            raise ContractBroken("answer", f"{answer} instead of {kind.__name__}")
        return answer

    def end(self) -> None:
        if (answer := self.take()) is not None:
            raise ContractBroken("answer", f"{answer} answers nothing")


def _token(reason: str) -> str:
    return reason.partition(":")[0]


@lru_cache(maxsize=64)
def partition_names(config: str) -> tuple[str, ...] | None:
    """The partitions that *config* declares; ``None``: it cannot be used."""
    try:
        return tuple(partition.name for partition in load(config).partitions)
    except ConfigError:
        return None


def _usable(config: str) -> bool:
    return partition_names(config) is not None


def _partitions(rm_id: str, config: str) -> list[str]:
    names = partition_names(config)
    if names is None:
        raise ContractBroken("configuration", "one that cannot be used was taken")
    return [full_partition_name(rm_id, name) for name in names]
