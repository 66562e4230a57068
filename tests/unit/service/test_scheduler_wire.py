"""Translation between si.v1 messages and the engine's values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kornel.core.domain.commands import AllocationSpec, ApplicationRef, NodeAction, ReleaseSpec, TerminationType
from kornel.core.domain.effects import (
    Allocated,
    AllocationRejected,
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationUpdated,
    AskReleased,
    NodeAccepted,
    NodeRejected,
    Released,
)
from kornel.core.domain.resources import Resources
from kornel.core.service.wire import scheduler_wire
from kornel.core.service.wire.scheduler_wire import Decoder, Encoder, list_key
from kornel.si.v1 import si_pb2 as si
from tests.patience import PATIENCE_S


def amounts(**values: int) -> si.Resource:
    return si.Resource(resources={name: si.Quantity(value=value) for name, value in values.items()})


def decoded(message: si.Allocation) -> AllocationSpec:
    (command,) = Decoder().allocation_commands(si.AllocationRequest(rmID="rm-1", allocations=[message]))
    return command.allocations[0]


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("", "[rm-1]default"),
        ("default", "[rm-1]default"),
        ("gpu", "[rm-1]gpu"),
        ("[rm-1]gpu", "[rm-1]gpu"),
        ("[other]gpu", "[rm-1]\ufffdother\ufffdgpu"),
        ("[", "[rm-1]\ufffd"),
    ],
)
def test_partition_names_are_normalised(given: str, full: str) -> None:
    """A bare name gets the prefix once, and a name of another manager is none (protocol.md 4.1, cases 20, 21)."""
    assert decoded(si.Allocation(partitionName=given)).partition == full


def test_allocation_is_decoded_field_by_field() -> None:
    """Every field of an Allocation that the core reads arrives under its own name (2.5)."""
    message = si.Allocation(
        allocationKey="k",
        applicationID="app",
        partitionName="gpu",
        resourcePerAlloc=amounts(vcore=1, memory=2),
        priority=-7,
        nodeID="n1",
        taskGroupName="tg",
        placeholder=True,
        originator=True,
        preemptionPolicy=si.PreemptionPolicy(allowPreemptOther=True),
        allocationTags={
            "creationTime": "1700000000",
            "yunikorn.apache.org/requiredNode": "n7",
            "a": "b",
        },
    )
    assert decoded(message) == AllocationSpec(
        key="k",
        application_id="app",
        partition="[rm-1]gpu",
        resources=Resources({"memory": 2, "vcore": 1}),
        priority=-7,
        node_id="n1",
        task_group="tg",
        placeholder=True,
        originator=True,
        allow_preempt_self=False,
        allow_preempt_other=True,
        created_s=1_700_000_000,
        required_node="n7",
        tags=(
            ("a", "b"),
            ("creationTime", "1700000000"),
            ("yunikorn.apache.org/requiredNode", "n7"),
        ),
    )


def test_what_a_message_leaves_out_has_its_default() -> None:
    """With tags that say nothing as without any, no field is missing and none is shifted."""
    bare = AllocationSpec("k", "app", "[rm-1]default", None)
    message = si.Allocation(allocationKey="k", applicationID="app")
    assert decoded(message) == bare
    message.allocationTags["colour"] = "blue"
    assert decoded(message) == bare._replace(tags=(("colour", "blue"),))
    for kind, meant in {"static": "static", "anything": "default"}.items():
        assert decoded(si.Allocation(allocationTags={"foreign": kind})).foreign == meant
    assert type(decoded(message)) is AllocationSpec


def test_absent_policy_differs_from_an_empty_one() -> None:
    """Absent means may be preempted, may not preempt; an empty policy says false to both (3.5)."""
    absent = decoded(si.Allocation())
    empty = decoded(si.Allocation(preemptionPolicy=si.PreemptionPolicy()))
    assert (absent.allow_preempt_self, absent.allow_preempt_other) == (True, False)
    assert (empty.allow_preempt_self, empty.allow_preempt_other) == (False, False)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1700000000", 1_700_000_000),
        ("+5", 5),
        ("0", 0),
        ("", None),
        ("-1", None),
        ("1_0", None),
        (" 1", None),
        ("1\n", None),
        ("1.5", None),
        ("1e9", None),
        ("\u0661", None),
        ("9" * 400, None),
    ],
)
def test_creation_time_is_seconds_or_nothing(text: str, seconds: int | None) -> None:
    """A creation time that is no plain count of seconds counts as missing (4.4)."""
    assert decoded(si.Allocation(allocationTags={"creationTime": text})).created_s == seconds


def test_missing_empty_and_zero_resources_are_told_apart() -> None:
    """No resource, a resource without types and a type of 0 are three things (2.5)."""
    assert decoded(si.Allocation()).resources is None
    assert decoded(si.Allocation(resourcePerAlloc=si.Resource())).resources == Resources()
    assert decoded(si.Allocation(resourcePerAlloc=amounts(gpu=0))).resources == Resources({"gpu": 0})


def test_equal_resources_are_read_once() -> None:
    """Equal amounts become the same object, so that the engine can recognise equal demands cheaply."""
    request = si.AllocationRequest(
        rmID="rm-1", allocations=[si.Allocation(resourcePerAlloc=amounts(vcore=1)) for _ in range(3)]
    )
    (command,) = Decoder().allocation_commands(request)
    assert len({id(spec.resources) for spec in command.allocations}) == 1


def test_resource_cache_is_bounded() -> None:
    """A client that never repeats a size cannot make the core remember all of them."""
    decoder = Decoder()
    for value in range(3):
        requests = [si.Allocation(resourcePerAlloc=amounts(vcore=1 + value * 4_000 + n)) for n in range(4_000)]
        list(decoder.allocation_commands(si.AllocationRequest(allocations=requests)))
    assert len(decoder.resources_known) <= scheduler_wire.CACHE_SIZE


def test_older_asks_become_asks_without_a_node() -> None:
    """A G2 ask maps field by field and is marked, so that a refusal finds the older list (3.1, 3.4)."""
    message = si.AllocationAsk(
        allocationKey="k",
        applicationID="app",
        resourceAsk=amounts(vcore=1),
        maxAllocations=3,
        priority=2,
        tags={"creationTime": "9"},
        taskGroupName="tg",
        placeholder=True,
        Originator=True,
        preemptionPolicy=si.PreemptionPolicy(allowPreemptSelf=False, allowPreemptOther=True),
    )
    (command,) = Decoder().allocation_commands(si.AllocationRequest(rmID="rm-1", asks=[message]))
    assert command.allocations == (
        AllocationSpec(
            key="k",
            application_id="app",
            partition="[rm-1]default",
            resources=Resources({"vcore": 1}),
            priority=2,
            task_group="tg",
            placeholder=True,
            originator=True,
            allow_preempt_self=False,
            allow_preempt_other=True,
            created_s=9,
            tags=(("creationTime", "9"),),
            legacy=True,
            max_allocations=3,
        ),
    )


@pytest.mark.parametrize(
    ("message", "key", "allocation_id"),
    [
        (si.AllocationRelease(allocationKey="k"), "k", ""),
        (si.AllocationRelease(allocationID="k-0"), "", "k-0"),
        (si.AllocationRelease(UUID="k-0"), "", "k-0"),
        (si.AllocationRelease(UUID="k"), "", "k"),
        (si.AllocationRelease(allocationKey="k-0"), "k-0", ""),
        (si.AllocationRelease(allocationKey="k", allocationID="k-3", UUID="k-3"), "k", "k-3"),
        (si.AllocationRelease(), "", ""),
    ],
)
def test_releases_name_key_and_id(message: si.AllocationRelease, key: str, allocation_id: str) -> None:
    """UUID and allocationID reach the engine as they are: only it knows which key they belong to (3.4, case 156)."""
    request = si.AllocationRequest(releases=si.AllocationReleasesRequest(allocationsToRelease=[message]))
    (command,) = Decoder().allocation_commands(request)
    assert (command.releases[0].key, command.releases[0].allocation_id) == (key, allocation_id)


@pytest.mark.parametrize(
    ("message", "instance"),
    [
        (si.Allocation(allocationKey="k"), 0),
        (si.Allocation(allocationKey="k", allocationID="k-0"), 0),
        (si.Allocation(allocationKey="k", allocationID="k-7"), 7),
        (si.Allocation(allocationKey="k", UUID="k-7"), 7),
        (si.Allocation(allocationKey="k-7", UUID="k-7"), 0),
        (si.Allocation(allocationKey="k-0", allocationID="k-0-3"), 3),
        (si.Allocation(allocationKey="k", allocationID="k-07"), 0),
        (si.Allocation(allocationKey="k", allocationID="k-10000"), 0),
        (si.Allocation(allocationKey="k", allocationID="k--1"), 0),
        (si.Allocation(allocationKey="0a1b", UUID="5f3c-112233445566"), 0),
    ],
)
def test_reported_allocations_say_which_of_their_key_they_are(message: si.Allocation, instance: int) -> None:
    """An ID that a core made of the key tells the instance; any other ID, and none, is the first (3.4)."""
    (command,) = Decoder().allocation_commands(si.AllocationRequest(allocations=[message]))
    assert command.allocations[0].instance == instance


def test_asks_that_mean_many_allocations_are_split() -> None:
    """One command never means much more than a piece, however few asks say so."""
    half, most = scheduler_wire.PIECE // 2, scheduler_wire.PIECE - 1
    sizes = (half, half - 5, 10, 10 * scheduler_wire.PIECE, 1, -5, most, 2)
    asks = [si.AllocationAsk(allocationKey=f"k{n}", maxAllocations=size) for n, size in enumerate(sizes)]
    commands = list(Decoder().allocation_commands(si.AllocationRequest(asks=asks)))
    assert [[spec.max_allocations for spec in command.allocations] for command in commands] == [
        [half, half - 5],
        [10],
        [10 * scheduler_wire.PIECE],
        [1, -5],
        [most],
        [2],
    ]


def test_termination_numbers_of_newer_shims_pass() -> None:
    """An enum number this core does not know reaches the engine as it is (3.6)."""
    raw = si.AllocationRelease(terminationType=si.TerminationType.ValueType(77)).SerializeToString()
    request = si.AllocationRequest(
        releases=si.AllocationReleasesRequest(allocationsToRelease=[si.AllocationRelease.FromString(raw)])
    )
    (command,) = Decoder().allocation_commands(request)
    assert command.releases[0].termination == 77


def test_one_request_keeps_the_order_allocations_asks_ask_releases_releases() -> None:
    """The four lists of a request are handled in the order of 3.4, in one command while it is small."""
    request = si.AllocationRequest(
        rmID="rm-1",
        allocations=[si.Allocation(allocationKey="a")],
        asks=[si.AllocationAsk(allocationKey="b", maxAllocations=1)],
        releases=si.AllocationReleasesRequest(
            allocationsToRelease=[si.AllocationRelease(allocationKey="d", applicationID="x")],
            allocationAsksToRelease=[
                si.AllocationAskRelease(allocationKey="c", terminationType=si.TIMEOUT, message="m")
            ],
        ),
    )
    (command,) = Decoder().allocation_commands(request)
    assert [spec.key for spec in command.allocations] == ["a", "b"]
    assert command.ask_releases == (ReleaseSpec("[rm-1]default", "", "c", TerminationType.TIMEOUT, "m"),)
    assert command.releases == (ReleaseSpec("[rm-1]default", "x", "d", TerminationType.UNKNOWN),)


def test_a_long_request_becomes_several_commands_with_nothing_lost() -> None:
    """Entries of a long request keep their order over all its commands, none of which is long."""
    count = scheduler_wire.PIECE + 1
    request = si.AllocationRequest(
        rmID="rm-1",
        allocations=[si.Allocation(allocationKey=f"a{n}") for n in range(count)],
        asks=[si.AllocationAsk(allocationKey=f"b{n}") for n in range(count)],
        releases=si.AllocationReleasesRequest(
            allocationAsksToRelease=[si.AllocationAskRelease(allocationKey=f"c{n}") for n in range(count)],
            allocationsToRelease=[si.AllocationRelease(allocationKey=f"d{n}") for n in range(count)],
        ),
    )
    commands = list(Decoder().allocation_commands(request))
    seen: list[str] = []
    for command in commands:
        seen += [spec.key for spec in command.allocations]
        seen += [entry.key for entry in (*command.ask_releases, *command.releases)]
    assert seen == [f"{letter}{n}" for letter in "abcd" for n in range(count)]
    assert all(len(c.allocations) + len(c.ask_releases) + len(c.releases) <= scheduler_wire.PIECE for c in commands)
    assert {command.rm_id for command in commands} == {"rm-1"}


def test_long_application_and_node_requests_are_cut_too() -> None:
    """All additions of an application request precede all its removals, over several commands as well."""
    count = scheduler_wire.PIECE + 1
    applications = list(
        Decoder().application_commands(
            si.ApplicationRequest(
                new=[si.AddApplicationRequest(applicationID=str(n)) for n in range(count)],
                remove=[si.RemoveApplicationRequest(applicationID=str(n)) for n in range(count)],
            )
        )
    )
    assert [bool(command.add) for command in applications] == [True, True, False, False]
    assert sum(len(command.remove) for command in applications) == count
    nodes = list(Decoder().node_commands(si.NodeRequest(nodes=[si.NodeInfo(nodeID=str(n)) for n in range(count)])))
    assert [node.node_id for command in nodes for node in command.nodes] == [str(n) for n in range(count)]


def test_nodes_reach_the_engine_with_few_allocations_at_a_time() -> None:
    """What runs on a node comes with it, so nodes that bring much are handed over one by one."""
    numbers = [0, scheduler_wire.PIECE * 3, 1, 1, scheduler_wire.PIECE // 2, scheduler_wire.PIECE // 2]
    nodes = [si.NodeInfo(nodeID=str(n), existingAllocations=[si.Allocation()] * n) for n in numbers]
    commands = list(Decoder().node_commands(si.NodeRequest(nodes=nodes)))
    assert [[len(node.existing) for node in command.nodes] for command in commands] == [
        [0], [scheduler_wire.PIECE * 3], [1, 1, scheduler_wire.PIECE // 2], [scheduler_wire.PIECE // 2]
    ]  # fmt: skip


def test_an_empty_request_is_still_a_command() -> None:
    """A message that carries only an rmID binds its stream, so it has to reach the engine's task (1.1)."""
    decoder = Decoder()
    assert [c.rm_id for c in decoder.allocation_commands(si.AllocationRequest(rmID="r"))] == ["r"]
    assert [c.rm_id for c in decoder.application_commands(si.ApplicationRequest(rmID="r"))] == ["r"]
    assert [c.rm_id for c in decoder.node_commands(si.NodeRequest(rmID="r"))] == ["r"]


