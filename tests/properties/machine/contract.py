"""Judges every answer against the contract, from commands and effects alone (protocol.md 6 to 13).

Each command is worked through entry by entry on the shim's own view (:mod:`.intake`, :mod:`.releases`); the entry says
which answers are due, in which order. State changes and reports may come in between. Answers that time brings
(:meth:`Contract.hear_decisions`) are judged by what the view says of nodes, asks and victims (:mod:`.decisions`).
"""

from __future__ import annotations

from collections.abc import Sequence

from kornel.core.domain.commands import (
    AnswerCallbacks,
    AttachCallbacks,
    Command,
    DetachCallbacks,
    PreemptByHand,
    RegisterManager,
    SetOperatorDrain,
    UnregisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.effects import (
    ApplicationRemoved,
    ApplicationUpdated,
    AsksRecorded,
    Effect,
    EventRecorded,
    PlacementsRecorded,
    PredicatesAsked,
    PreemptionDecided,
    PreemptionPredicatesAsked,
    RemovalsRecorded,
    SchedulingFailed,
)
from kornel.core.domain.names import full_partition_name
from kornel.core.domain.reasons import Outcome
from tests.properties.machine import decisions, intake, quotas, releases
from tests.properties.machine.answers import Answers
from tests.properties.machine.application_states import ENDED, check_change
from tests.properties.machine.cluster import DEFAULT, INTERVAL_NS, LIMIT
from tests.properties.machine.gangs import is_at_rest, note_minima
from tests.properties.machine.shim_view import Known, ShimView
from tests.properties.machine.view import EXPIRES_AFTER_NS, ContractBroken, Grave, PartitionView, RequestView


class Contract(ShimView):
    """The view of one shim of one engine, which takes in commands and what they were answered."""

    def refused(self, command: Command, now_ns: int) -> None:
        """*command* was refused as a whole: it must have deserved that."""
        self.now_ns = now_ns
        if isinstance(command, RegisterManager):
            if not command.rm_id or (self.rm_id and command.rm_id != self.rm_id):
                return
            if quotas.written(command.config) is not None:
                raise ContractBroken("register", "a good registration was refused")
            self._forget()
            return
        if isinstance(command, PreemptByHand):
            return
        if isinstance(command, SetOperatorDrain):
            partition = self.partitions.get(command.partition)
            if partition is not None and (not command.drained or command.node_id in partition.nodes):
                raise ContractBroken("operator", f"{command} was refused")
            return
        if command.rm_id and command.rm_id == self.rm_id and not isinstance(command, UpdateConfiguration):
            raise ContractBroken("refused", f"{command} was refused as a whole")

    def hear(self, command: Command, effects: Sequence[Effect], now_ns: int, known: Known) -> None:
        """*command* was taken and answered with *effects*."""
        self._begin(now_ns)
        self.removing = set()
        self.closed = {}
        if not isinstance(command, RegisterManager) and (not self.rm_id or command.rm_id != self.rm_id):
            raise ContractBroken("manager", f"{command} was taken from a manager that is not registered")
        answers = Answers(effects, self._aside)
        match command:
            case RegisterManager(rm_id, config):
                self._forget()
                self.rm_id, self.config = rm_id, config
                self.kept_out = {(name, node) for name, node in self.kept_out if name.startswith(f"[{rm_id}]")}
                self.partitions = {name: PartitionView() for name in _partitions(rm_id, config)}
            case UnregisterManager():
                self._forget()
            case UpdateConfiguration(_, config):
                self._configured(config, answers)
            case UpdateNodes(_, nodes):
                for spec in nodes:
                    intake.node(self, spec, answers, known)
            case PreemptByHand():
                decisions.judge(self, answers, known)
            case SetOperatorDrain():
                intake.operator_drain(self, command)
            case UpdateApplications(_, added, removed):
                for application in added:
                    intake.application(self, application, answers)
                intake.remove_applications(self, removed, answers)
            case UpdateAllocations(_, _, asks_gone, gone):
                note_minima(self, command)
                intake.allocations(self, command, answers, known)
                for entry in asks_gone:
                    releases.withdraw(self, entry)
                for entry in gone:
                    releases.release(self, entry, answers, known)
            case AttachCallbacks():
                self.attached = command
                self.questions = {}
            case DetachCallbacks():
                self.attached = None
                self.questions = {}
            case AnswerCallbacks():
                decisions.judge(self, answers, known, decisions.take_answers(self, command))
        answers.end()

    def hear_decisions(self, effects: Sequence[Effect], now_ns: int, known: Known) -> None:
        """A slice of the allocation cycle, or a round of preemption, decided *effects*."""
        self._begin(now_ns)
        answers = Answers(effects, self._aside)
        decisions.judge(self, answers, known)
        answers.end()

    def _begin(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.updates = {}
        for partition in self.partitions.values():
            partition.silence(now_ns)

    def overdue(self) -> list[Grave]:
        """Applications whose expiry should have been reported by now. Forgets those of which it need not be."""
        due = []
        for partition in self.partitions.values():
            due += [grave for grave in partition.graves if grave.due_ns <= self.now_ns and not grave.silent]
            partition.graves = [grave for grave in partition.graves if not grave.silent]
        return due

    def _forget(self) -> None:
        """Registration starts afresh; who answers questions goes on doing so."""
        self.rm_id = self.config = ""
        self.partitions = {}
        self.questions = {}

    def _keeps_pace(self, now_ns: int, partition: str, ask: RequestView) -> None:
        """*ask* preempts: before it, less than the limit was served in the window of one interval.

        The members of a gang at rest preempt by one decision.
        """
        view, size = self.partitions[partition], ask.size
        view.served = [(at_ns, other) for at_ns, other in view.served if at_ns > now_ns - INTERVAL_NS]
        share = LIMIT if partition == DEFAULT else 1
        decision = (now_ns, ask.owner) if ask.placeholder and is_at_rest(view, ask.owner) else None
        goes_on = decision is not None and decision == view.last_served
        view.last_served = decision
        for t, amount in size.items() if not goes_on else ():
            cluster = sum(node.capacity.get(t, 0) for node in view.nodes.values())
            taken = sum(other.get(t, 0) for _, other in view.served)
            if amount and cluster and taken >= share * cluster:
                raise ContractBroken("pace", f"{taken} of {cluster} {t} were served within one interval")
        view.served.append((now_ns, size))

    def _aside(self, effect: Effect) -> bool:
        """Take in *effect* if it is one that may come at any time and needs no entry to answer."""
        match effect:
            case ApplicationUpdated():
                self._changed(effect)
            case ApplicationRemoved():
                self._closed(effect)
            case PreemptionDecided(kind="governor", victims=()) | PreemptionDecided(kind="quota" | "by-hand"):
                pass  # What is said of a max names victims of earlier calls as well.
            case PreemptionDecided(partition=name, key=key, victims=victims):
                for victim in victims:
                    if all(request.node != victim.node_id for request in self.known_by_key(name, victim.key)):
                        raise ContractBroken("victim", f"{victim.key} does not run on {victim.node_id}")
                if effect.outcome is Outcome.VICTIM_STUCK:
                    return True  # The ask they were to leave for may have been placed or withdrawn meanwhile.
                # Those of a key that are placed may have another size than those that still wait.
                waiting = [request for request in self.known_by_key(name, key) if not request.node]
                if not waiting:
                    raise ContractBroken("preemptor", f"{key} is placed already")
                if effect.kind == "guarantee" and victims and effect.outcome is Outcome.TRIGGERED:
                    self._keeps_pace(effect.at_ns, name, waiting[0])
            case PredicatesAsked(partition=name, key=key, node_ids=nodes):
                if self.attached is None or not self.attached.predicates:
                    raise ContractBroken("question", "nobody wants to be asked about predicates")
                if not nodes or (unknown := [node for node in nodes if node not in self.partitions[name].nodes]):
                    raise ContractBroken("question", f"asked about nodes {unknown}")
                self._ask(effect.question, effect, name, key)
            case PreemptionPredicatesAsked(partition=name, key=key):
                if self.attached is None or not self.attached.preemption_predicates:
                    raise ContractBroken("question", "nobody wants to be asked about preemption")
                self._ask(effect.question, effect, name, key)
            case SchedulingFailed(application_id, key):
                if self.attached is None or not self.attached.scheduling_states:
                    raise ContractBroken("scheduling state", "nobody wants to be told")
                partition = self.partition_of(application_id)
                found = partition.of_key(key) if partition is not None else []
                if not any(request.owner == application_id and not request.node for request in found):
                    raise ContractBroken("scheduling state", f"{key} of {application_id} is no ask: {found}")
            case EventRecorded() | AsksRecorded() | PlacementsRecorded() | RemovalsRecorded():
                pass
            case _:
                return False
        return True

    def _ask(self, number: int, question: Effect, partition: str, key: str) -> None:
        """A question about an ask that the shim knows, which is pending to it whatever the core is about to do."""
        if number in self.questions:
            raise ContractBroken("question", f"number {number} is in use")
        if all(request.node for request in self.known_by_key(partition, key)):
            raise ContractBroken("question", f"{question}: it is placed already")
        self.questions[number] = question

    def _changed(self, effect: ApplicationUpdated) -> None:
        application_id, state, at_ns, message = effect[:4]
        if at_ns != self.now_ns:
            raise ContractBroken("state time", f"{effect} at {self.now_ns}")
        self.updates.setdefault(application_id, []).append(state)
        if state == "Expired":
            self._expired(application_id)
            return
        partition = self.partition_of(application_id)
        if partition is None:
            raise ContractBroken("state of nobody", f"{effect}")
        application = partition.applications[application_id]
        check_change(application_id, application.state, state, message)
        application.state = str(state)
        if state in ENDED and message != "PartitionRemoved":
            if partition.allocations_of(application_id):
                raise ContractBroken("ended", f"{application_id} is {state} and still holds something")
            if state == "Completed" and partition.asks_of(application_id):
                raise ContractBroken("ended", f"{application_id} is Completed and still asks")
            del partition.applications[application_id]
            for request in partition.of(application_id):
                del partition.requests[request.name]
            if application_id not in self.removing:
                partition.graves.append(Grave(application_id, self.now_ns + EXPIRES_AFTER_NS))

    def _closed(self, effect: ApplicationRemoved) -> None:
        """The record of an application that goes without having finished: once for each, and only for those."""
        application_id, _, at_ns, name = effect[:4]
        if application_id not in self.removing or application_id in self.closed:
            raise ContractBroken("closing record", f"{effect}: the shim removed {self.removing}")
        if at_ns != self.now_ns or application_id not in self.partitions[name].applications:
            raise ContractBroken("closing record", f"{effect} at {self.now_ns}")
        self.closed[application_id] = effect.state

    def _expired(self, application_id: str) -> None:
        for partition in self.partitions.values():
            for grave in partition.graves if application_id not in partition.applications else ():
                if grave.application_id == application_id and grave.due_ns <= self.now_ns:
                    partition.graves.remove(grave)
                    return
        raise ContractBroken("expiry", f"{application_id} expired for no reason")

    def _configured(self, config: str, answers: Answers) -> None:
        """Partitions that are listed no more go silently, but for a failure of all their applications (5.2, 5.4)."""
        listed = _partitions(self.rm_id, config)
        gone = [name for name in self.partitions if name not in listed]
        failing = {"New": ["Failing"], "Accepted": ["Failing"], "Running": ["Failing"], "Failing": ["Failed"]}
        due = {
            application_id: failing[application.state]
            for name in gone
            for application_id, application in self.partitions[name].applications.items()
            if application.state in failing
        }
        answers.pass_asides()
        if self.updates != due:
            raise ContractBroken("partition removed", f"reported {self.updates}, due were {due}")
        for name in gone:
            del self.partitions[name]
        for name in listed:
            self.partitions.setdefault(name, PartitionView())
        self.config = config


def _partitions(rm_id: str, config: str) -> list[str]:
    found = quotas.written(config)
    if found is None:
        raise ContractBroken("configuration", "one that cannot be used was taken")
    return [full_partition_name(rm_id, name) for name in found]
