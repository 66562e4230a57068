"""The client library against a core that does what the test tells it."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from kornel.shim_client import (
    Allocated,
    ApplicationAccepted,
    ApplicationUpdated,
    Ask,
    AskRejected,
    AskReleased,
    CoreUnreachable,
    Generation,
    NodeAccepted,
    NotSupported,
    RegistrationRefused,
    Released,
    ResyncRequired,
    ShimClient,
    ShimClientError,
    StreamKind,
    StreamRefused,
    StreamReopened,
    UpdateHandler,
)
from kornel.si.v1 import si_pb2 as si
from tests.patience import PATIENCE_S
from tests.unit.shim_client.fake_core import End, FakeCore, serving


def asks(count: int) -> list[Ask]:
    return [Ask(f"k-{index}", "app", {"vcore": 1000}) for index in range(count)]


async def first_updates(client: ShimClient, count: int) -> list[object]:
    found: list[object] = []
    async with asyncio.timeout(PATIENCE_S):
        async for update in client.updates():
            found.append(update)
            if len(found) == count:
                return found
    return found


async def test_registration_binds_every_stream_with_a_message_that_carries_only_the_rm_id() -> None:
    """After registering, each stream's first message names the RM and nothing else."""
    core = FakeCore()
    async with serving(core) as address, ShimClient(address, "rm-1") as client:
        await client.register(config="partitions: []", extra_config={"log.level": "debug"})
        await core.until(lambda: all(core.requests.values()))
    assert core.registrations[0].config == "partitions: []"
    assert core.registrations[0].extraConfig == {"log.level": "debug"}
    assert core.requests["node"][0] == si.NodeRequest(rmID="rm-1")
    assert core.requests["application"][0] == si.ApplicationRequest(rmID="rm-1")
    assert core.requests["allocation"][0] == si.AllocationRequest(rmID="rm-1")


@pytest.mark.parametrize("generation", list(Generation))
async def test_asks_travel_in_batches_and_in_order(generation: Generation) -> None:
    """Many asks need few messages, none larger than the batch, in the order in which they were submitted."""
    core = FakeCore()
    async with serving(core) as address, ShimClient(address, "rm-1", generation=generation, batch=100) as client:
        await client.register()
        await client.submit_asks(asks(1000))
        await core.until(lambda: len(core.asks) == 1000)
    sizes = [len(request.allocations) + len(request.asks) for request in core.requests["allocation"]]
    assert max(sizes) <= 100
    assert len(sizes) <= 15
    assert [ask.allocationKey for ask in core.asks] == [f"k-{index}" for index in range(1000)]


async def test_an_ask_says_the_same_in_both_generations() -> None:
    """Every property of an ask reaches the message of either generation."""
    ask = Ask(
        *("k", "app", {"vcore": 5, "memory": 7}, 9),
        allow_preempt_self=False,
        allow_preempt_other=True,
        originator=True,
        task_group="gang",
        placeholder=True,
        created_s=1700000000,
        tags={"a": "b"},
    )
    new, old = ask.to_g3(), ask.to_g2()
    assert (new.resourcePerAlloc, new.allocationTags) == (old.resourceAsk, old.tags)
    assert old.tags == {"a": "b", "creationTime": "1700000000"}
    assert (new.priority, new.originator, new.placeholder, new.taskGroupName) == (9, True, True, "gang")
    assert (old.priority, old.Originator, old.placeholder, old.taskGroupName) == (9, True, True, "gang")
    assert new.preemptionPolicy == old.preemptionPolicy
    assert old.maxAllocations == 1
    assert not new.nodeID


async def test_packing_never_changes_what_happens_first() -> None:
    """A release followed by an ask for the same key is not packed into one request, where the ask would go first."""
    core = FakeCore()
    async with serving(core) as address, ShimClient(address, "rm-1") as client:
        await client.register()
        await client.release([client.release_of("app", "k-0", si.STOPPED_BY_RM)])
        await client.submit_asks(asks(1))
        await core.until(lambda: core.asks)
    told = [request for request in core.requests["allocation"] if request.allocations or request.HasField("releases")]
    assert [bool(request.releases.allocationsToRelease) for request in told] == [True, False]