def test_nodes_always_carry_their_partition() -> None:
    """The partition attribute is set in full form whether it was sent or not (4.1)."""
    request = si.NodeRequest(
        rmID="rm-1",
        nodes=[
            si.NodeInfo(nodeID="n1", action=si.NodeInfo.CREATE, attributes={"si/node-partition": "gpu", "z": "1"}),
            si.NodeInfo(nodeID="n2", action=si.NodeInfo.UPDATE, schedulableResource=amounts(vcore=3)),
        ],
    )
    (command,) = Decoder().node_commands(request)
    first, second = command.nodes
    assert first.partition == "[rm-1]gpu"
    assert first.attributes == (("si/node-partition", "[rm-1]gpu"), ("z", "1"))
    assert first.capacity is None
    assert (second.action, second.capacity) == (NodeAction.UPDATE, Resources({"vcore": 3}))
    assert second.attributes == (("si/node-partition", "[rm-1]default"),)


def test_older_node_fields() -> None:
    """Existing allocations of a G2 node run on that node, in its partition, unless they say otherwise (3.4)."""
    node = si.NodeInfo(
        nodeID="n1",
        action=si.NodeInfo.CREATE,
        attributes={"si/node-partition": "gpu"},
        occupiedResource=amounts(vcore=1),
        existingAllocations=[si.Allocation(allocationKey="k"), si.Allocation(allocationKey="l", partitionName="x")],
    )
    (command,) = Decoder().node_commands(si.NodeRequest(rmID="rm-1", nodes=[node]))
    spec = command.nodes[0]
    assert spec.occupied == Resources({"vcore": 1})
    assert [(entry.key, entry.node_id, entry.partition) for entry in spec.existing] == [
        ("k", "n1", "[rm-1]gpu"),
        ("l", "n1", "[rm-1]x"),
    ]


