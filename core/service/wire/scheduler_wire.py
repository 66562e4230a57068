"""Translates between messages of ``si.v1``, of both generations, and the engine's values.

Cost is paid per message, so each field is read once, repeated resources are recognised by their bytes, and no message
is kept. The order of protobuf maps differs between processes, so their entries are sorted by key: the same requests
give the same commands everywhere.

Rules: protocol.md 2 (fields), 3.4 (older generation), 3.5 (preemption policy), 4.1 (partitions), 4.4 (tags), 15.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from operator import add, attrgetter, itemgetter
from typing import Any, Final, cast

from google.protobuf.message import Message

from kornel.core.domain.allocation_ids import MOST_INSTANCES, allocation_id, taken_apart
from kornel.core.domain.commands import (
    CREATION_TIME_TAG,
    DEPENDENT_TAG,
    PLAIN_FIELDS,
    AllocationSpec,
    ApplicationRef,
    ApplicationSpec,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.devices import DEVICE_TAGS, DeviceRequest, read_wants
from kornel.core.domain.effects import (
    Allocated,
    AllocationEffect,
    AllocationRejected,
    ApplicationAccepted,
    ApplicationEffect,
    ApplicationRejected,
    ApplicationUpdated,
    AskReleased,
    NodeAccepted,
    NodeEffect,
    NodeRejected,
    Released,
)
from kornel.core.domain.names import LONGEST_NAME, full_partition_name
from kornel.core.domain.resources import MAX_TYPES, Resources
from kornel.core.domain.topology import TOPOLOGY_TAGS, TopologyRequest, read_request
from kornel.core.service.wire.message_bytes import ENCODING, join_fields
from kornel.si.v1 import si_pb2 as si

PARTITION_ATTRIBUTE: Final = "si/node-partition"
APPLICATION_TIME_TAG: Final = "yunikorn.apache.org/creationTime"
"""The tag of an application (in exactly this case) with the time of its first submission, in Unix seconds."""
FOREIGN_TAG: Final = "foreign"
REQUIRED_NODE_TAG: Final = "yunikorn.apache.org/requiredNode"

PIECE: Final = 100
"""The most entries of one command: a longer request is split into several commands, so that none stalls the engine."""

CACHE_SIZE: Final = 4_096

LONGEST_CACHED: Final = 1_024
"""The longest encoded resources that are cached, in bytes, and the longest fields that allocations share."""

LONGEST_SHARED: Final = 256
"""The most characters of a name that is kept to be shared."""

NAMES_SHARED: Final = 16_384
"""The names that are kept to be shared; with more of them, all are dropped before the next request."""

PARTITIONS_KNOWN: Final = 64
"""The most names of partitions that are kept for a manager. Any text may come as a name."""

_SECONDS: Final = re.compile(r"\+?[0-9]{1,11}", re.ASCII)

_Said = tuple[
    int | None,
    str,
    str,
    tuple[tuple[str, str], ...],
    bool,
    int,
    int,
    bool,
    TopologyRequest | None,
    DeviceRequest | None,
]
"""The fields of an :class:`AllocationSpec` from ``created_s`` on: those that tags may set, with defaults between."""

UNTAGGED: Final = (None, "", "", (), False, 1, 0, False, None, None)
"""The fields of tags for an allocation without tags."""

_new: Final = tuple.__new__

_KEY: Final = itemgetter(AllocationSpec._fields.index("key"))
_APPLICATION: Final = itemgetter(AllocationSpec._fields.index("application_id"))
_INSTANCE: Final = itemgetter(AllocationSpec._fields.index("instance"))
_SPEC: Final = itemgetter(Allocated._fields.index("spec"))
_NODE: Final = itemgetter(Allocated._fields.index("node_id"))
_TAGS: Final = itemgetter(Allocated._fields.index("tags"))
_RESOURCES: Final = itemgetter(Allocated._fields.index("resources"))
_SHARED: Final = itemgetter(
    slice(AllocationSpec._fields.index("task_group"), AllocationSpec._fields.index("allow_preempt_other") + 1)
)
"""The fields of a spec, besides its amounts, that an answer repeats and that many specs share."""


def _find_name(field: str, message: type[Message]) -> str | None:
    """Returns the name of a plain field of an allocation in *message*; ``None``: it has no such field."""
    wanted = _OTHER_NAMES.get(field, field.replace("_", "")).lower()
    return next((each.name for each in message.DESCRIPTOR.fields if each.name.lower() == wanted), None)


_OTHER_NAMES: Final = {"task_group": "taskGroupName"}
"""The plain fields that have another name in messages."""

_NAMES: Final = {field: cast("str", _find_name(field, si.Allocation)) for field in PLAIN_FIELDS}

read_plain: Final[Callable[[si.Allocation], tuple[Any, ...]]] = attrgetter(*_NAMES.values())
"""Returns the plain fields of an allocation in their order."""

_OF_OLDER_ASKS: Final = tuple(
    (_find_name(field, si.AllocationAsk), AllocationSpec._field_defaults[field]) for field in PLAIN_FIELDS
)
"""The plain fields of a G2 ask: their names in the message, and their values if it has no such field."""

_REPEATED: Final = {field: name for field, name in _NAMES.items() if field not in ("priority", "node_id")}
"""The plain fields that an answer repeats, with their names in the message."""


class Decoder:
    """A decoder of requests into commands. It never fails: the engine refuses bad entries one by one."""

    def __init__(self, ahead_s: Callable[[], int] = lambda: 0) -> None:
        """Makes a decoder. *ahead_s*: by how many seconds the wall clock, whose time shims report, is ahead of the
        core's time."""
        self.resources_known: dict[bytes, Resources] = {}
        """The resources that were read, by their bytes."""
        self.names_shared: dict[str, str] = {}
        """The IDs of applications that were read, so that all asks of one share one string. It is emptied now and
        then, unlike ``sys.intern``, which keeps every string for good in Python 3.12."""
        self._ahead_s = ahead_s

    def decode_registration(self, request: si.RegisterResourceManagerRequest) -> RegisterManager:
        """Returns a registration, as sent."""
        return RegisterManager(
            rm_id=request.rmID,
            config=request.config,
            policy_group=request.policyGroup,
            version=request.version,
            build_info=sorted_items(request.buildInfo),
            extra_config=sorted_items(request.extraConfig),
        )

    def allocation_commands(
        self, request: si.AllocationRequest, read: tuple[AllocationSpec, ...] | None = None
    ) -> Iterator[UpdateAllocations]:
        """Yields commands that together mean *request*: allocations, asks, ask releases, releases, in that order (3.4).
        *read*: the allocations, if they were read already."""
        rm_id = request.rmID
        names = PartitionNames(rm_id)
        releases = request.releases
        ask_releases = releases.allocationAsksToRelease
        final_releases = releases.allocationsToRelease
        asks = request.asks
        allocations: Sequence[Any] = request.allocations
        decode: Callable[[Sequence[Any]], Iterator[AllocationSpec]] = partial(self._decode_allocations, names=names)
        if read is not None:
            allocations, decode = read, iter
        asked = sum(map(_count_meant, asks))
        if len(allocations) + asked + len(ask_releases) + len(final_releases) <= PIECE:
            yield UpdateAllocations(
                rm_id,
                (*decode(allocations), *self._asks(asks, names)),
                _ask_releases(ask_releases, names),
                _decode_releases(final_releases, names),
            )
            return
        for start in range(0, len(allocations), PIECE):
            yield UpdateAllocations(rm_id, tuple(decode(allocations[start : start + PIECE])))
        for some in _split_asks(asks):
            yield UpdateAllocations(rm_id, tuple(self._asks(some, names)))
        for start in range(0, len(ask_releases), PIECE):
            yield UpdateAllocations(rm_id, ask_releases=_ask_releases(ask_releases[start : start + PIECE], names))
        for start in range(0, len(final_releases), PIECE):
            yield UpdateAllocations(rm_id, releases=_decode_releases(final_releases[start : start + PIECE], names))

    def application_commands(self, request: si.ApplicationRequest) -> Iterator[UpdateApplications]:
        """Yields commands that together mean *request*: all additions, then all removals."""
        rm_id = request.rmID
        names = PartitionNames(rm_id)
        additions = [self._decode_application(message, names) for message in request.new]
        removals = [ApplicationRef(message.applicationID, names[message.partitionName]) for message in request.remove]
        if len(additions) + len(removals) <= PIECE:
            yield UpdateApplications(rm_id, tuple(additions), tuple(removals))
            return
        for start in range(0, len(additions), PIECE):
            yield UpdateApplications(rm_id, add=tuple(additions[start : start + PIECE]))
        for start in range(0, len(removals), PIECE):
            yield UpdateApplications(rm_id, remove=tuple(removals[start : start + PIECE]))

    def node_commands(self, request: si.NodeRequest) -> Iterator[UpdateNodes]:
        """Yields commands that together mean *request*."""
        rm_id = request.rmID
        names = PartitionNames(rm_id)
        nodes = request.nodes
        if not nodes:
            yield UpdateNodes(rm_id, ())
        for some in _node_pieces(nodes):
            yield UpdateNodes(rm_id, tuple([self._decode_node(message, names) for message in some]))

    def _decode_allocations(self, messages: Sequence[si.Allocation], names: PartitionNames) -> Iterator[AllocationSpec]:
        known, shared = self.resources_known, self.names_shared
        if len(shared) > NAMES_SHARED:
            shared.clear()
        share = shared.setdefault
        ahead_s = self._ahead_s()
        for message in messages:
            raw = message.resourcePerAlloc.SerializeToString()
            resources = known.get(raw)
            if resources is None:
                resources = self.read_resources(raw, message.resourcePerAlloc)
                if not raw and not message.HasField("resourcePerAlloc"):
                    resources = None
            tags = message.allocationTags
            application = message.applicationID
            fields = (
                message.allocationKey,
                # Every ask keeps it, so all asks of an application share one string.
                application if len(application) > LONGEST_SHARED else share(application, application),
                names[message.partitionName],
                resources,
                *read_plain(message),
                *read_policy(message),
            )
            # The values from tags are the last fields. The constructor of a named tuple would double the cost of an
            # ask.
            spec = _new(AllocationSpec, fields + (_read_tags(tags, ahead_s) if tags else UNTAGGED))
            given_id = message.allocationID or message.UUID
            yield spec._replace(instance=_find_instance(spec.key, given_id)) if given_id else spec

    def _asks(self, messages: Sequence[si.AllocationAsk], names: PartitionNames) -> Iterator[AllocationSpec]:
        """Yields G2 asks as the current generation would send them (protocol.md 3.1, 3.4)."""
        ahead_s = self._ahead_s()
        for message in messages:
            fields = (
                message.allocationKey,
                message.applicationID,
                names[message.partitionName],
                self._decode_optional(message.resourceAsk, given=message.HasField("resourceAsk")),
                *[default if name is None else getattr(message, name) for name, default in _OF_OLDER_ASKS],
                *read_policy(message),
                *(_read_tags(message.tags, ahead_s) if message.tags else UNTAGGED),
            )
            yield _new(AllocationSpec, fields)._replace(legacy=True, max_allocations=message.maxAllocations)

    def _decode_application(self, message: si.AddApplicationRequest, names: PartitionNames) -> ApplicationSpec:
        tags = sorted_items(message.tags)
        created_s = creation_time(tags, APPLICATION_TIME_TAG)
        if created_s is not None:
            created_s -= self._ahead_s()
        return ApplicationSpec(
            application_id=message.applicationID,
            queue=message.queueName,
            partition=names[message.partitionName],
            user=message.ugi.user,
            groups=tuple(message.ugi.groups),
            tags=tags,
            placeholder_timeout_ms=message.executionTimeoutMilliSeconds,
            placeholder_ask=self._decode_optional(message.placeholderAsk, given=message.HasField("placeholderAsk")),
            gang_style=message.gangSchedulingStyle,
            created_s=created_s,
        )

    def _decode_node(self, message: si.NodeInfo, names: PartitionNames) -> NodeSpec:
        attributes = dict(message.attributes)
        partition = names[attributes.get(PARTITION_ATTRIBUTE, "")]
        attributes[PARTITION_ATTRIBUTE] = partition
        return NodeSpec(
            node_id=message.nodeID,
            action=int(message.action),
            partition=partition,
            attributes=sorted_items(attributes),
            capacity=self._decode_optional(message.schedulableResource, given=message.HasField("schedulableResource")),
            occupied=self._decode_optional(message.occupiedResource, given=message.HasField("occupiedResource")),
            existing=tuple(
                # A G2 shim need not name the node of each allocation, because it came with the node.
                spec._replace(
                    node_id=spec.node_id or message.nodeID,
                    partition=spec.partition if entry.partitionName else partition,
                )
                for entry, spec in zip(
                    message.existingAllocations,
                    self._decode_allocations(message.existingAllocations, names),
                    strict=True,
                )
            ),
        )

    def _decode_optional(self, message: si.Resource, *, given: bool) -> Resources | None:
        """Returns amounts of *message*; ``None`` if its field was not sent, which is not the same as sent and empty."""
        if not given:
            return None
        raw = message.SerializeToString()
        return self.resources_known.get(raw) or self.read_resources(raw, message)

    def read_resources(self, raw: bytes, message: si.Resource) -> Resources:
        """Returns the amounts of *message*, remembered by its bytes *raw* unless there are none."""
        amounts = message.resources
        # One type too many is enough for the engine to refuse the entry.
        names = sorted(amounts) if len(amounts) <= MAX_TYPES else sorted(islice(amounts, MAX_TYPES + 1))
        resources = Resources({name: amounts[name].value for name in names})
        if 0 < len(raw) <= LONGEST_CACHED:
            if len(self.resources_known) >= CACHE_SIZE:
                # Most shims ask for a few sizes over and over; for others, a cleverer eviction would not help either.
                self.resources_known.clear()
            self.resources_known[raw] = resources
        return resources


