"""``kornel explain`` and ``kornel what-if`` over the wire, from the shim's and from the command line's side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from typer.testing import CliRunner, Result

from kornel.cli.app import app
from kornel.shim_client import Ask, ShimClient, resource
from kornel.shim_client.errors import CallFailed
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import explain_pb2 as pb
from tests.e2e.harness import Core, running_core

QUEUES = (
    "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: ["
    "{name: v}, {name: a, resources: {guaranteed: {vcore: 4}, max: {vcore: 6}}}]}]}]"
)


@pytest.fixture
async def core() -> AsyncIterator[Core]:
    """Two nodes full of work of root.v, and k of root.a, which is owed room and waits for its delay."""
    async with running_core() as served, ShimClient(served.address, "rm-1") as shim:
        await shim.register(config=QUEUES)
        owner = si.UserGroupInformation(user="ann", groups=["staff"])
        await shim.create_nodes(
            [
                si.NodeInfo(nodeID=name, action=si.NodeInfo.CREATE, schedulableResource=resource({"vcore": 4000}))
                for name in ("n1", "n2")
            ]
        )
        await shim.add_applications(
            [si.AddApplicationRequest(applicationID=f"app-{q}", queueName=f"root.{q}", ugi=owner) for q in "va"]
        )
        await shim.submit_asks([Ask(f"v{n}", "app-v", {"vcore": 2000}) for n in range(4)])
        await shim.flush()
        await served.settle()
        await shim.submit_asks([Ask("k", "app-a", {"vcore": 4000}, allow_preempt_other=True)])
        await shim.flush()
        await served.settle()
        yield served


async def kornel(core: Core, *arguments: str) -> Result:
    """The command, in a thread of its own: the core serves in this one."""
    return await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "--grpc", core.address])


async def test_a_shim_asks_why(core: Core) -> None:
    """Blockers with numbers, the outlook with its time; nobody of that name is NOT_FOUND."""
    async with ShimClient(core.address, "rm-1") as shim:
        ask = (await shim.explain("k")).ask
        assert [(b.kind, b.name, b.node_count) for b in ask.blockers] == [
            ("cluster-size", "root", 0),
            ("node-full", "n1", 2),
        ]
        assert [(s.type, s.limit, s.used, s.asked, s.short) for s in ask.blockers[1].shortages] == [
            ("vcore", 4000, 4000, 4000, 4000)
        ]
        assert (ask.position.partition, ask.position.partition_of) == (1, 1)
        assert (ask.preemption.verdict, ask.preemption.blocked_by) == ("would-help", "preemption.delay of its queue")
        assert ask.preemption.HasField("not_before_ns")
        assert len(ask.preemption.victims) == 2
        assert (await shim.explain("app-a")).application.groups[0].first.key == "k"
        with pytest.raises(CallFailed, match="nobody"):
            await shim.explain("nobody")


async def test_a_shim_asks_what_if(core: Core) -> None:
    """Each kind of question; one that makes no sense is refused, and nothing has changed afterwards."""
    async with ShimClient(core.address, "rm-1") as shim:
        before = await shim.status(audit=True)
        supposed = pb.SupposedAsk(queue="root.a", resources={"vcore": 2000}, count=2, priority=1)
        answer = await shim.what_if(pb.WhatIfRequest(ask=supposed))
        assert [p.key for p in answer.preemptions] == ["what-if-1", "what-if-2"]
        lost = await shim.what_if(pb.WhatIfRequest(node_lost=pb.SupposedNodeLoss(node_id="n1")))
        assert len(lost.displaced) == 2
        quota = pb.SupposedQuota(queue="root.v", max={"vcore": 4000})
        lowered = await shim.what_if(pb.WhatIfRequest(quota=quota))
        assert dict(lowered.enforcements[0].excess) == {"vcore": 4000}
        raised = await shim.what_if(pb.WhatIfRequest(priority=pb.SupposedPriority(key="k", priority=5)))
        assert raised.position == 1
        assert all(wait.already for wait in raised.waiting)
        unknown = await shim.what_if(pb.WhatIfRequest(ask=pb.SupposedAsk(queue="root.x", resources={"vcore": 1})))
        assert unknown.rejected.startswith("no-queue: queue 'root.x': provided: root.x does not exist")
        for question in (
            pb.WhatIfRequest(),
            pb.WhatIfRequest(node_lost=pb.SupposedNodeLoss(node_id="n9")),
            pb.WhatIfRequest(ask=supposed, partition="gpu"),
        ):
            with pytest.raises(CallFailed):
                await shim.what_if(question)
        assert await shim.status(audit=True) == before


async def test_the_command_says_it_in_words_and_as_json(core: Core) -> None:
    """Text for people, the response as JSON for programs, exit 1 or 2 with a reason."""
    plain = await kornel(core, "explain", "k")
    assert plain.exit_code == 0, plain.output
    assert "1. node: cluster-size root" in plain.output
    assert "2. node: node-full on 2 nodes, closest n1: not enough room" in plain.output
    assert "vcore: 4 asked, 4 of 4 used, 4 short" in plain.output
    assert "preemption: would-help, preemption.delay of its queue" in plain.output
    as_json = await kornel(core, "explain", "app-a", "--json")
    assert json.loads(as_json.output)["application"]["pending_ask_count"] == "1"
    what_if = ("what-if", "ask", "--queue", "root.a", "--vcore", "4", "--count", "2", "--priority", "1")
    asked = await kornel(core, *what_if)
    assert "0 asks placed" in asked.output
    assert "what-if-1 preempts (guarantee) from " in asked.output
    assert json.loads((await kornel(core, *what_if, "--json")).output)["complete"] is True
    assert "2 allocations lost" in (await kornel(core, "what-if", "node-lost", "n1")).output
    assert "vcore=4 above its max" in (await kornel(core, "what-if", "quota", "root.v", "max.vcore=4")).output
    assert "position 1" in (await kornel(core, "what-if", "priority", "k", "7")).output
    assert (await kornel(core, "explain", "nobody")).exit_code == 1
    assert (await kornel(core, "what-if", "quota", "root.v", "vcore=4")).exit_code == 2
    assert (await kornel(core, "what-if", "ask", "--queue", "root.a", "--vcore", "x")).exit_code == 2


async def test_who_took_the_room(core: Core) -> None:
    """Once the delay is over the victim tells for whom it has to leave."""
    core.clock.advance(31 * 10**9)
    await core.settle()
    plain = await kornel(core, "explain", "k")
    assert "preemption: under-way" in plain.output
    victim = (await kornel(core, "explain", "v0")).output + (await kornel(core, "explain", "v1")).output
    assert "for k of app-a in root.a" in victim
    assert "nodes looked at" in victim


async def test_placement_rules_answer_where_no_queue_is_named() -> None:
    """Without --queue the rules choose for the owner, and the answer says what; a queue that is not there is named."""
    rules = "placementrules: [{name: user, create: CREATE, parent: {name: fixed, value: root.users}}]"
    queues = "queues: [{name: root, submitacl: '*', queues: [{name: users, parent: true, queues: [{name: ann}]}]}]"
    config = f"partitions: [{{name: default, {rules}, {queues}}}]"
    async with running_core() as core, ShimClient(core.address, "rm-1") as shim:
        await shim.register(config=config.replace("CREATE", "true"))
        room = resource({"vcore": 4000})
        await shim.create_nodes([si.NodeInfo(nodeID="n1", action=si.NodeInfo.CREATE, schedulableResource=room)])
        ask = ("what-if", "ask", "--vcore", "1", "--user")
        placed = await kornel(core, *ask, "ann")
        assert placed.exit_code == 0, placed.output
        assert "note: the placement rules put the application into root.users.ann" in placed.output
        made = await kornel(core, *ask, "bob")
        assert made.output.startswith("1 ask placed at once"), made.output
        assert "note: the placement rules put the application into root.users.bob, a new queue" in made.output
        await shim.update_configuration(config.replace("CREATE", "false"))
        nowhere = await kornel(core, *ask, "bob")
        assert nowhere.exit_code == 0, nowhere.output
        assert nowhere.output.startswith("would be rejected: no-queue: "), nowhere.output
        assert "root.users.bob" in nowhere.output


async def test_a_forecast_says_what_a_submission_would_hear() -> None:
    """Access lists, filters and gangs that are too large reject the supposed application as they do a real one."""
    rules = "placementrules: [{name: provided, filter: {type: allow, users: [ann, eve]}}, {name: user, create: true, \
parent: {name: fixed, value: root.users}}]"
    queues = "queues: [{name: root, queues: [{name: vip, submitacl: ann, resources: {max: {vcore: 2}}}, \
{name: shut}, {name: users, parent: true, submitacl: '*'}]}]"
    async with running_core() as core, ShimClient(core.address, "rm-1") as shim:
        await shim.register(config=f"partitions: [{{name: default, {rules}, {queues}}}]")
        room = resource({"vcore": 4000})
        await shim.create_nodes([si.NodeInfo(nodeID="n1", action=si.NodeInfo.CREATE, schedulableResource=room)])
        vip, ann = ("--vcore", "1", "--queue", "root.vip"), ("--user", "ann")
        assert (await kornel(core, "what-if", "ask", *vip, *ann)).output.startswith("1 ask placed at once")
        eve = await kornel(core, "what-if", "ask", *vip, "--user", "eve")
        assert "note: the placement rules put the application into root.users.eve, a new queue" in eve.output
        shut = await kornel(core, "what-if", "ask", "--vcore", "1", "--queue", "root.shut", *ann)
        assert "into root.users.ann, a new queue" in shut.output
        bob = await kornel(core, "what-if", "ask", *vip, "--user", "bob")
        assert "into root.users.bob, a new queue" in bob.output
        anybody = await kornel(core, "what-if", "ask", *vip)
        assert "not everybody may submit to root.vip; no user was named" in anybody.output
        typo = await kornel(core, "what-if", "ask", "--vcore", "1", "--queue", "root.vipp")
        assert typo.exit_code == 1
        assert "'root.vipp' is no leaf that takes work, and placement rules need a user" in typo.output
        gang = await kornel(core, "what-if", "gang", "3", *vip, *ann)
        assert gang.output.startswith("would be rejected: gang-too-large: vcore 3000 is above the max 2000")


async def test_a_max_that_is_not_enforced_says_which_switch_is_off(core: Core) -> None:
    """A lowered max without a delay of enforcement makes nobody leave, and the answer says for want of what."""
    found = (await kornel(core, "what-if", "quota", "root.v", "max.vcore=4")).output
    assert "nobody would be asked to leave: quotapreemptionenabled is off" in found


async def test_who_waits_longest_is_listed_with_the_first_obstacle(core: Core) -> None:
    """By application, queue or user; nothing else is listed."""
    core.clock.advance(7 * 10**9)
    plain = (await kornel(core, "waits")).output
    heads, row, *others = plain.splitlines()
    assert heads.split()[0] == "application", plain
    assert row.split()[:3] == ["app-a", "root.a", "1"]
    assert "node-full n1" in row, plain
    assert not others, plain
    assert "root.a" in (await kornel(core, "waits", "--by", "queue")).output.splitlines()[1]
    (summary,) = json.loads((await kornel(core, "waits", "--json")).output)["waits"]
    assert int(summary["oldest_ask_ns"]) > 0
    assert (await kornel(core, "waits", "--by", "rack")).exit_code == 2
    assert (await kornel(core, "waits", "--queue", "root.v")).output == "nobody waits\n"


async def test_a_forecast_names_whom_it_concerns(core: Core) -> None:
    """Whoever would leave is named with user, priority, and whether it is the first task of its application."""
    asked = (await kornel(core, "what-if", "ask", "--queue", "root.a", "--vcore", "4", "--priority", "1")).output
    assert "leaves  queue   user  priority  originator  node  for" in asked, asked
    assert "v0      root.v  " in asked