def test_applications_are_decoded() -> None:
    """Additions and removals of an application request arrive with owner, gang and tags (2.3)."""
    request = si.ApplicationRequest(
        rmID="rm-1",
        new=[
            si.AddApplicationRequest(
                applicationID="app",
                queueName="root.a",
                ugi=si.UserGroupInformation(user="ann", groups=["x", "y"]),
                tags={"b": "2", "a": "1"},
                executionTimeoutMilliSeconds=-1,
                placeholderAsk=amounts(vcore=1),
                gangSchedulingStyle="Hard",
            ),
            si.AddApplicationRequest(applicationID="bare"),
        ],
        remove=[si.RemoveApplicationRequest(applicationID="gone", partitionName="gpu")],
    )
    (command,) = Decoder().application_commands(request)
    full, bare = command.add
    assert (full.user, full.groups, full.tags) == ("ann", ("x", "y"), (("a", "1"), ("b", "2")))
    assert (full.placeholder_ask, full.placeholder_timeout_ms) == (Resources({"vcore": 1}), -1)
    assert (bare.user, bare.groups, bare.placeholder_ask, bare.gang_style) == ("", (), None, "")
    assert command.remove == (ApplicationRef("gone", "[rm-1]gpu"),)


@pytest.mark.parametrize(
    ("name", "text", "seconds"),
    [
        ("yunikorn.apache.org/creationTime", "400", 100),
        ("yunikorn.apache.org/creationTime", "0", -300),
        ("yunikorn.apache.org/creationTime", "-400", None),
        ("yunikorn.apache.org/creationTime", "soon", None),
        ("yunikorn.apache.org/creationtime", "400", None),
        ("creationTime", "400", None),
    ],
)
def test_the_creation_time_of_an_application_is_in_the_cores_time(name: str, text: str, seconds: int | None) -> None:
    """The tag's key counts in its exact case; the wall clock was set ahead by 300 s. The tag stays as it was sent."""
    request = si.ApplicationRequest(new=[si.AddApplicationRequest(applicationID="app", tags={name: text})])
    (command,) = Decoder(lambda: 300).application_commands(request)
    (spec,) = command.add
    assert (spec.created_s, spec.tags) == (seconds, ((name, text),))