class Encoder:
    """Encodes runs of effects that belong to one list of one response, and returns that response, serialised."""

    def __init__(self) -> None:
        self._tails: dict[tuple[object, ...], str] = {}

    def encode_allocations(self, run: Sequence[AllocationEffect]) -> bytes:
        """Returns a message for *run*, which holds effects of one :func:`list_key` only."""
        response = si.AllocationResponse()
        if type(run[0]) is Allocated:
            placed = cast("Sequence[Allocated]", run)
            joined = self._join_placed(placed)
            return self._build_placed(placed) if joined is None else joined
        for effect in run:
            if isinstance(effect, Released):
                known_as = allocation_id(effect.key, effect.instance)
                response.released.add(
                    partitionName=effect.partition,
                    applicationID=effect.application_id,
                    allocationKey=effect.key,
                    allocationID=known_as,
                    UUID=known_as,
                    terminationType=si.TerminationType.ValueType(effect.termination),
                    message=effect.message,
                )
            elif isinstance(effect, AskReleased):
                response.releasedAsks.add(
                    partitionName=effect.partition,
                    applicationID=effect.application_id,
                    allocationKey=effect.key,
                    terminationType=si.TerminationType.ValueType(effect.termination),
                    message=effect.message,
                )
            elif isinstance(effect, AllocationRejected):
                rejected = response.rejected if effect.legacy else response.rejectedAllocations
                rejected.add(allocationKey=effect.key, applicationID=effect.application_id, reason=effect.reason)
        return response.SerializeToString()

    def _join_placed(self, run: Sequence[Allocated]) -> bytes | None:
        """Returns what :meth:`_build_placed` does, without an object for each entry; ``None`` if one has
        tags, or a name of more bytes than characters."""
        specs = list(map(_SPEC, run))
        keys, applications, nodes = list(map(_KEY, specs)), list(map(_APPLICATION, specs)), list(map(_NODE, run))
        if any(map(_TAGS, run)) or not "".join(chain(keys, applications, nodes)).isascii():
            return None
        tails = list(map(self._tails.get, zip(map(_RESOURCES, run), map(_SHARED, specs), strict=True)))
        if None in tails:
            tails = [tail or self._encode_tail(effect) for tail, effect in zip(tails, run, strict=True)]
        ids = list(map(allocation_id, keys, map(_INSTANCE, specs)))
        # The ID as UUID and as allocationID, see below.
        named = join_fields(("\n", keys), ("\x1a", ids), ("B", nodes), ("J", applications), ("j", ids))
        entries = list(map(add, named, cast("list[str]", tails)))
        return "".join(join_fields(("\n", entries))).encode(ENCODING)

    def _build_placed(self, run: Sequence[Allocated]) -> bytes:
        """Returns a message with the allocations of *run*."""
        response = si.AllocationResponse()
        for effect in run:
            spec = effect.spec
            entry = response.new.add()
            entry.MergeFromString(self._encode_tail(effect).encode(ENCODING))
            entry.allocationKey = spec.key
            entry.nodeID = effect.node_id
            entry.applicationID = spec.application_id
            # Shims up to 1.4 read the ID from another field, and take a release without it for a release of everything.
            entry.allocationID = entry.UUID = allocation_id(spec.key, spec.instance)
            if effect.tags:
                entry.allocationTags.update(effect.tags)
        return response.SerializeToString()

    def encode_applications(self, run: Sequence[ApplicationEffect]) -> bytes:
        """Returns a message for *run*, which holds effects of one :func:`list_key` only."""
        response = si.ApplicationResponse()
        if type(run[0]) is ApplicationUpdated:
            add_updated = response.updated.add
            for name, state, at_ns, message, *_ in cast("Sequence[ApplicationUpdated]", run):
                add_updated(applicationID=name, state=state, stateTransitionTimestamp=at_ns, message=message)
            return response.SerializeToString()
        for effect in run:
            if isinstance(effect, ApplicationAccepted):
                response.accepted.add(applicationID=effect.application_id)
            elif isinstance(effect, ApplicationRejected):
                response.rejected.add(applicationID=effect.application_id, reason=effect.reason)
        return response.SerializeToString()

    def encode_nodes(self, run: Sequence[NodeEffect]) -> bytes:
        """Returns a message of accepted and rejected nodes, which share a response."""
        response = si.NodeResponse()
        for effect in run:
            if isinstance(effect, NodeAccepted):
                response.accepted.add(nodeID=effect.node_id)
            else:
                response.rejected.add(nodeID=effect.node_id, reason=effect.reason)
        return response.SerializeToString()

    def _encode_tail(self, effect: Allocated) -> str:
        """Returns the fields that many new allocations share, with one character for each byte."""
        spec = effect.spec
        shared = effect.resources, _SHARED(spec)
        tail = self._tails.get(shared)
        if tail is None:
            allocation = si.Allocation(
                **{name: getattr(spec, field) for field, name in _REPEATED.items()},
                preemptionPolicy=si.PreemptionPolicy(
                    allowPreemptSelf=spec.allow_preempt_self, allowPreemptOther=spec.allow_preempt_other
                ),
            )
            allocation.resourcePerAlloc.SetInParent()
            for name, amount in effect.resources.items():
                allocation.resourcePerAlloc.resources[name].value = amount
            tail = allocation.SerializeToString(deterministic=True).decode(ENCODING)
            if len(tail) <= LONGEST_CACHED:
                if len(self._tails) >= CACHE_SIZE:
                    self._tails.clear()
                self._tails[shared] = tail
        return tail