async def test_withdrawing_speaks_the_generation() -> None:
    """G2 withdraws asks in a list of their own, G3 among the releases."""
    for generation in Generation:
        core = FakeCore()
        async with serving(core) as address, ShimClient(address, "rm-1", generation=generation) as client:
            await client.register()
            await client.withdraw_asks([("app", "k-0")])
            await core.until(lambda core=core: len(core.requests["allocation"]) == 2)
        releases = core.requests["allocation"][1].releases
        assert len(releases.allocationAsksToRelease) == (generation is Generation.G2)
        assert len(releases.allocationsToRelease) == (generation is Generation.G3)


async def test_answers_are_matched_to_their_questions() -> None:
    """Creating nodes and adding applications return the core's answer to each entry, in the order of the entries."""
    core = FakeCore()
    async with serving(core) as address, ShimClient(address, "rm-1") as client:
        await client.register()
        nodes = [si.NodeInfo(nodeID=f"n{index}", action=si.NodeInfo.CREATE) for index in range(3)]
        assert await client.create_nodes(nodes) == [NodeAccepted("n0"), NodeAccepted("n1"), NodeAccepted("n2")]
        added = await client.add_applications([si.AddApplicationRequest(applicationID="app")])
        assert added == [ApplicationAccepted("app")]


async def test_every_response_becomes_a_typed_update() -> None:
    """New, released and refused entries of both generations, and state changes, arrive as values, in order."""
    core = FakeCore()
    async with serving(core) as address, ShimClient(address, "rm-1") as client:
        await client.register()
        await core.say("application", si.ApplicationResponse(updated=[si.UpdatedApplication(state="Running")]))
        assert await first_updates(client, 1) == [ApplicationUpdated("", "Running", 0, "")]
        allocation = si.Allocation(allocationKey="a", applicationID="app", nodeID="n")
        await core.say("allocation", si.AllocationResponse(new=[allocation]))
        release = si.AllocationRelease(allocationKey="b", terminationType=si.TIMEOUT, message="late")
        await core.say("allocation", si.AllocationResponse(released=[release]))
        await core.say(
            "allocation",
            si.AllocationResponse(
                releasedAsks=[si.AllocationAskRelease(allocationKey="c")],
                rejected=[si.RejectedAllocationAsk(allocationKey="d", reason="no")],
                rejectedAllocations=[si.RejectedAllocation(allocationKey="e", reason="never")],
            ),
        )
        assert await first_updates(client, 5) == [
            Allocated("a", "app", "n", allocation),
            Released("b", "", si.TIMEOUT, "late"),
            AskReleased("c", "", ""),
            AskRejected("d", "", "no"),
            AskRejected("e", "", "never"),
        ]


@pytest.mark.parametrize(
    ("termination", "wanted"),
    [
        (si.UNKNOWN_TERMINATION_TYPE, False),
        (si.STOPPED_BY_RM, False),
        (si.TIMEOUT, True),
        (si.PREEMPTED_BY_SCHEDULER, True),
        (si.PLACEHOLDER_REPLACED, True),
    ],
)
def test_which_releases_want_a_confirmation(termination: si.TerminationType.ValueType, wanted: bool) -> None:
    """Ends that the core started are confirmed; ends that are over already are not."""
    assert Released("k", "app", termination, "").wants_confirmation is wanted


async def test_a_handler_is_called_per_update() -> None:
    """dispatch() calls the method that belongs to each update, until the client is closed."""
    heard: list[str] = []

    class Handler(UpdateHandler):
        def node_accepted(self, update: NodeAccepted) -> None:
            heard.append(update.node_id)

    core = FakeCore()
    async with serving(core) as address:
        async with ShimClient(address, "rm-1") as client:
            await client.register()
            task = asyncio.create_task(client.dispatch(Handler()))
            await client.create_nodes([si.NodeInfo(nodeID="n", action=si.NodeInfo.CREATE)])
        await task
    assert heard == ["n"]


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.OK])
async def test_a_broken_stream_is_opened_and_bound_again(code: grpc.StatusCode) -> None:
    """After a break the new stream starts with the RM's ID alone, the shim hears of it, and work goes on."""
    core = FakeCore()
    async with serving(core) as address, ShimClient(address, "rm-1") as client:
        await client.register()
        await core.say("allocation", End(code, "broken"))
        assert await first_updates(client, 1) == [StreamReopened(StreamKind.ALLOCATION)]
        await client.submit_asks(asks(1))
        await core.until(lambda: core.asks)
    assert core.opened["allocation"] == 2
    assert core.requests["allocation"].count(si.AllocationRequest(rmID="rm-1")) == 2
    assert len(core.registrations) == 1