def test_registration_is_decoded() -> None:
    """Maps of a registration are sorted, so that equal requests are equal commands."""
    command = Decoder().decode_registration(
        si.RegisterResourceManagerRequest(
            rmID="rm-1",
            config="c",
            policyGroup="p",
            version="v",
            buildInfo={"b": "1", "a": "2"},
            extraConfig={"x": "y"},
        )
    )
    assert command.build_info == (("a", "2"), ("b", "1"))
    assert (command.rm_id, command.config, command.policy_group, command.version) == ("rm-1", "c", "p", "v")
    assert command.extra_config == (("x", "y"),)


def test_a_new_allocation_says_what_the_core_has_to_say() -> None:
    """`new` carries everything of 2.5 and the G2 ID, but neither tags nor priority nor partition."""
    spec = AllocationSpec(
        "k",
        "app",
        "[rm-1]default",
        Resources({"vcore": 1}),
        priority=9,
        task_group="tg",
        placeholder=True,
        originator=True,
        tags=(("a", "b"),),
    )
    raw = Encoder().encode_allocations([Allocated(spec, "n1", Resources({"vcore": 2, "memory": 3}))])
    assert si.AllocationResponse.FromString(raw) == si.AllocationResponse(
        new=[
            si.Allocation(
                allocationKey="k",
                resourcePerAlloc=amounts(vcore=2, memory=3),
                nodeID="n1",
                applicationID="app",
                taskGroupName="tg",
                placeholder=True,
                originator=True,
                preemptionPolicy=si.PreemptionPolicy(allowPreemptSelf=True),
                allocationID="k-0",
                UUID="k-0",
            )
        ]
    )