LIST_OF: Final[Mapping[type, str]] = {
    Allocated: "new",
    Released: "released",
    AskReleased: "releasedAsks",
    ApplicationAccepted: "answers",
    ApplicationRejected: "answers",
    ApplicationUpdated: "updated",
    NodeAccepted: "answers",
    NodeRejected: "answers",
}
"""The keys of effects whose class determines it, see :func:`list_key`."""


def list_key(effect: AllocationEffect | ApplicationEffect | NodeEffect) -> str:
    """Returns the key of effects that may share a response message (protocol.md 15, "never mixes")."""
    if isinstance(effect, AllocationRejected):
        return "rejected" if effect.legacy else "rejectedAllocations"
    return LIST_OF[type(effect)]


def sorted_items(items: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns keys with their values, by key."""
    return tuple([(key, items[key]) for key in sorted(items)])


class PartitionNames(dict[str, str]):
    """The full partition names of one manager, by the names in messages."""

    def __init__(self, rm_id: str) -> None:
        super().__init__()
        self._rm_id = rm_id

    def __missing__(self, name: str) -> str:
        full = full_partition_name(self._rm_id, name)
        if len(name) <= LONGEST_SHARED:
            if len(self) >= PARTITIONS_KNOWN:
                self.clear()
            self[name] = full
        return full


def creation_time(tags: Iterable[tuple[str, str]], name: str) -> int | None:
    """Returns the Unix seconds that the tag *name* states; ``None`` where it is missing or states no time."""
    return next((int(value) for key, value in tags if key == name and _SECONDS.fullmatch(value)), None)


def read_policy(message: si.Allocation | si.AllocationAsk) -> tuple[bool, bool]:
    """Returns whether the ask of *message* may be preempted, and whether it may preempt others (protocol.md 3.5)."""
    if not message.HasField("preemptionPolicy"):
        return True, False
    policy = message.preemptionPolicy
    return policy.allowPreemptSelf, policy.allowPreemptOther


def _read_tags(sent: Mapping[str, str], ahead_s: int) -> _Said:
    """Returns the fields of a spec from its creation time on, as read from the tags *sent* with an allocation
    (protocol.md 4.4)."""
    tags = sorted_items(sent)
    created_s: int | None = None
    required_node = foreign = ""
    dependent = False
    topology: TopologyRequest | None = None
    devices: DeviceRequest | None = None
    for key, value in tags:
        if key == CREATION_TIME_TAG:
            created_s = int(value) - ahead_s if _SECONDS.fullmatch(value) else None
        elif key == REQUIRED_NODE_TAG:
            required_node = value
        elif key == FOREIGN_TAG:
            foreign = "static" if value == "static" else "default"
        elif key == DEPENDENT_TAG:
            dependent = value == "true"
        elif key in TOPOLOGY_TAGS and topology is None:
            topology = read_request(tags)
        elif key in DEVICE_TAGS and devices is None:
            devices = read_wants(tags)
    return created_s, required_node, foreign, tags, False, 1, 0, dependent, topology, devices


def _count_meant(ask: si.AllocationAsk) -> int:
    """Returns how many allocations the engine books for *ask*; an ask that will be refused counts as one."""
    number = ask.maxAllocations
    return number if 1 <= number <= MOST_INSTANCES else 1


def _split_asks(asks: Sequence[si.AllocationAsk]) -> Iterator[list[si.AllocationAsk]]:
    """Yields *asks* in order, in parts of about :data:`PIECE` allocations, or of a single ask."""
    some: list[si.AllocationAsk] = []
    size = 0
    for ask in asks:
        size += _count_meant(ask)
        if some and size > PIECE:
            yield some
            some, size = [], _count_meant(ask)
        some.append(ask)
    if some:
        yield some


def _node_pieces(nodes: Sequence[si.NodeInfo]) -> Iterator[list[si.NodeInfo]]:
    """Yields *nodes* in order, in parts of at most :data:`PIECE` nodes and allocations that run there, or of a single
    node."""
    some: list[si.NodeInfo] = []
    size = 0
    for node in nodes:
        entries = 1 + len(node.existingAllocations)
        if some and size + entries > PIECE:
            yield some
            some, size = [], 0
        some.append(node)
        size += entries
    if some:
        yield some


def _ask_releases(messages: Sequence[si.AllocationAskRelease], names: PartitionNames) -> tuple[ReleaseSpec, ...]:
    return tuple(
        [
            ReleaseSpec(
                names[message.partitionName],
                message.applicationID,
                message.allocationKey,
                int(message.terminationType),
                message.message[:LONGEST_NAME],
            )
            for message in messages
        ]
    )


def _find_instance(key: str, given_id: str) -> int:
    """Returns which of the allocations under *key* has the ID *given_id*. An ID that no core made from the key is
    ignored."""
    parts = taken_apart(given_id)
    return parts[1] if parts is not None and parts[0] == key else 0


def _decode_releases(messages: Sequence[si.AllocationRelease], names: PartitionNames) -> tuple[ReleaseSpec, ...]:
    """Returns releases by key, or by the ID with which G2 names an allocation (protocol.md 3.4)."""
    return tuple(
        [
            ReleaseSpec(
                names[message.partitionName],
                message.applicationID,
                message.allocationKey,
                int(message.terminationType),
                message.message[:LONGEST_NAME],
                message.allocationID or message.UUID,
            )
            for message in messages
        ]
    )
