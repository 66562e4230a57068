"""Makes applications and asks that are only supposed. They are in no index, but the limits that would bind them are
known to them."""

from __future__ import annotations

from kornel.core.domain.commands import AllocationSpec, ApplicationSpec, CommandRefused, Fault
from kornel.core.domain.devices import GIVEN_TAG, read_wants
from kornel.core.domain.gangs import HARD
from kornel.core.domain.topology import read_request
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.shapes import Shape
from kornel.core.model.users import Account
from kornel.core.policies.owners import groups_of
from kornel.core.policies.user_limits import binding_limits, choose_group
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.rooms import UNSERVED
from kornel.core.telling.configuration.placement_answer import find_placement
from kornel.core.telling.what_if.supposition import SupposeAsk

NAME = "what-if"
LATE = 1 << 62
"""The first arrival number of supposed asks, which come after all real ones."""


def refuse_question(message: str) -> CommandRefused:
    """Returns the error for a question that makes no sense for the partition as it is; to be raised."""
    return CommandRefused(Fault.INVALID_ARGUMENT, message)


def find_applicant(state: PartitionState, question: SupposeAsk, now_ns: int) -> Application:
    """Returns the application whose asks are supposed: a live one, or one that would be new in its leaf."""
    if question.application_id:
        application = state.applications.get(question.application_id)
        if application is None or application.state in UNSERVED:
            raise refuse_question(f"no live application {question.application_id!r}")
        return application
    path = question.queue or _queue_by_rules(state, question)
    leaf = state.queues.get(path.lower())
    if leaf is None or not leaf.leaf or leaf.draining:
        raise refuse_question(f"no leaf queue {path!r} that takes applications")
    width = len(state.types.names)
    style = HARD if question.gang else ""
    spec = ApplicationSpec(NAME, leaf.path, state.name, question.user, question.groups, gang_style=style)
    application = Application(spec, leaf, question.user or "nobody", now_ns, state.nothing_held)
    application.limit_group = choose_group(leaf, groups_of(spec))
    application.accounts = tuple(
        queue.accounts.get((kind, name)) or Account(kind, name, queue, limit, width)
        for queue, kind, name, limit in binding_limits(leaf, application.user, application.limit_group)
    )
    return application


def _queue_by_rules(state: PartitionState, question: SupposeAsk) -> str:
    """Returns the leaf that the placement rules find for an application of the owner that names no queue."""
    found = find_placement(state, question.user or "nobody", question.groups, "", {})
    if not found.queue:
        raise refuse_question(f"name a queue: without one the placement rules find none ({'; '.join(found.outcomes)})")
    if not found.exists:
        raise refuse_question(f"the placement rules would make a new queue {found.queue} below {found.above}")
    return found.queue


def shape_of(state: PartitionState, question: SupposeAsk) -> Shape:
    """Returns what each ask of *question* wants as a shape that the partition does not remember. Raises an error if no
    node ever had one of its types, or if the wish for devices makes no sense."""
    resources, devices = question.resources, read_wants(question.tags)
    if devices is not None and (devices.flaw or devices.given):
        raise refuse_question(devices.flaw or f"{GIVEN_TAG} names devices that only the core chooses")
    if resources.has_negative() or resources.is_zero():
        raise refuse_question("an ask needs amounts above 0 and none below")
    known = state.types.known_shapes().get(resources if devices is None else (resources, devices))
    if known is not None:
        return known
    pairs: list[tuple[int, int]] = []
    for name, amount in resources.items():
        t = state.types.known_index(name)
        if t is None and amount:
            raise refuse_question(f"no node, queue or ask ever had the resource type {name!r}, so it fits nowhere")
        if t is not None and amount:
            pairs.append((t, amount))
    return Shape(resources, tuple(sorted(pairs)), devices=devices)


def supposed_asks(
    application: Application, shape: Shape, question: SupposeAsk, count: int, now_ns: int
) -> list[Allocation]:
    """Returns *count* of the equal asks that *question* supposes for *application*."""
    topology = read_request(question.tags)
    if topology is not None and topology.flaw:
        raise refuse_question(topology.flaw)
    return [
        Allocation(
            AllocationSpec(
                f"{NAME}-{number + 1}",
                application.application_id,
                application.spec.partition,
                shape.resources,
                question.priority,
                allow_preempt_other=question.allow_preempt_other,
                required_node=question.required_node,
                task_group=NAME if question.gang else "",
                placeholder=question.gang,
                tags=question.tags,
                topology=topology,
                devices=shape.devices,
            ),
            application,
            shape,
            now_ns,
            LATE + number,
        )
        for number in range(count)
    ]


def ask_again(lost: Allocation, number: int, now_ns: int) -> Allocation:
    """Returns an ask for what *lost* held, with the key of *lost*."""
    spec = lost.spec._replace(node_id="")
    return Allocation(spec, lost.application, lost.shape, now_ns, LATE + number)