@pytest.mark.parametrize("key", ["k", "k" * 125, "k" * 126, "k" * 1_024, "schlüssel", "\N{SLICE OF PIZZA}"])
def test_answers_are_the_same_whatever_the_names(key: str) -> None:
    """Entries are joined from their names: lengths of one and of two bytes, and names of more bytes than characters."""
    spec = AllocationSpec(key, "app", "[rm-1]default", None, allow_preempt_other=True)
    placed = [Allocated(spec, "n1", Resources({"vcore": 1})), Allocated(spec, f"n-{key}", Resources({"vcore": 1}))]
    assert si.AllocationResponse.FromString(Encoder().encode_allocations(placed)) == si.AllocationResponse(
        new=[
            si.Allocation(
                allocationKey=key,
                resourcePerAlloc=amounts(vcore=1),
                nodeID=node,
                applicationID="app",
                preemptionPolicy=si.PreemptionPolicy(allowPreemptSelf=True, allowPreemptOther=True),
                allocationID=f"{key}-0",
                UUID=f"{key}-0",
            )
            for node in ("n1", f"n-{key}")
        ]
    )


def test_allocations_that_share_a_key_differ_in_their_id() -> None:
    """The IDs of G2 number the allocations of one ask, in `new` and in `released` (3.4)."""
    specs = [AllocationSpec("k", "app", "[rm-1]default", None, instance=number) for number in (0, 12)]
    raw = Encoder().encode_allocations([Allocated(spec, "n1", Resources()) for spec in specs])
    assert [(e.allocationKey, e.allocationID, e.UUID) for e in si.AllocationResponse.FromString(raw).new] == [
        ("k", "k-0", "k-0"),
        ("k", "k-12", "k-12"),
    ]
    raw = Encoder().encode_allocations([Released("[rm-1]default", "app", "k", TerminationType.TIMEOUT, "", 12)])
    (released,) = si.AllocationResponse.FromString(raw).released
    assert (released.allocationKey, released.allocationID, released.UUID) == ("k", "k-12", "k-12")


