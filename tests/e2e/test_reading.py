"""kornel.v1.ReadService and AdminService, and the commands of ``kornel`` that use them."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from typer.testing import CliRunner, Result

from kornel.cli.app import app
from kornel.shim_client import Ask, ShimClient, resource
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import admin_pb2, admin_pb2_grpc, read_pb2_grpc
from kornel.v1 import read_pb2 as pb
from tests.e2e.harness import Core, running_core
from tests.prepared import python

QUEUES = (
    "partitions: [{name: default, topology: [zone], queues: [{name: root, submitacl: '*', queues: ["
    "{name: v}, {name: a, resources: {guaranteed: {vcore: 4}, max: {vcore: 6}}}]}]}]"
)


@pytest.fixture
async def shim() -> AsyncIterator[tuple[Core, ShimClient]]:
    """Two nodes, three allocations of app-v, and k of app-a, which waits."""
    async with running_core() as served, ShimClient(served.address, "rm-1") as shim:
        await shim.register(config=QUEUES)
        owner = si.UserGroupInformation(user="ann", groups=["staff"])
        room = resource({"vcore": 4000, "memory": 2**33})
        await shim.create_nodes(
            [
                si.NodeInfo(nodeID=name, action=si.NodeInfo.CREATE, schedulableResource=room, attributes={"zone": "z"})
                for name in ("n1", "n2")
            ]
        )
        await shim.add_applications(
            [si.AddApplicationRequest(applicationID=f"app-{q}", queueName=f"root.{q}", ugi=owner) for q in "va"]
        )
        await shim.add_applications(
            [si.AddApplicationRequest(applicationID="app-no", queueName="root.none", ugi=owner)]
        )
        await shim.submit_asks([Ask(f"v{n}", "app-v", {"vcore": 2000, "memory": 2**30}) for n in range(3)])
        await shim.flush()
        await served.settle()
        await shim.submit_asks([Ask("k", "app-a", {"vcore": 4000})])
        await shim.flush()
        await served.settle()
        yield served, shim


@pytest.fixture
def core(shim: tuple[Core, ShimClient]) -> Core:
    return shim[0]


@pytest.fixture
def reader(core: Core) -> read_pb2_grpc.ReadServiceAsyncStub:
    return read_pb2_grpc.ReadServiceStub(core.channel)


@pytest.fixture
def admin(core: Core) -> admin_pb2_grpc.AdminServiceAsyncStub:
    return admin_pb2_grpc.AdminServiceStub(core.channel)


async def kornel(core: Core, *arguments: str) -> Result:
    """The command, in a thread of its own: the core serves in this one."""
    return await asyncio.to_thread(CliRunner(env={"KORNEL_ADDRESS": core.address}).invoke, app, [*arguments])


async def test_pages_add_up_to_the_whole(reader: read_pb2_grpc.ReadServiceAsyncStub) -> None:
    """Each page goes on where the one before ended; the last one has no token."""
    queues, nodes, apps = (
        pb.ListQueuesRequest(page_size=2),
        pb.ListNodesRequest(page_size=1),
        pb.ListApplicationsRequest(page_size=1),
    )
    seen: dict[str, list[str]] = {"queues": [], "nodes": [], "apps": []}
    while True:
        page = await reader.ListQueues(queues)
        seen["queues"] += [queue.path for queue in page.queues]
        queues.page_token = page.next_page_token
        if not queues.page_token:
            break
    while True:
        listed = await reader.ListNodes(nodes)
        seen["nodes"] += [node.node_id for node in listed.nodes]
        nodes.page_token = listed.next_page_token
        if not nodes.page_token:
            break
    while True:
        found = await reader.ListApplications(apps)
        seen["apps"] += [summary.application_id for summary in found.applications]
        apps.page_token = found.next_page_token
        if not apps.page_token:
            break
    assert seen == {"queues": ["root", "root.a", "root.v"], "nodes": ["n1", "n2"], "apps": ["app-a", "app-v"]}


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (pb.ListApplicationsRequest(queue="ROOT.V"), ["app-v"]),
        (pb.ListApplicationsRequest(queue="root"), ["app-a", "app-v"]),
        (pb.ListApplicationsRequest(queue="roo"), []),
        (pb.ListApplicationsRequest(state="accepted"), ["app-a"]),
        (pb.ListApplicationsRequest(user="bob"), []),
        (pb.ListApplicationsRequest(kind=pb.APPLICATION_KIND_REJECTED), ["app-no"]),
        (pb.ListApplicationsRequest(kind=pb.APPLICATION_KIND_FINISHED), []),
    ],
)
async def test_applications_as_wanted(
    reader: read_pb2_grpc.ReadServiceAsyncStub, request_: pb.ListApplicationsRequest, expected: list[str]
) -> None:
    found = await reader.ListApplications(request_)
    assert [summary.application_id for summary in found.applications] == expected


async def test_ended_applications_come_in_pages(
    shim: tuple[Core, ShimClient], reader: read_pb2_grpc.ReadServiceAsyncStub
) -> None:
    """One ID may have ended several times."""
    served, client = shim
    owner = si.UserGroupInformation(user="ann", groups=["staff"])
    for _ in range(2):
        served.clock.advance(10**9)
        await client.add_applications([si.AddApplicationRequest(applicationID="twice", queueName="root.v", ugi=owner)])
        await client.submit_asks([Ask("t", "twice", {"vcore": 1})])
        await client.flush()
        await served.settle()
        await client.send_applications([si.RemoveApplicationRequest(applicationID="twice")])
        await client.flush()
        await served.settle()
    request = pb.ListApplicationsRequest(kind=pb.APPLICATION_KIND_FINISHED, page_size=1)
    first = await reader.ListApplications(request)
    request.page_token = first.next_page_token
    second = await reader.ListApplications(request)
    assert [page.applications[0].application_id for page in (first, second)] == ["twice", "twice"]
    assert first.applications[0].finished_ns < second.applications[0].finished_ns
    assert not second.next_page_token
    latest = await reader.GetApplication(pb.GetApplicationRequest(application_id="twice"))
    assert latest.summary.finished_ns == second.applications[0].finished_ns
    assert [entry.state for entry in latest.states] == ["Accepted", "Running", "Completing", "Completed"]


async def test_single_things(reader: read_pb2_grpc.ReadServiceAsyncStub) -> None:
    queue = (await reader.GetQueue(pb.GetQueueRequest(path="ROOT.a"))).queue
    assert (queue.path, queue.guaranteed["vcore"], queue.max["vcore"], queue.pending["vcore"]) == (
        "root.a", 4000, 6000, 4000,
    )  # fmt: skip
    application = await reader.GetApplication(pb.GetApplicationRequest(application_id="app-a"))
    assert [ask.key for ask in application.asks] == ["k"]
    assert application.asks[0].last_failure
    node = await reader.GetNode(pb.GetNodeRequest(node_id="n1"))
    assert [one.key for one in node.allocations] == ["v0", "v2"]
    assert node.attributes["zone"] == "z"
    report = await reader.GetHealthReport(pb.GetHealthReportRequest())
    assert (report.healthy, len(report.checks)) == (True, 11)


@pytest.mark.parametrize(
    ("method", "request_", "code"),
    [
        ("ListQueues", pb.ListQueuesRequest(path="root.zz"), grpc.StatusCode.NOT_FOUND),
        ("ListQueues", pb.ListQueuesRequest(page_token="eA=="), grpc.StatusCode.INVALID_ARGUMENT),
        ("ListQueues", pb.ListQueuesRequest(page_size=-1), grpc.StatusCode.INVALID_ARGUMENT),
        ("GetQueue", pb.GetQueueRequest(path="root.zz"), grpc.StatusCode.NOT_FOUND),
        ("ListApplications", pb.ListApplicationsRequest(state="Odd"), grpc.StatusCode.INVALID_ARGUMENT),
        ("ListApplications", pb.ListApplicationsRequest(page_token="?"), grpc.StatusCode.INVALID_ARGUMENT),
        ("ListApplications", pb.ListApplicationsRequest(page_token="eA==", kind=1), grpc.StatusCode.INVALID_ARGUMENT),
        ("ListApplications", pb.ListApplicationsRequest(partition="p"), grpc.StatusCode.NOT_FOUND),
        ("GetApplication", pb.GetApplicationRequest(application_id="zz"), grpc.StatusCode.NOT_FOUND),
        ("ListNodes", pb.ListNodesRequest(partition="p"), grpc.StatusCode.NOT_FOUND),
        ("ListClaims", pb.ListClaimsRequest(partition="p"), grpc.StatusCode.NOT_FOUND),
        ("ListClaims", pb.ListClaimsRequest(kind="soft"), grpc.StatusCode.INVALID_ARGUMENT),
        ("ListDomains", pb.ListDomainsRequest(partition="p"), grpc.StatusCode.NOT_FOUND),
        ("ListDomains", pb.ListDomainsRequest(level="rack"), grpc.StatusCode.NOT_FOUND),
        ("ListDomains", pb.ListDomainsRequest(page_token="eA=="), grpc.StatusCode.INVALID_ARGUMENT),
        ("GetNode", pb.GetNodeRequest(node_id="zz"), grpc.StatusCode.NOT_FOUND),
    ],
)
async def test_what_is_not_there(
    reader: read_pb2_grpc.ReadServiceAsyncStub, method: str, request_: object, code: grpc.StatusCode
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await getattr(reader, method)(request_)
    assert caught.value.code() is code


@pytest.mark.parametrize(
    ("method", "request_", "said"),
    [
        ("ListNodes", pb.ListNodesRequest(page_size=-1), "page_size -1 is below 0"),
        ("ListWaits", pb.ListWaitsRequest(limit=-1), "limit -1 is below 0"),
        ("ListWaits", pb.ListWaitsRequest(by="rack"), "by is 'rack', not one of application, queue, user"),
        ("ListRefusals", pb.ListRefusalsRequest(limit=-1), "limit -1 is below 0"),
        ("FindNames", pb.FindNamesRequest(text="n", limit=-1), "limit -1 is below 0"),
    ],
)
async def test_a_number_that_makes_no_sense_is_named(
    reader: read_pb2_grpc.ReadServiceAsyncStub, method: str, request_: object, said: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await getattr(reader, method)(request_)
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, said)


async def test_a_drained_node_takes_nothing_new_until_it_is_back(
    shim: tuple[Core, ShimClient],
    reader: read_pb2_grpc.ReadServiceAsyncStub,
    admin: admin_pb2_grpc.AdminServiceAsyncStub,
) -> None:
    """What runs there goes on; a second time changes nothing."""
    served, client = shim
    drained = await admin.DrainNode(admin_pb2.DrainNodeRequest(node_id="n2"))
    assert (drained.changed, drained.allocation_count) == (True, 1)
    assert not (await admin.DrainNode(admin_pb2.DrainNodeRequest(node_id="n2"))).changed
    draining = await reader.ListNodes(pb.ListNodesRequest(only_draining=True))
    assert [node.node_id for node in draining.nodes] == ["n2"]
    await client.submit_asks([Ask("late", "app-v", {"vcore": 1000})])
    await client.flush()
    await served.settle()
    late = await reader.GetApplication(pb.GetApplicationRequest(application_id="app-v"))
    assert [ask.key for ask in late.asks] == ["late"]
    assert (await admin.UndrainNode(admin_pb2.UndrainNodeRequest(node_id="n2"))).changed
    await served.settle()
    late = await reader.GetApplication(pb.GetApplicationRequest(application_id="app-v"))
    assert {one.key: one.node_id for one in late.allocations}["late"] == "n2"


async def test_nobody_is_drained_who_is_not_there(admin: admin_pb2_grpc.AdminServiceAsyncStub) -> None:
    for request in (admin_pb2.DrainNodeRequest(node_id="zz"), admin_pb2.DrainNodeRequest(node_id="n1", partition="p")):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await admin.DrainNode(request)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_without_a_manager_there_are_no_nodes() -> None:
    async with running_core() as served:
        stub = admin_pb2_grpc.AdminServiceStub(served.channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.UndrainNode(admin_pb2.UndrainNodeRequest(node_id="n1"))
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["queues"], 0, ["root", "6/8", "g=4", "+4"]),
        (["queues", "root.a", "--type", "memory"], 0, ["memory", "0% 0/-"]),
        (["queues", "root.v"], 0, ["75% 6/-", "18% 3Gi/-"]),
        (["nodes", "--by", "zone"], 0, ["zone", "vcore free", "z  ", "2 of 8", "13Gi of 16Gi"]),
        (["claims", "--kind", "firm"], 0, ["no room is kept for waiting asks"]),
        (["claims", "--kind", "soft"], 2, ["'soft' is no kind of claim: they are firm and saved"]),
        (["nodes", "--by", "rack"], 1, ["no level 'rack': its levels are zone"]),
        (["nodes", "n1", "--by", "zone"], 2, ["--by shows whole domains"]),
        (["queues", "root.zz"], 1, ["no queue 'root.zz' in partition 'default'"]),
        (["apps"], 0, ["app-a", "Accepted", "app-v", "vcore=6 memory=3Gi"]),
        (["apps", "--user", "bob"], 0, ["no applications"]),
        (["apps", "--limit", "1"], 0, ["app-a", "and more"]),
        (["apps", "--rejected"], 0, ["app-no", "Rejected"]),
        (["apps", "--rejected", "--finished"], 2, ["one of them"]),
        (["apps", "--state", "Odd"], 2, ["no application has state 'Odd', the states are New"]),
        (["apps", "app-v"], 0, ["Running in root.v", "groups staff", "v2"]),
        (["apps", "app-a"], 0, ["not placed because", "k "]),
        (["apps", "app-no"], 0, ["rejected: no-queue"]),
        (["apps", "app-vv"], 1, ["no application 'app-vv'", "did you mean app-v"]),
        (["nodes"], 0, ["n1", "ready", "100% 4/4", "50% 2/4"]),
        (["nodes", "--draining"], 0, ["no nodes"]),
        (["nodes", "n1"], 0, ["zone=z", "available memory=6Gi", "v0"]),
        (["nodes", "nope"], 1, ["no node 'nope'"]),
        (["top", "--count", "1"], 0, ["2 nodes, 3 allocations, 1 ask pending", "root.v"]),
        (["top", "--count", "1", "--users"], 0, ["user", "ann", "6 (75%)"]),
        (["users"], 0, ["ann", "6 (75%)", "3Gi (18%)"]),
        (["users", "--sort", "memory", "--limit", "1"], 0, ["ann"]),
        (["users", "--sort", "size"], 2, ["cannot be sorted by 'size', only by name, apps, vcore, memory"]),
        (["explain", "k", "--node", "n1"], 0, ["k cannot go to n1: not enough room", "vcore: 4 asked, 4 of 4 used"]),
        (["explain", "v0", "--node", "n1"], 0, ["v0 runs on n1."]),
        (["explain", "k", "--node", "nope"], 1, ["no node 'nope'"]),
        (["explain", "n1"], 0, ["node n1: takes new work, but the ask that waits", "1 ask, such as k"]),
        (["explain", "--node", "n1"], 0, ["node n1: takes new work"]),
        (["explain"], 2, ["give the ask, allocation, application or node to explain"]),
        (["health"], 0, ["SERVING"]),
        (["health", "--checks"], 0, ["healthy", "Reservation check", "ok"]),
        (["drain", "node", "n1"], 0, ["n1: drained, 2 allocations", "holds until `kornel undrain node n1`"]),
        (["drain", "node", "nope", "n1"], 1, ["no node 'nope'", "n1: drained, 2 allocations still run there"]),
        (["drain", "node", "n1", "--wait", "--wait-timeout", "0.1"], 1, ["2 allocations still run there"]),
        (["drain", "list"], 0, ["no operator has drained a node"]),
        (["undrain", "node", "n1"], 0, ["n1: ready already"]),
    ],
)
async def test_commands_for_people(core: Core, arguments: list[str], code: int, said: list[str]) -> None:
    """The address comes from KORNEL_ADDRESS. Status 1: no answer or nothing of that name; 2: a bad option."""
    result = await kornel(core, *arguments)
    assert result.exit_code == code, result.output
    assert not [text for text in said if text not in result.output], result.output


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (["queues"], {"queues", "next_page_token"}),
        (["apps"], {"applications", "next_page_token"}),
        (["nodes"], {"nodes", "next_page_token", "attributes"}),
        (["claims"], {"claims", "next_page_token"}),
        (["nodes", "--by", "zone"], {"levels", "domains", "next_page_token"}),
        (
            ["nodes", "n1"],
            {
                *("summary", "attributes", "allocations", "reservations", "foreign_keys", "devices"),
                *("drained_by_manager", "drained_by", "drained_since_ns"),
            },
        ),
        (["health"], {"healthy", "at_ns", "checks"}),
        (["top", "--count", "1"], {"partition", "busiest"}),
        (["drain", "node", "n1"], {"changed", "allocation_count", "principal", "since_ns"}),
    ],
)
async def test_commands_for_scripts(core: Core, arguments: list[str], keys: set[str]) -> None:
    result = await kornel(core, *arguments, "--json")
    assert result.exit_code == 0
    assert json.loads(result.output).keys() == keys


async def test_scripts_may_say_json_everywhere(core: Core) -> None:
    """A dump has no other form, and takes the option all the same."""
    for command in ("status", "dump", "health"):
        result = await kornel(core, command, "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.output)


def test_nobody_answers() -> None:
    """Whatever is asked of no core ends with status 1 and says whom it asked."""
    for arguments in (["queues"], ["apps"], ["nodes"], ["top"], ["drain", "node", "n"], ["health", "--checks"]):
        result = CliRunner().invoke(app, [*arguments, "--core", "127.0.0.1:1", "--timeout", "1"])
        assert result.exit_code == 1
        assert "127.0.0.1:1" in result.output


def test_whoever_follows_no_core_is_told_why_at_once() -> None:
    """The stream does not wait for its whole timeout where nobody listens."""
    result = CliRunner().invoke(app, ["events", "--follow", "--core", "127.0.0.1:1", "--timeout", "3600"])
    assert result.exit_code == 1
    assert "no core answers at 127.0.0.1:1; start one with `kornel serve`, or set KORNEL_ADDRESS" in result.output


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["kornel", "dr"], ["drain"]),
        (["kornel", "drain", ""], ["node", "list"]),
        (["kornel", "apps", "--fin"], ["--finished"]),
        (["kornel", "serve", "--log-level", "w"], ["warning"]),
        (["kornel", "config", "ch"], ["check"]),
    ],
)
def test_bash_completes_commands_options_and_values(line: list[str], expected: list[str], tmp_path: Path) -> None:
    """The script asks the program that is completed, and offers each word that may follow."""
    script = CliRunner().invoke(app, ["completion", "bash"]).output
    program = tmp_path / "kornel"
    program.write_text(f'#!/bin/sh\nexec {python()} -m kornel "$@"\n', encoding="utf-8")
    program.chmod(0o700)
    words = " ".join(f"'{word}'" for word in line)
    asked = f"COMP_WORDS=({words}); COMP_CWORD={len(line) - 1}; _kornel_completion {program}"
    shown = subprocess.run(
        ["bash", "-c", f"{script}\n{asked}; printf '%s\\n' \"${{COMPREPLY[@]}}\""],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.split() == expected


@pytest.mark.parametrize(
    ("shell", "said"), [("zsh", "compdef _kornel_completion kornel"), ("fish", "complete --command kornel")]
)
def test_scripts_for_other_shells(shell: str, said: str) -> None:
    result = CliRunner().invoke(app, ["completion", shell])
    assert (result.exit_code, said in result.output) == (0, True)
    assert CliRunner().invoke(app, ["completion", "csh"]).exit_code == 2
