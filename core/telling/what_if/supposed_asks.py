"""Makes applications and asks that are only supposed. They are in no index, but the limits that would bind them are
known to them."""

from __future__ import annotations

from collections.abc import Sequence

from kornel.core.domain.commands import AllocationSpec, ApplicationSpec, CommandRefused, Fault
from kornel.core.domain.devices import GIVEN_TAG, read_wants
from kornel.core.domain.gangs import HARD
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import read_request
from kornel.core.engine.configuration.dynamic_queues import Prospect
from kornel.core.engine.intake import allocation_intake, application_intake, device_faults
from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.leaf_accounts import make_account
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Shape
from kornel.core.policies.access import Submitter
from kornel.core.policies.owners import NOBODY, groups_of
from kornel.core.policies.placement.applicant import applicant_of
from kornel.core.policies.placement.decide import Placed
from kornel.core.policies.user_limits import binding_limits, choose_group
from kornel.core.preemption import eviction
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.rooms import UNSERVED
from kornel.core.telling.what_if.sandbox import Sandbox
from kornel.core.telling.what_if.supposition import Leaver, SupposeAsk

NAME = "what-if"
LATE = 1 << 62
"""The first arrival number of supposed asks, which come after all real ones."""


def refuse_question(message: str) -> CommandRefused:
    """Returns the error for a question that makes no sense for the partition as it is; to be raised."""
    return CommandRefused(Fault.INVALID_ARGUMENT, message)


def find_applicant(sandbox: Sandbox, question: SupposeAsk) -> Application | str:
    """Returns the application whose asks are supposed: a live one, or a new one in its leaf; or the rejection of a new
    one."""
    state = sandbox.state
    if question.application_id:
        application = state.applications.get(question.application_id)
        if application is None or application.state in UNSERVED:
            raise refuse_question(f"no live application {question.application_id!r}")
        return application
    user, groups = question.user or NOBODY, question.groups
    spec = ApplicationSpec(NAME, question.queue, state.name, user, groups, unresolved=question.unresolved)
    if question.gang:
        together = Resources({name: amount * question.asks for name, amount in question.resources.items()})
        spec = spec._replace(gang_style=HARD, placeholder_ask=together)
    found = _find_leaf(state, question, spec)
    if isinstance(found, str):
        return found
    leaf = sandbox.enter_leaf(*found)
    spec = spec._replace(queue=leaf.path, placeholder_ask=None)
    application = Application(spec, leaf, spec.user, sandbox.now_ns, state.nothing_held)
    application.limit_group = choose_group(leaf, groups_of(spec))
    application.accounts = tuple(
        queue.accounts.get((kind, name)) or make_account(kind, name, queue, limit, len(state.types.names))
        for queue, kind, name, limit in binding_limits(leaf, spec.user, application.limit_group, state.types)
    )
    return application


def _find_leaf(state: PartitionState, question: SupposeAsk, spec: ApplicationSpec) -> tuple[Placed, Prospect] | str:
    applicant = applicant_of(spec)
    named = state.queues.get(question.queue.lower())
    if not question.user and named is not None and named.leaf and not named.draining:
        return application_intake.judge_leaf(state, spec, Placed(named.path, named), applicant)
    found = application_intake.refuse_user(spec, applicant) or application_intake.find_leaf(state, spec, applicant)
    if not question.user and not isinstance(found, str):
        why = f"{question.queue!r} is no leaf that takes work" if question.queue else "no leaf is named"
        raise refuse_question(f"{why}, and placement rules need a user")
    return found


def name_leaf(sandbox: Sandbox, leaf: Queue, question: SupposeAsk) -> list[str]:
    """Returns notes on the leaf of a new application, if it is not the one that *question* names, or not for all."""
    if question.application_id:
        return []
    if leaf.path != question.queue.lower():
        new = ", a new queue" if leaf in sandbox.made else ""
        return [f"the placement rules put the application into {leaf.path}{new}"]
    if not question.user and not Submitter(NOBODY, ()).may_submit(leaf):
        return [f"not everybody may submit to {leaf.path}; no user was named, so none was checked"]
    return []


def refuse_tags(state: PartitionState, spec: AllocationSpec) -> str | None:
    """Returns the rejection of an ask for what its tags say; ``None``: there is none."""
    refused = allocation_intake.refuse_topology(state, spec.topology) if spec.topology is not None else None
    if refused is None and spec.devices is not None:
        refused = device_faults.refuse_devices(state, spec, None)
    return refused


def shape_of(state: PartitionState, question: SupposeAsk) -> Shape:
    """Returns what each ask of *question* wants as a shape that the partition does not remember. Raises an error if no
    node ever had one of its types, or if the wish for devices makes no sense."""
    resources, devices = question.resources, read_wants(question.tags)
    if devices is not None and devices.given:
        raise refuse_question(f"{GIVEN_TAG} names devices that only the core chooses")
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


def name_leavers(victims: Sequence[Allocation], adjusted: Sequence[int] = ()) -> tuple[Leaver, ...]:
    """Returns *victims* with their users and priorities. *adjusted*: their priorities for the queue that preempts;
    none: their own."""
    records = map(eviction.victim_record, victims, adjusted or [victim.priority for victim in victims])
    return tuple(
        Leaver(*record, victim.application.user, victim.spec.priority, victim.spec.originator)
        for victim, record in zip(victims, records, strict=True)
    )


def ask_again(lost: Allocation, number: int, now_ns: int) -> Allocation:
    """Returns an ask for what *lost* held, with the key of *lost*."""
    spec = lost.spec._replace(node_id="")
    return Allocation(spec, lost.application, lost.shape, now_ns, LATE + number)