def test_long_fields_that_allocations_share_are_not_remembered() -> None:
    """Amounts of a thousand types with long names are written anew each time."""
    encoder = Encoder()
    types = Resources({f"{number}" + "x" * 1_000: 1 for number in range(10)})
    for group in ("", "g"):
        spec = AllocationSpec("k", "app", "[rm-1]default", types, task_group=group)
        response = si.AllocationResponse.FromString(encoder.encode_allocations([Allocated(spec, "n1", types)]))
        sent = response.new[0].resourcePerAlloc.resources
        assert {name: amount.value for name, amount in sent.items()} == dict(types.items())
        assert response.new[0].taskGroupName == group
    assert not encoder._tails


def test_policy_is_sent_even_if_it_says_no_to_both() -> None:
    """The preemption policy of a new allocation is always set (2.5)."""
    spec = AllocationSpec("k", "app", "[rm-1]default", None, allow_preempt_self=False)
    response = si.AllocationResponse.FromString(Encoder().encode_allocations([Allocated(spec, "n1", Resources())]))
    assert response.new[0].HasField("preemptionPolicy")
    assert response.new[0].HasField("resourcePerAlloc")


def test_entries_that_share_their_shape_keep_what_is_their_own() -> None:
    """What two allocations have in common is encoded once without mixing the rest up."""
    specs = [AllocationSpec(f"k{n}", f"app{n}", "[rm-1]default", None) for n in range(3)]
    effects = [Allocated(spec, f"n{n}", Resources({"vcore": n // 2})) for n, spec in enumerate(specs)]
    response = si.AllocationResponse.FromString(Encoder().encode_allocations(effects))
    assert [
        (e.allocationKey, e.applicationID, e.nodeID, e.allocationID, e.resourcePerAlloc.resources["vcore"].value)
        for e in response.new
    ] == [("k0", "app0", "n0", "k0-0", 0), ("k1", "app1", "n1", "k1-0", 0), ("k2", "app2", "n2", "k2-0", 1)]


def test_releases_and_rejections_are_encoded() -> None:
    """Releases carry the full partition name; refusals of G2 asks go to their own list (case 151)."""
    encoder = Encoder()
    released = encoder.encode_allocations([Released("[rm-1]default", "app", "k", TerminationType.TIMEOUT, "why")])
    assert si.AllocationResponse.FromString(released).released[0] == si.AllocationRelease(
        partitionName="[rm-1]default",
        applicationID="app",
        allocationKey="k",
        allocationID="k-0",
        UUID="k-0",
        terminationType=si.TIMEOUT,
        message="why",
    )
    newer = AllocationRejected("k", "app", "no-queue: x", legacy=False)
    older = AllocationRejected("k", "app", "no-queue: x", legacy=True)
    assert list_key(newer) != list_key(older)
    assert len(si.AllocationResponse.FromString(encoder.encode_allocations([newer])).rejectedAllocations) == 1
    assert len(si.AllocationResponse.FromString(encoder.encode_allocations([older])).rejected) == 1


def test_asks_dropped_by_the_core_have_their_own_list() -> None:
    """Waiting placeholders of a G2 shim go to releasedAsks, never into one message with releases (case 154)."""
    dropped = AskReleased("[rm-1]default", "app", "p", TerminationType.TIMEOUT, "why")
    assert list_key(dropped) != list_key(Released("[rm-1]default", "app", "p", TerminationType.TIMEOUT, "why"))
    response = si.AllocationResponse.FromString(Encoder().encode_allocations([dropped, dropped._replace(key="q")]))
    assert list(response.releasedAsks) == [
        si.AllocationAskRelease(
            partitionName="[rm-1]default",
            applicationID="app",
            allocationKey=key,
            terminationType=si.TIMEOUT,
            message="why",
        )
        for key in ("p", "q")
    ]
    assert not response.released


def test_application_and_node_answers_are_encoded() -> None:
    """Accepted and rejected share a response, state changes do not (15)."""
    encoder = Encoder()
    accepted, rejected = ApplicationAccepted("a"), ApplicationRejected("b", "no-queue: x")
    updated = ApplicationUpdated("a", "Running", 17, "runApplication")
    assert list_key(accepted) == list_key(rejected) != list_key(updated)
    answer = si.ApplicationResponse.FromString(encoder.encode_applications([accepted, rejected]))
    assert ([e.applicationID for e in answer.accepted], answer.rejected[0].reason) == (["a"], "no-queue: x")
    change = si.ApplicationResponse.FromString(encoder.encode_applications([updated])).updated[0]
    assert (change.applicationID, change.state, change.stateTransitionTimestamp, change.message) == (
        "a",
        "Running",
        17,
        "runApplication",
    )
    nodes = si.NodeResponse.FromString(encoder.encode_nodes([NodeAccepted("n"), NodeRejected("m", "node-exists: m")]))
    assert (nodes.accepted[0].nodeID, nodes.rejected[0].nodeID) == ("n", "m")
    assert nodes.rejected[0].reason == "node-exists: m"


def test_commands_do_not_depend_on_the_hash_seed() -> None:
    """The same bytes decode to the same command in every process: maps come out sorted (architecture.md)."""
    tags = {f"tag-{n}": str(n) for n in range(20)}
    raw = si.AllocationRequest(
        rmID="r", allocations=[si.Allocation(allocationTags=tags, resourcePerAlloc=amounts(a=1, b=2, c=3))]
    ).SerializeToString()
    program = (
        "import sys; from kornel.si.v1 import si_pb2; from kornel.core.service.wire.scheduler_wire import Decoder;"
        f"print(list(Decoder().allocation_commands(si_pb2.AllocationRequest.FromString({raw!r}))))"
    )
    root = Path(__file__).parents[3]
    path = str(root)
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