async def test_a_core_that_forgot_the_rm_demands_a_resync() -> None:
    """FAILED_PRECONDITION ends everything with ResyncRequired; registering again starts anew."""
    core = FakeCore()
    async with serving(core) as address, ShimClient(address, "rm-1") as client:
        await client.register()
        await core.say("node", End(grpc.StatusCode.FAILED_PRECONDITION, "unknown rmID"))
        with pytest.raises(ResyncRequired, match="unknown rmID"):
            await first_updates(client, 1)
        with pytest.raises(ResyncRequired):
            await client.submit_asks(asks(1))
        await client.register()
        nodes = [si.NodeInfo(nodeID="n", action=si.NodeInfo.CREATE)]
        assert await client.create_nodes(nodes) == [NodeAccepted("n")]


async def test_who_waits_for_an_answer_hears_of_the_end() -> None:
    """A call that waits for the core's answer raises what ended the stream, rather than waiting for ever."""
    core = FakeCore()
    core.answer_applications = False
    async with serving(core) as address, ShimClient(address, "rm-1") as client:
        await client.register()
        waiting = asyncio.create_task(client.add_applications([si.AddApplicationRequest(applicationID="app")]))
        await core.until(lambda: len(core.requests["application"]) == 2)
        await core.say("application", End(grpc.StatusCode.INVALID_ARGUMENT, "another rmID"))
        with pytest.raises(StreamRefused, match="another rmID"):
            await waiting


async def test_a_refused_registration_gives_code_and_reason() -> None:
    """The gRPC status of a refused registration is what the exception carries."""
    core = FakeCore()
    core.refusal = End(grpc.StatusCode.INVALID_ARGUMENT, "queues[0].name: missing")
    async with serving(core) as address, ShimClient(address, "rm-1") as client:
        with pytest.raises(RegistrationRefused) as caught:
            await client.register()
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.reason == "queues[0].name: missing"


async def test_nobody_at_the_address() -> None:
    """Connecting to a dead address fails in the time allowed, naming the address."""
    with pytest.raises(CoreUnreachable, match=r"127\.0\.0\.1:1 "):
        async with ShimClient("127.0.0.1:1", "rm-1", connect_s=0.3):
            pass


async def test_a_core_without_our_own_package_is_told_apart() -> None:
    """A kornel.v1 call to a core that serves only si.v1 raises NotSupported."""
    async with serving(FakeCore()) as address, ShimClient(address, "rm-1") as client:
        with pytest.raises(NotSupported):
            await client.status()
        with pytest.raises(NotSupported):
            await client.validate_configuration("")
        with pytest.raises(NotSupported):
            await client.update_configuration("")


async def test_closing_sends_what_is_queued_and_leaves_nothing_running() -> None:
    """What was submitted before close() arrives, and no task outlives the client."""
    core = FakeCore()
    async with serving(core) as address:
        client = ShimClient(address, "rm-1")
        await client.connect()
        await client.register()
        await client.submit_asks(asks(500))
        await client.close()
        await client.close()
        left = [task.get_name() for task in asyncio.all_tasks() if "rm-1" in task.get_name()]
    assert len(core.asks) == 500
    assert left == []
    with pytest.raises(ShimClientError):
        await client.submit_asks(asks(1))


async def test_a_slow_reader_holds_the_core_back() -> None:
    """Unread updates are bounded by the inbox: the client stops reading rather than piling them up."""
    core = FakeCore()
    async with serving(core) as address, ShimClient(address, "rm-1", inbox=2) as client:
        await client.register()
        for index in range(20):
            new = si.Allocation(allocationKey=f"k-{index}")
            await core.say("allocation", si.AllocationResponse(new=[new]))
        keys = [update.key for update in await first_updates(client, 20) if isinstance(update, Allocated)]
    assert keys == [f"k-{index}" for index in range(20)]
