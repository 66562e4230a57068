"""A scripted core that accepts everything it is sent, and places every ask that fits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Container
from typing import Final, TypeVar

import grpc
from google.protobuf.message import Message

from kornel.conformance.messages import DEVICES_ATTRIBUTE, FOREIGN_TAG, read_amounts
from kornel.conformance.shim.books import Books, Node, Running
from kornel.conformance.shim.checks import Findings
from kornel.conformance.shim.judge import Judge, named_devices
from kornel.conformance.shim.lines import Kind, Lines, Request
from kornel.conformance.shim.questions import Question, Questions
from kornel.conformance.shim.sender import DEMANDS, Behaviour, Sender
from kornel.si.v1 import si_pb2 as si

_ON_PURPOSE: Final = "refused by the conformance kit on purpose"
Answer = TypeVar("Answer", bound=Message)


class ScriptedCore:
    """The core of one session. It keeps its state when its server is stopped."""

    def __init__(self, manners: Behaviour, findings: Findings) -> None:
        self.findings: Final = findings
        self.judge: Final = Judge(findings)
        self.lines: Final = Lines(self)
        self.questions: Final = Questions(self)
        self.voice: Final = Sender(self.lines, manners)
        self.books = Books()
        self.releases: Final[dict[str, int]] = {}
        """The type with which each key was released last."""
        self.refused: Final[set[Kind]] = set()
        """The kinds of which one entry was refused already."""
        self.heard_of: Final[set[Kind]] = set()
        """The kinds of which the shim has sent an entry: a new node, a new application, or its own ask or
        allocation."""
        self.saw_placeholders = False
        self.replacing: Final[dict[str, si.Allocation]] = {}
        """The real asks, by the key of the placeholder whose release was asked for."""
        self.news: Final = asyncio.Event()
        self.holds_asks = manners.hold_asks
        """Tells whether asks wait for the script of the session."""
        self._manners = manners
        self._later: Final[set[asyncio.Task[None]]] = set()

    def register_manager(self, request: si.RegisterResourceManagerRequest) -> si.RegisterResourceManagerResponse:
        """Register the RM, and drop everything that it reported before."""
        self.judge.judge_registration(request.rmID)
        self.voice.rm = request.rmID
        self.voice.states.clear()
        self.books = Books()
        self.replacing.clear()
        self.questions.forget()
        self.lines.drop_messages()
        self.news.set()
        return self.voice.with_extra_fields(si.RegisterResourceManagerResponse())

    def admits(self, kind: Kind, request: Request) -> bool:
        """Tells whether the RM may send *request*."""
        return self.judge.admits(kind, request)

    def judge_claim(self, kind: Kind, received: str, sent: int) -> None:
        """Judge how many entries the RM says it has received."""
        self.judge.judge_claim(kind, received, sent)

    def handle_request(self, request: Request) -> None:
        """Handle *request* as a real core would."""
        match request:
            case si.NodeRequest():
                self._handle_nodes(request)
            case si.ApplicationRequest():
                self._handle_applications(request)
            case si.AllocationRequest():
                self._handle_allocations(request)
        self.place_asks()
        self.news.set()

    def drop_registration(self, known: Container[str]) -> None:
        """Drop the RM: its streams end, and it has to register again. *known*: the keys of the allocations that it has
        surely read."""
        self.judge.wants_registration = True
        self.judge.to_recover = {run.key: run for run in self.books.real_allocations() if run.key in known}
        self.judge.ended = self.releases.keys() - self.books.running.keys() - self.books.asks.keys()
        self.end_streams(grpc.StatusCode.FAILED_PRECONDITION, "resync-required: register again")

    def end_streams(self, code: grpc.StatusCode, text: str) -> None:
        """End all streams of the RM."""
        for kind in Kind:
            self.lines.end_stream(kind, code, text)
        self.questions.end_stream(code, text)

    def place_asks(self) -> None:
        """Place every ask that fits, or ask the shim about it if it wants to be asked."""
        for key, ask in list(self.books.asks.items()):
            if self.holds_asks or key not in self.books.asks or self._takes_placeholder(ask):
                continue
            rooms = self.books.list_rooms(ask)
            if self.questions.wanted:
                self.questions.consider_ask(ask, rooms)
            elif rooms:
                self.place_ask(ask, rooms[0])

    def place_ask(self, ask: si.Allocation, node: str) -> None:
        """Place *ask* on *node*. For a placement that a question names, ``new`` is sent a moment later."""
        del self.books.asks[ask.allocationKey]
        run = Running(ask, node, self.books.choose_devices(ask, node) or ())
        self.books.placing[run.key] = run
        if self.questions.is_dependent(ask):
            self.questions.note_placed(ask, node)
            self.place_asks()

        def start() -> None:
            if self.books.placing.pop(run.key, None) is not None:
                self._start_allocation(run)

        if self.questions.is_awaited(run.key):
            self._do_later(self.questions.hold_s, start)
        else:
            start()

    def has_tried_order(self) -> bool:
        """Tells whether a question had to wait for a placement, or none will have to: at most one ask is dependent."""
        placed = (*self.books.running.values(), *self.books.placing.values())
        known = (*self.books.asks.values(), *(run.allocation for run in placed))
        alone = sum(map(self.questions.is_dependent, known)) < 2
        return self.questions.ordered or (alone and not self.questions.are_open)

    def admits_subscription(self, rm: str) -> bool:
        """Tells whether a program may subscribe for *rm*."""
        return self.judge.admits_subscription(rm)

    def judge_order(self, key: str, after: str, *, in_place: bool) -> None:
        """Judge the answer about *key*, which had to wait for *after*."""
        self.judge.judge_order(key, after, in_place=in_place)

    def is_placed(self, key: str) -> bool:
        """Tells whether *key* was placed, even if ``new`` was not sent yet."""
        return key in self.books.running or key in self.books.placing

    def is_announced(self, key: str) -> bool:
        """Tells whether ``new`` was sent for *key*."""
        return key in self.books.running

    def handle_answer(self, question: Question) -> None:
        """Place an ask that may run, unless it went away meanwhile or has to be asked about again."""
        ask = self.books.asks.get(question.key)
        node = question.allowed
        if ask is None or self.holds_asks or self.questions.is_stale(question):
            pass
        elif node in self.books.list_rooms(ask):
            self.place_ask(ask, node)
        self.news.set()

    async def wait_until(self, condition: Callable[[], object], within_s: float) -> bool:
        """Tells whether *condition* becomes true within *within_s*."""
        try:
            async with asyncio.timeout(within_s):
                while not condition():
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End all tasks."""
        for task in self._later:
            task.cancel()
        if self._later:
            await asyncio.wait(self._later)

    def _handle_nodes(self, request: si.NodeRequest) -> None:
        answer = si.NodeResponse()
        self.questions.changes += 1
        for info in request.nodes:
            node = self.books.nodes.get(info.nodeID)
            match info.action:
                case si.NodeInfo.CREATE | si.NodeInfo.CREATE_DRAIN:
                    self._create_node(info, answer)
                case si.NodeInfo.UPDATE if node is not None and info.HasField("schedulableResource"):
                    node.capacity = read_amounts(info.schedulableResource)
                case si.NodeInfo.DRAIN_NODE if node is not None:
                    node.draining = True
                case si.NodeInfo.DRAIN_TO_SCHEDULABLE if node is not None:
                    node.draining = False
                case si.NodeInfo.DECOMISSION if node is not None:
                    self._remove_node(info.nodeID)
        if answer.accepted or answer.rejected:
            self._answer_later(self._answer_nodes, answer)

    def _create_node(self, info: si.NodeInfo, answer: si.NodeResponse) -> None:
        self.heard_of.add(Kind.NODE)
        if info.nodeID in self.books.nodes:
            answer.rejected.add(nodeID=info.nodeID, reason="node-exists: the node is there already")
        elif self._is_refused(Kind.NODE):
            answer.rejected.add(nodeID=info.nodeID, reason=f"invalid-resource: {_ON_PURPOSE}")
        else:
            draining = info.action == si.NodeInfo.CREATE_DRAIN
            node = Node(read_amounts(info.schedulableResource), draining)
            node.devices = _read_devices(info)
            self.books.nodes[info.nodeID] = node
            answer.accepted.add(nodeID=info.nodeID)

    def _remove_node(self, node: str) -> None:
        del self.books.nodes[node]
        self.books.placing = {key: run for key, run in self.books.placing.items() if run.node != node}
        for run in self.books.running_on(node):
            del self.books.running[run.key]
            self.voice.demand_release(run, si.STOPPED_BY_RM)

    def _answer_nodes(self, answer: si.NodeResponse) -> None:
        for accepted in answer.accepted:
            if (node := self.books.nodes.get(accepted.nodeID)) is not None:
                node.accepted = True
        self.voice.send_message(Kind.NODE, answer)

    def _handle_applications(self, request: si.ApplicationRequest) -> None:
        answer = si.ApplicationResponse()
        for app in request.new:
            self.heard_of.add(Kind.APPLICATION)
            if app.applicationID in self.books.apps:
                answer.rejected.add(applicationID=app.applicationID, reason="application-exists: it is there already")
            elif self._is_refused(Kind.APPLICATION):
                answer.rejected.add(applicationID=app.applicationID, reason=f"no-queue: {_ON_PURPOSE}")
            else:
                self.books.apps[app.applicationID] = False
                answer.accepted.add(applicationID=app.applicationID)
        if answer.accepted or answer.rejected:
            self._answer_later(self._answer_applications, answer)
        for gone in request.remove:
            for run in self.books.remove_application(gone.applicationID):
                self.judge.to_recover.pop(run.key, None)
                self.voice.demand_release(run, si.STOPPED_BY_RM)

    def _answer_applications(self, answer: si.ApplicationResponse) -> None:
        for accepted in answer.accepted:
            self.books.apps[accepted.applicationID] = True
        self.voice.send_message(Kind.APPLICATION, answer)

    def _handle_allocations(self, request: si.AllocationRequest) -> None:
        for allocation in request.allocations:
            self._handle_allocation(allocation)
        for old in request.asks:
            self._handle_allocation(_convert_old_ask(old), old=True)
        for withdrawn in request.releases.allocationAsksToRelease:
            self.books.asks.pop(withdrawn.allocationKey, None)
        for release in request.releases.allocationsToRelease:
            self._handle_release(release)

    def _handle_allocation(self, allocation: si.Allocation, *, old: bool = False) -> None:
        key, app = allocation.allocationKey, allocation.applicationID
        if allocation.nodeID:
            self.judge.judge_report(allocation, self.books)
        if FOREIGN_TAG in allocation.allocationTags:
            self.books.foreign[key] = Running(allocation, allocation.nodeID)
            return
        self.heard_of.add(Kind.ALLOCATION)
        self.judge.judge_application(allocation, self.books)
        if (run := self.books.running.get(key)) is not None:
            if allocation.HasField("resourcePerAlloc") and not old:
                run.allocation.resourcePerAlloc.CopyFrom(allocation.resourcePerAlloc)
            return
        if allocation.nodeID:
            self.books.asks.pop(key, None)
            self._start_allocation(Running(allocation, allocation.nodeID, named_devices(allocation)))
            return
        self.judge.judge_ask(allocation, self.books)
        self.saw_placeholders |= allocation.placeholder
        if self._is_refused(Kind.ALLOCATION):
            self.voice.refuse_ask(key, app, f"application-state: {_ON_PURPOSE}", old=old)
            return
        self.books.asks[key] = allocation
        if app not in self.voice.states:
            self.voice.send_state(app, "Accepted")

    def _start_allocation(self, run: Running) -> None:
        self.books.running[run.key] = run
        self.questions.changes += 1
        self.judge.ended.discard(run.key)
        if run.app not in self.voice.states:
            self.voice.send_state(run.app, "Accepted")
        whole = not any(ask.applicationID == run.app for ask in self.books.asks.values())
        if self.voice.states[run.app] == "Accepted" and (whole or not run.allocation.placeholder):
            self.voice.send_state(run.app, "Running")
        self.voice.announce_allocation(run)

    def _takes_placeholder(self, ask: si.Allocation) -> bool:
        """Tells whether *ask* is to take the place of a placeholder, and if so asks for the placeholder's release."""
        if ask.placeholder or not ask.taskGroupName:
            return False
        if any(waiting.allocationKey == ask.allocationKey for waiting in self.replacing.values()):
            return True
        for run in self.books.list_placeholders():
            same = (run.app, run.allocation.taskGroupName) == (ask.applicationID, ask.taskGroupName)
            if same and run.key not in self.replacing:
                if not self._manners.hold_gang:
                    self.replacing[run.key] = ask
                    self.voice.demand_release(run, si.PLACEHOLDER_REPLACED)
                return True
        return False

    def _handle_release(self, release: si.AllocationRelease) -> None:
        if not release.applicationID:
            self.books.foreign.pop(release.allocationKey, None)
            return
        key = release.allocationKey or release.allocationID.removesuffix("-0")
        self.releases[key] = release.terminationType
        if release.terminationType in DEMANDS:
            self.judge.judge_confirmation(key, self.voice.demanded[key])
        self.books.asks.pop(key, None)
        self.books.placing.pop(key, None)
        self.judge.to_recover.pop(key, None)
        self.questions.settle(key)
        self.questions.changes += 1
        gone = self.books.running.pop(key, None)
        if gone is None:
            return
        if release.terminationType not in DEMANDS:
            self.voice.demand_release(gone, si.STOPPED_BY_RM)
        if (real := self.replacing.pop(key, None)) is not None:
            self.books.asks.pop(real.allocationKey, None)
            self._start_allocation(Running(real, gone.node, gone.devices))
            self._judge_replacement(key, release.terminationType)

    def _judge_replacement(self, key: str, termination: int) -> None:
        if termination == si.PLACEHOLDER_REPLACED:
            self.findings.mark_kept("S9")
        elif termination in DEMANDS:
            name = si.TerminationType.Name(si.TerminationType.ValueType(termination))
            self.findings.mark_broken("S9", f"{key} was confirmed with {name}")

    def _is_refused(self, kind: Kind) -> bool:
        """Tells whether this entry has to be refused. Only the first entry of a kind is."""
        if kind not in self._manners.refuse or kind in self.refused:
            return False
        self.refused.add(kind)
        return True

    def _answer_later(self, act: Callable[[Answer], None], answer: Answer) -> None:
        """Call *act* once the acceptance is due."""
        self._do_later(self._manners.accept_after_s, lambda: act(answer))

    def _do_later(self, delay_s: float, act: Callable[[], None]) -> None:
        """Call *act* after *delay_s*, unless the RM has registered again in the meantime."""

        async def do_later(registration: int) -> None:
            await asyncio.sleep(delay_s)
            if registration == self.judge.registrations:
                act()
                self.place_asks()
                self.news.set()

        task = asyncio.create_task(do_later(self.judge.registrations), name="scripted core answers")
        self._later.add(task)
        task.add_done_callback(self._later.discard)


def _convert_old_ask(old: si.AllocationAsk) -> si.Allocation:
    """Returns an ask of the older generation as a message of the current one."""
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


def _read_devices(info: si.NodeInfo) -> tuple[str, ...]:
    """Returns the IDs of the devices that a node entry reports. A list that cannot be read has none."""
    try:
        return tuple(str(device["id"]) for device in json.loads(info.attributes.get(DEVICES_ATTRIBUTE) or "[]"))
    except (ValueError, LookupError, TypeError):
        return ()
