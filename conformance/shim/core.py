"""The scripted core: accepts what it is told, and places what fits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

import grpc
from google.protobuf.message import Message
from si.v1 import si_pb2 as si

from conformance.messages import FOREIGN_TAG, read_amounts
from conformance.shim.books import Books, Node, Running
from conformance.shim.checks import Findings
from conformance.shim.judge import Judge
from conformance.shim.lines import Kind, Lines, Request
from conformance.shim.voice import Manners, Voice

DEMANDS: Final = (si.TIMEOUT, si.PREEMPTED_BY_SCHEDULER, si.PLACEHOLDER_REPLACED)
_ON_PURPOSE: Final = "refused by the conformance kit on purpose"
Answer = TypeVar("Answer", bound=Message)


class ScriptedCore:
    """One core for one session; it survives its server."""

    def __init__(self, manners: Manners, findings: Findings) -> None:
        self.findings: Final = findings
        self.judge: Final = Judge(findings)
        self.lines: Final = Lines(self)
        self.voice: Final = Voice(self.lines, manners)
        self.books = Books()
        self.releases: Final[dict[str, int]] = {}
        """The type with which each key was released last."""
        self.refused: Final[set[Kind]] = set()
        """Kinds of which one was refused."""
        self.heard_of: Final[set[Kind]] = set()
        """Kinds of which the shim has named one: a new node, a new application, an ask or allocation of its own."""
        self.saw_placeholders = False
        self.replacing: Final[dict[str, si.Allocation]] = {}
        """Real asks by the placeholder whose end was asked for."""
        self.news: Final = asyncio.Event()
        self._manners = manners
        self._later: Final[set[asyncio.Task[None]]] = set()

    def registers(self, request: si.RegisterResourceManagerRequest) -> si.RegisterResourceManagerResponse:
        """Take the RM in; everything it reported before is forgotten."""
        self.judge.registers(request.rmID)
        self.voice.rm = request.rmID
        self.voice.states.clear()
        self.books = Books()
        self.replacing.clear()
        self.lines.forget()
        self.news.set()
        return self.voice.dressed(si.RegisterResourceManagerResponse())

    def admits(self, kind: Kind, request: Request) -> bool:
        """Whether the RM may talk."""
        return self.judge.admits(kind, request)

    def hears(self, request: Request) -> None:
        """Do what a core does with *request*."""
        match request:
            case si.NodeRequest():
                self._nodes(request)
            case si.ApplicationRequest():
                self._applications(request)
            case si.AllocationRequest():
                self._allocations(request)
        self.place()
        self.news.set()

    def forget(self) -> None:
        """Know the RM no more: its streams end, and it has to register again."""
        self.judge.wants_registration = True
        self.judge.to_recover = {run.key: run for run in self.books.reals()}
        for kind in Kind:
            self.lines.end(kind, grpc.StatusCode.FAILED_PRECONDITION, "resync-required: register again")

    def place(self) -> None:
        """Place every ask that fits."""
        for key, ask in list(self.books.asks.items()):
            if not self._replaces(ask) and (node := self.books.room_for(ask)) is not None:
                del self.books.asks[key]
                self._run(Running(ask, node))

    async def until(self, condition: Callable[[], object], within_s: float) -> bool:
        """Whether *condition* comes to hold in that time."""
        try:
            async with asyncio.timeout(within_s):
                while not condition():
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Leave nothing running."""
        for task in self._later:
            task.cancel()
        if self._later:
            await asyncio.wait(self._later)

    def _nodes(self, request: si.NodeRequest) -> None:
        answer = si.NodeResponse()
        for info in request.nodes:
            node = self.books.nodes.get(info.nodeID)
            match info.action:
                case si.NodeInfo.CREATE | si.NodeInfo.CREATE_DRAIN:
                    self._create(info, answer)
                case si.NodeInfo.UPDATE if node is not None and info.HasField("schedulableResource"):
                    node.capacity = read_amounts(info.schedulableResource)
                case si.NodeInfo.DRAIN_NODE if node is not None:
                    node.draining = True
                case si.NodeInfo.DRAIN_TO_SCHEDULABLE if node is not None:
                    node.draining = False
                case si.NodeInfo.DECOMISSION if node is not None:
                    self._remove(info.nodeID)
        if answer.accepted or answer.rejected:
            self._soon(self._answer_nodes, answer)

    def _create(self, info: si.NodeInfo, answer: si.NodeResponse) -> None:
        self.heard_of.add(Kind.NODE)
        if info.nodeID in self.books.nodes:
            answer.rejected.add(nodeID=info.nodeID, reason="node-exists: the node is there already")
        elif self._refuses(Kind.NODE):
            answer.rejected.add(nodeID=info.nodeID, reason=f"invalid-resource: {_ON_PURPOSE}")
        else:
            draining = info.action == si.NodeInfo.CREATE_DRAIN
            self.books.nodes[info.nodeID] = Node(read_amounts(info.schedulableResource), draining)
            answer.accepted.add(nodeID=info.nodeID)

    def _remove(self, node: str) -> None:
        del self.books.nodes[node]
        for run in self.books.on(node):
            del self.books.running[run.key]
            self.voice.demand(run, si.STOPPED_BY_RM)

    def _answer_nodes(self, answer: si.NodeResponse) -> None:
        for accepted in answer.accepted:
            if (node := self.books.nodes.get(accepted.nodeID)) is not None:
                node.accepted = True
        self.voice.say(Kind.NODE, answer)

    def _applications(self, request: si.ApplicationRequest) -> None:
        answer = si.ApplicationResponse()
        for app in request.new:
            self.heard_of.add(Kind.APPLICATION)
            if app.applicationID in self.books.apps:
                answer.rejected.add(applicationID=app.applicationID, reason="application-exists: it is there already")
            elif self._refuses(Kind.APPLICATION):
                answer.rejected.add(applicationID=app.applicationID, reason=f"no-queue: {_ON_PURPOSE}")
            else:
                self.books.apps[app.applicationID] = False
                answer.accepted.add(applicationID=app.applicationID)
        if answer.accepted or answer.rejected:
            self._soon(self._answer_applications, answer)
        for gone in request.remove:
            for run in self.books.remove_application(gone.applicationID):
                self.judge.to_recover.pop(run.key, None)
                self.voice.demand(run, si.STOPPED_BY_RM)

    def _answer_applications(self, answer: si.ApplicationResponse) -> None:
        for accepted in answer.accepted:
            self.books.apps[accepted.applicationID] = True
        self.voice.say(Kind.APPLICATION, answer)

    def _allocations(self, request: si.AllocationRequest) -> None:
        for allocation in request.allocations:
            self._allocation(allocation)
        for old in request.asks:
            self._allocation(_modern(old), old=True)
        for withdrawn in request.releases.allocationAsksToRelease:
            self.books.asks.pop(withdrawn.allocationKey, None)
        for release in request.releases.allocationsToRelease:
            self._release(release)

    def _allocation(self, allocation: si.Allocation, *, old: bool = False) -> None:
        key, app = allocation.allocationKey, allocation.applicationID
        if allocation.nodeID:
            self.judge.reports(allocation, self.books)
        if FOREIGN_TAG in allocation.allocationTags:
            self.books.foreign[key] = Running(allocation, allocation.nodeID)
            return
        self.heard_of.add(Kind.ALLOCATION)
        self.judge.belongs(allocation, self.books)
        if key in self.books.running:
            return
        if allocation.nodeID:
            self.books.asks.pop(key, None)
            self._run(Running(allocation, allocation.nodeID))
            return
        self.judge.asks(allocation, self.books)
        self.saw_placeholders |= allocation.placeholder
        if self._refuses(Kind.ALLOCATION):
            self.voice.refuse_ask(key, app, f"application-state: {_ON_PURPOSE}", old=old)
            return
        self.books.asks[key] = allocation
        if app not in self.voice.states:
            self.voice.update(app, "Accepted")

    def _run(self, run: Running) -> None:
        self.books.running[run.key] = run
        if run.app not in self.voice.states:
            self.voice.update(run.app, "Accepted")
        whole = not any(ask.applicationID == run.app for ask in self.books.asks.values())
        if self.voice.states[run.app] == "Accepted" and (whole or not run.allocation.placeholder):
            self.voice.update(run.app, "Running")
        self.voice.announce(run)

    def _replaces(self, ask: si.Allocation) -> bool:
        """Whether *ask* is to take the place of a placeholder; if so, that one's end is asked for."""
        if ask.placeholder or not ask.taskGroupName:
            return False
        if any(waiting.allocationKey == ask.allocationKey for waiting in self.replacing.values()):
            return True
        for run in self.books.placeholders():
            same = (run.app, run.allocation.taskGroupName) == (ask.applicationID, ask.taskGroupName)
            if same and run.key not in self.replacing:
                if not self._manners.hold_gang:
                    self.replacing[run.key] = ask
                    self.voice.demand(run, si.PLACEHOLDER_REPLACED)
                return True
        return False

    def _release(self, release: si.AllocationRelease) -> None:
        if not release.applicationID:
            self.books.foreign.pop(release.allocationKey, None)
            return
        key = release.allocationKey or release.allocationID.removesuffix("-0")
        self.releases[key] = release.terminationType
        self.books.asks.pop(key, None)
        self.judge.to_recover.pop(key, None)
        gone = self.books.running.pop(key, None)
        if gone is None:
            return
        if release.terminationType not in DEMANDS:
            self.voice.demand(gone, si.STOPPED_BY_RM)
        if (real := self.replacing.pop(key, None)) is not None:
            self.books.asks.pop(real.allocationKey, None)
            self._run(Running(real, gone.node))
            self._judge_replacement(key, release.terminationType)

    def _judge_replacement(self, key: str, termination: int) -> None:
        if termination == si.PLACEHOLDER_REPLACED:
            self.findings.kept("S9")
        elif termination in DEMANDS:
            name = si.TerminationType.Name(si.TerminationType.ValueType(termination))
            self.findings.broken("S9", f"{key} was confirmed with {name}")

    def _refuses(self, kind: Kind) -> bool:
        """Whether this is the one of its kind to be refused."""
        if kind not in self._manners.refuse or kind in self.refused:
            return False
        self.refused.add(kind)
        return True

    def _soon(self, act: Callable[[Answer], None], answer: Answer) -> None:
        """Do *act* once the acceptance is due, unless another registration has come in between."""

        async def later(registration: int) -> None:
            await asyncio.sleep(self._manners.accept_after_s)
            if registration == self.judge.registrations:
                act(answer)
                self.place()
                self.news.set()

        task = asyncio.create_task(later(self.judge.registrations), name="scripted core answers")
        self._later.add(task)
        task.add_done_callback(self._later.discard)


def _modern(old: si.AllocationAsk) -> si.Allocation:
    """An ask of the older generation in the words of the current one."""
    return si.Allocation(
        allocationKey=old.allocationKey,
        applicationID=old.applicationID,
        partitionName=old.partitionName,
        resourcePerAlloc=old.resourceAsk,
        priority=old.priority,
        taskGroupName=old.taskGroupName,
        placeholder=old.placeholder,
        originator=old.Originator,
        allocationTags=old.tags,
    )
