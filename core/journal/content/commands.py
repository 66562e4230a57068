"""Converts commands to messages of ``kornel.v1`` and back.

Successive entries that differ only in their keys form one run: a shim sends many equal asks, and for all but the first
of them only the key has to be written. Everything else is converted field by field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import add, attrgetter, eq, itemgetter
from typing import Any, Final, cast

from kornel.core.domain.commands import (
    PLAIN_FIELDS,
    AllocationSpec,
    AnswerCallbacks,
    ApplicationRef,
    ApplicationSpec,
    AttachCallbacks,
    Command,
    DetachCallbacks,
    NodeSpec,
    PlacementKey,
    PredicatesAnswer,
    PreemptionNoticeAnswer,
    PreemptionPredicatesAnswer,
    RegisterManager,
    ReleaseSpec,
    SetOperatorDrain,
    UnregisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.devices import read_wants
from kornel.core.domain.resources import Resources
from kornel.core.domain.topology import read_request
from kornel.core.service.wire.message_bytes import ENCODING, encode_field, join_fields
from kornel.v1 import journal_pb2 as pb

_KEY: Final = itemgetter(AllocationSpec._fields.index("key"))
_ALL_BUT_KEY: Final = itemgetter(slice(AllocationSpec._fields.index("application_id"), None))
_APPLICATION: Final = itemgetter(AllocationSpec._fields.index("application_id"))
_REST: Final = itemgetter(slice(AllocationSpec._fields.index("partition"), None))
_TAGS: Final = itemgetter(AllocationSpec._fields.index("tags"))

RESTS_KNOWN: Final = 4_096
"""The most asks, different apart from their names, whose bytes are remembered."""

_KNOWN_RESTS: Final[dict[tuple[object, ...], str]] = {}

_ALLOCATIONS: Final = pb.JournalCommand.DESCRIPTOR.fields_by_name["allocations"].number

_new: Final = tuple.__new__

_RELEASE_KEY: Final = ReleaseSpec._fields.index("key")


def encode_command(command: Command, into: pb.JournalCommand) -> None:
    """Writes *command* into *into*, which is an empty message."""
    _ENCODERS[type(command)](command, into)


def write_command(command: Command) -> bytes:
    """Returns *command* as the bytes of a message. Those of allocations, which come by the thousand, are joined without
    building the message that they would have to be read into."""
    if type(command) is UpdateAllocations:
        return encode_field(_ALLOCATIONS, _write_allocations(command))
    message = pb.JournalCommand()
    encode_command(command, message)
    return message.SerializeToString()


def decode_command(message: pb.JournalCommand) -> Command:
    """Returns the command in *message*. Raises ValueError if it contains none that this version knows."""
    which = message.WhichOneof("command")
    if which is None:
        raise ValueError("a record of a command has none that this version knows")
    return _DECODERS[which](getattr(message, which))


def _encode_registration(command: RegisterManager, into: pb.JournalCommand) -> None:
    message = into.register
    message.SetInParent()
    message.rm_id = command.rm_id
    message.config = command.config
    message.policy_group = command.policy_group
    message.version = command.version
    _add_pairs(message.build_info, command.build_info)
    _add_pairs(message.extra_config, command.extra_config)
    message.of_file = command.of_file


def _decode_registration(message: pb.JournalRegistration) -> RegisterManager:
    return RegisterManager(
        message.rm_id,
        message.config,
        message.policy_group,
        message.version,
        _read_pairs(message.build_info),
        _read_pairs(message.extra_config),
        message.of_file,
    )


def _encode_unregistration(command: UnregisterManager, into: pb.JournalCommand) -> None:
    into.unregister.SetInParent()
    into.unregister.rm_id = command.rm_id


def _encode_configuration(command: UpdateConfiguration, into: pb.JournalCommand) -> None:
    message = into.configuration
    message.SetInParent()
    message.rm_id = command.rm_id
    message.config = command.config
    message.policy_group = command.policy_group
    _add_pairs(message.extra_config, command.extra_config)
    message.of_file = command.of_file


def _decode_configuration(message: pb.JournalConfiguration) -> UpdateConfiguration:
    extra_config = _read_pairs(message.extra_config)
    return UpdateConfiguration(message.rm_id, message.config, message.policy_group, extra_config, message.of_file)


def _encode_nodes(command: UpdateNodes, into: pb.JournalCommand) -> None:
    into.nodes.SetInParent()
    into.nodes.rm_id = command.rm_id
    for spec in command.nodes:
        node = into.nodes.nodes.add()
        node.node_id = spec.node_id
        node.action = spec.action
        node.partition = spec.partition
        _add_pairs(node.attributes, spec.attributes)
        _write_resources(spec.capacity, node.capacity)
        _write_resources(spec.occupied, node.occupied)
        for existing in spec.existing:
            _write_allocation(existing, node.existing.add())


def _decode_nodes(message: pb.JournalNodes) -> UpdateNodes:
    return UpdateNodes(
        message.rm_id,
        tuple(
            NodeSpec(
                node.node_id,
                node.action,
                node.partition,
                _read_pairs(node.attributes),
                _read_resources(node, "capacity"),
                _read_resources(node, "occupied"),
                tuple(map(_read_allocation, node.existing)),
            )
            for node in message.nodes
        ),
    )


def _encode_drain(command: SetOperatorDrain, into: pb.JournalCommand) -> None:
    message = into.drain
    message.SetInParent()
    message.rm_id = command.rm_id
    message.partition = command.partition
    message.node_id = command.node_id
    message.drained = command.drained
    message.by = command.by


def _decode_drain(message: pb.JournalDrain) -> SetOperatorDrain:
    return SetOperatorDrain(message.rm_id, message.partition, message.node_id, message.drained, message.by)


def _encode_applications(command: UpdateApplications, into: pb.JournalCommand) -> None:
    message = into.applications
    message.SetInParent()
    message.rm_id = command.rm_id
    for spec in command.add:
        added = message.add.add()
        added.application_id = spec.application_id
        added.queue = spec.queue
        added.partition = spec.partition
        added.user = spec.user
        added.groups.extend(spec.groups)
        _add_pairs(added.tags, spec.tags)
        added.placeholder_timeout_ms = spec.placeholder_timeout_ms
        _write_resources(spec.placeholder_ask, added.placeholder_ask)
        added.gang_style = spec.gang_style
        added.looked_up.extend(spec.looked_up)
        added.unresolved = spec.unresolved
        if spec.created_s is not None:
            added.created_s = spec.created_s
    for ref in command.remove:
        message.remove.add(application_id=ref.application_id, partition=ref.partition)


def _decode_applications(message: pb.JournalApplications) -> UpdateApplications:
    return UpdateApplications(
        message.rm_id,
        tuple(
            ApplicationSpec(
                added.application_id,
                added.queue,
                added.partition,
                added.user,
                tuple(added.groups),
                _read_pairs(added.tags),
                added.placeholder_timeout_ms,
                _read_resources(added, "placeholder_ask"),
                added.gang_style,
                tuple(added.looked_up),
                added.unresolved,
                added.created_s if added.HasField("created_s") else None,
            )
            for added in message.add
        ),
        tuple(ApplicationRef(ref.application_id, ref.partition) for ref in message.remove),
    )


def _encode_allocations(command: UpdateAllocations, into: pb.JournalCommand) -> None:
    into.allocations.SetInParent()
    into.allocations.MergeFromString(_write_allocations(command))


def _write_allocations(command: UpdateAllocations) -> bytes:
    message = pb.JournalAllocations(rm_id=command.rm_id)
    _write_release_runs(command.ask_releases, message.ask_releases)
    _write_release_runs(command.releases, message.releases)
    return message.SerializeToString() + _write_allocation_runs(command.allocations)


def _decode_allocations(message: pb.JournalAllocations) -> UpdateAllocations:
    return UpdateAllocations(
        message.rm_id,
        tuple(_read_allocation_runs(message.allocations)),
        tuple(_read_release_runs(message.ask_releases)),
        tuple(_read_release_runs(message.releases)),
    )


def _write_allocation_runs(specs: Sequence[AllocationSpec]) -> bytes:
    """Returns *specs* as the field of their runs."""
    if not _has_runs(specs):
        joined = _join_single_runs(specs)
        if joined is not None:
            return joined
    message = pb.JournalAllocations()
    for _, group in groupby(specs, _ALL_BUT_KEY):
        first, *further = group
        run = message.allocations.add()
        _write_allocation(first, run.first)
        run.further_keys.extend(map(_KEY, further))
    return message.SerializeToString()


def _has_runs(specs: Sequence[AllocationSpec]) -> bool:
    """Tells whether two successive entries differ only in their keys. It compares their applications first, which costs
    least and is often enough."""
    for get in (_APPLICATION, _ALL_BUT_KEY):
        found = list(map(get, specs))
        if not any(map(eq, found, islice(found, 1, None))):
            return False
    return True


def _join_single_runs(specs: Sequence[AllocationSpec]) -> bytes | None:
    """Returns *specs* as runs of one entry each. They are joined from their names and from the bytes of all other
    fields, which many of them share, so no Python code runs for each of them. Returns ``None`` if some have tags, or
    names with more bytes than characters."""
    keys, applications = list(map(_KEY, specs)), list(map(_APPLICATION, specs))
    if any(map(_TAGS, specs)) or not ("".join(keys).isascii() and "".join(applications).isascii()):
        return None
    rests = list(map(_KNOWN_RESTS.get, map(_REST, specs)))
    if None in rests:
        rests = [rest or _write_rest(spec) for rest, spec in zip(rests, specs, strict=True)]
    fields = join_fields(("\n", keys), ("\x12", applications))
    firsts = list(join_fields(("\n", list(map(add, fields, cast("list[str]", rests))))))
    return "".join(join_fields(("\x12", firsts))).encode(ENCODING)


def _write_rest(spec: AllocationSpec) -> str:
    """Returns all fields of *spec* except its key and application as bytes, with one character for each byte."""
    message = pb.JournalAllocation()
    _write_allocation(spec._replace(key="", application_id=""), message)
    if len(_KNOWN_RESTS) >= RESTS_KNOWN:
        _KNOWN_RESTS.clear()
    rest = _KNOWN_RESTS[_REST(spec)] = message.SerializeToString(deterministic=True).decode(ENCODING)
    return rest


def _read_allocation_runs(runs: Iterable[pb.JournalAllocationRun]) -> Iterator[AllocationSpec]:
    for run in runs:
        first = _read_allocation(run.first)
        yield first
        rest = first[1:]
        for key in run.further_keys:
            yield _new(AllocationSpec, (key, *rest))


def _write_allocation(spec: AllocationSpec, message: pb.JournalAllocation) -> None:
    message.key = spec.key
    message.application_id = spec.application_id
    message.partition = spec.partition
    _write_resources(spec.resources, message.resources)
    for name in PLAIN_FIELDS:
        value = getattr(spec, name)
        if value and name not in _FURTHER:
            setattr(message, name, value)
        elif value:
            message.further.add(name=name, value=str(value))
    if not spec.allow_preempt_self:
        message.refuses_preempt_self = True
    if spec.allow_preempt_other:
        message.allow_preempt_other = True
    if spec.created_s is not None:
        message.created_s = spec.created_s
    if spec.required_node:
        message.required_node = spec.required_node
    if spec.foreign:
        message.foreign = spec.foreign
    if spec.tags:
        _add_pairs(message.tags, spec.tags)
    if spec.legacy:
        message.legacy = True
    if spec.max_allocations != 1:
        message.further_allocations = spec.max_allocations - 1
    if spec.instance:
        message.instance = spec.instance
    if spec.dependent:
        message.dependent = True


_FURTHER: Final = frozenset(PLAIN_FIELDS).difference(pb.JournalAllocation.DESCRIPTOR.fields_by_name)
"""The fields of an allocation that are taken as they are sent and for which the journal has no field of their own."""

_read_own: Final[Callable[[pb.JournalAllocation], tuple[Any, ...]]] = attrgetter(*PLAIN_FIELDS)
_PARSERS: Final[dict[type, Callable[[str], Any]]] = {int: int, str: str, bool: lambda text: text == "True"}


def _read_further(message: pb.JournalAllocation) -> tuple[Any, ...]:
    """Returns the plain fields of an allocation, including those that have no field of their own in the journal."""
    further = {pair.name: pair.value for pair in message.further}
    defaults = AllocationSpec._field_defaults
    return tuple(
        getattr(message, name)
        if name not in _FURTHER
        else _PARSERS[type(defaults[name])](further[name])
        if name in further
        else defaults[name]
        for name in PLAIN_FIELDS
    )


def _read_allocation(message: pb.JournalAllocation) -> AllocationSpec:
    tags = _read_pairs(message.tags)
    fields = (
        message.key,
        message.application_id,
        message.partition,
        _read_resources(message, "resources"),
        *(_read_further(message) if _FURTHER else _read_own(message)),
        not message.refuses_preempt_self,
        message.allow_preempt_other,
        message.created_s if message.HasField("created_s") else None,
        message.required_node,
        message.foreign,
        tags,
        message.legacy,
        message.further_allocations + 1,
        message.instance,
        message.dependent,
        # These fields only repeat the tags, so they are not written.
        read_request(tags) if tags else None,
        read_wants(tags) if tags else None,
    )
    return _new(AllocationSpec, fields)


def _write_release_runs(specs: Sequence[ReleaseSpec], runs: Any) -> None:
    before: ReleaseSpec | None = None
    run: Any = None
    for spec in specs:
        if before is not None and before == (*spec[:_RELEASE_KEY], before.key, *spec[_RELEASE_KEY + 1 :]):
            run.further_keys.append(spec.key)
            continue
        run = runs.add()
        first = run.first
        first.partition = spec.partition
        first.application_id = spec.application_id
        first.key = spec.key
        first.termination = spec.termination
        first.message = spec.message
        first.allocation_id = spec.allocation_id
        before = spec


def _read_release_runs(runs: Iterable[pb.JournalReleaseRun]) -> Iterator[ReleaseSpec]:
    for run in runs:
        first = run.first
        for key in (first.key, *run.further_keys):
            yield ReleaseSpec(
                first.partition, first.application_id, key, first.termination, first.message, first.allocation_id
            )


def _encode_attachment(command: AttachCallbacks, into: pb.JournalCommand) -> None:
    message = into.attach
    message.SetInParent()
    message.rm_id = command.rm_id
    message.predicates = command.predicates
    message.preemption_predicates = command.preemption_predicates
    message.scheduling_states = command.scheduling_states
    message.events = command.events
    message.timeout_ns = command.timeout_ns
    message.preemption_notices = command.preemption_notices
    message.awaits_placements = command.awaits_placements


def _decode_attachment(message: pb.JournalAttachment) -> AttachCallbacks:
    return AttachCallbacks(
        message.rm_id,
        message.predicates,
        message.preemption_predicates,
        message.scheduling_states,
        message.events,
        message.timeout_ns,
        message.preemption_notices,
        message.awaits_placements,
    )


def _encode_detachment(command: DetachCallbacks, into: pb.JournalCommand) -> None:
    into.detach.SetInParent()
    into.detach.rm_id = command.rm_id


def _encode_answers(command: AnswerCallbacks, into: pb.JournalCommand) -> None:
    message = into.answers
    message.SetInParent()
    message.rm_id = command.rm_id
    for answer in command.predicates:
        about_nodes = message.predicates.add(question=answer.question, dependent=answer.dependent)
        _add_pairs(about_nodes.refused, answer.refused)
    for verdict in command.preemption_predicates:
        message.preemption_predicates.add(question=verdict.question, success=verdict.success, last=verdict.last)
    for reply in command.notices:
        to_notice = message.notices.add(notice=reply.notice, accepted=reply.accepted, instead=reply.instead)
        for key, at_ns in reply.checkpoints:
            to_notice.checkpoints.add(key=key, at_ns=at_ns)
    for placed in command.acknowledged:
        message.acknowledged.add(partition=placed.partition, key=placed.key, node_id=placed.node_id)


def _decode_answers(message: pb.JournalAnswers) -> AnswerCallbacks:
    return AnswerCallbacks(
        message.rm_id,
        tuple(
            PredicatesAnswer(answer.question, _read_pairs(answer.refused), answer.dependent)
            for answer in message.predicates
        ),
        tuple(
            PreemptionPredicatesAnswer(verdict.question, verdict.success, verdict.last)
            for verdict in message.preemption_predicates
        ),
        tuple(
            PreemptionNoticeAnswer(
                reply.notice,
                reply.accepted if reply.HasField("accepted") else None,
                tuple(reply.instead),
                tuple((each.key, each.at_ns) for each in reply.checkpoints),
            )
            for reply in message.notices
        ),
        tuple(PlacementKey(each.partition, each.key, each.node_id) for each in message.acknowledged),
    )


def _add_pairs(pairs: Any, given: Iterable[tuple[str, str]]) -> None:
    for name, value in given:
        pairs.add(name=name, value=value)


def _read_pairs(pairs: Iterable[pb.JournalPair]) -> tuple[tuple[str, str], ...]:
    return tuple((pair.name, pair.value) for pair in pairs)


def _write_resources(resources: Resources | None, message: pb.JournalResources) -> None:
    if resources is None:
        return
    message.SetInParent()
    for name, quantity in resources.items():
        message.amounts.add(type=name, quantity=quantity)


def _read_resources(message: Any, field: str) -> Resources | None:
    if not message.HasField(field):
        return None
    return Resources({each.type: each.quantity for each in getattr(message, field).amounts})


_ENCODERS: Final[dict[type, Callable[[Any, pb.JournalCommand], None]]] = {
    RegisterManager: _encode_registration,
    UnregisterManager: _encode_unregistration,
    UpdateConfiguration: _encode_configuration,
    UpdateNodes: _encode_nodes,
    SetOperatorDrain: _encode_drain,
    UpdateApplications: _encode_applications,
    UpdateAllocations: _encode_allocations,
    AttachCallbacks: _encode_attachment,
    DetachCallbacks: _encode_detachment,
    AnswerCallbacks: _encode_answers,
}

_DECODERS: Final[dict[str, Callable[[Any], Command]]] = {
    "register": _decode_registration,
    "unregister": lambda message: UnregisterManager(message.rm_id),
    "configuration": _decode_configuration,
    "nodes": _decode_nodes,
    "drain": _decode_drain,
    "applications": _decode_applications,
    "allocations": _decode_allocations,
    "attach": _decode_attachment,
    "detach": lambda message: DetachCallbacks(message.rm_id),
    "answers": _decode_answers,
}
