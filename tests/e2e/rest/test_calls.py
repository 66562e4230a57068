"""Calls of kornel.v1 in JSON: what they answer, whom they refuse, and what is recorded."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result
from typer.testing import CliRunner

from kornel.cli.app import app
from kornel.core.rest.documents.message_documents import message_document
from kornel.core.security.static_tokens import digest_of, new_token
from kornel.si.v1 import si_pb2, si_pb2_grpc
from kornel.v1 import read_pb2, read_pb2_grpc
from tests.e2e.harness import CONFIG, resource
from tests.e2e.rest.shim import PREFIX, Cluster, P, rest_cluster
from tests.e2e.security.site import Authority, bearer, secured
from tests.patience import PATIENCE_S
from tests.waiting import until

CALLS = f"{PREFIX}/calls"
OTHER = CONFIG + "          - name: b\n"
DRAIN = f"{CALLS}/AdminService/DrainNode"


async def call(cluster: Cluster, name: str, status: int = 200, **request: Any) -> Any:
    answer = await cluster.http.post(f"{CALLS}/{name}", json=request)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_a_configuration_is_checked_previewed_applied_and_rolled_back(fresh: Cluster) -> None:
    await fresh.register()
    judged = await call(fresh, "ConfigurationService/ValidateConfiguration", config="partitions: [{name: 7, wrong: 1}]")
    assert not judged["valid"]
    assert {problem["severity"] for problem in judged["problems"]} == {"error"}
    assert judged["problems"][0]["line"] == 1
    preview = await call(fresh, "ConfigurationService/PreviewConfiguration", config=OTHER)
    assert [(queue["path"], queue["kind"]) for queue in preview["queues"]] == [("root.b", "added")]
    applied = await fresh.http.post(
        f"{PREFIX}/configuration", content=OTHER, headers={"Content-Type": "application/x-yaml"}
    )
    assert applied.json()["changed"] is True
    assert applied.json()["version"] == 2
    versions = (await call(fresh, "ConfigurationService/GetConfigurationHistory"))["versions"]
    assert [(one["number"], one["origin"], one["inForce"]) for one in versions] == [
        (1, "registration", False),
        (2, "update", True),
    ]
    assert versions[1]["principal"] == "anonymous@127.0.0.1"
    assert (await call(fresh, "ConfigurationService/GetConfiguration", version=2))["config"] == OTHER
    back = await call(fresh, "ConfigurationService/RollbackConfiguration", version=1)
    assert back["holds"] is True
    holds = await fresh.get(f"{PREFIX}/scheduler/holds")
    assert holds["rollback"]["by"] == "anonymous@127.0.0.1"


async def test_a_text_keeps_the_other_settings_of_the_manager(fresh: Cluster) -> None:
    await fresh.register(log_level="WARN")
    await fresh.http.post(f"{PREFIX}/configuration", content=OTHER, headers={"Content-Type": "application/x-yaml"})
    shown = await fresh.get(f"{PREFIX}/config", Accept="application/json")
    assert shown["Extra"] == {"log.level": "WARN"}


async def test_a_text_with_a_hidden_secret_is_refused(fresh: Cluster) -> None:
    await fresh.register()
    text = OTHER + "            properties: {my.password: '[hidden]'}\n"
    answer = await fresh.http.post(
        f"{PREFIX}/configuration", content=text, headers={"Content-Type": "application/x-yaml"}
    )
    assert answer.status_code == 400
    assert "line 10, column 39" in answer.json()["message"]


@pytest.mark.parametrize("text", ["", " \n\t\n"])
async def test_a_lost_text_does_not_bring_the_default_into_force(fresh: Cluster, text: str) -> None:
    await fresh.register()
    answer = await fresh.http.post(
        f"{PREFIX}/configuration", content=text, headers={"Content-Type": "application/x-yaml"}
    )
    assert (answer.status_code, answer.json()["message"]) == (400, "the text is empty")
    assert (await fresh.get(f"{P}/queues"))["children"][0]["queuename"] == "root.a"


@pytest.mark.parametrize("body", ["[]", "null", '"nodeId"', "1", "[{}]", "\ufeff{}"])
async def test_a_request_is_an_object(fresh: Cluster, body: str) -> None:
    await fresh.register()
    answer = await fresh.http.post(DRAIN, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert "begins with no {" in answer.json()["message"]


async def test_a_long_text_may_hold_whatever_signs_it_likes(fresh: Cluster) -> None:
    """Only what stands around texts is counted."""
    text = '# \\" \\\\ [{,: \n' * 20_000
    judged = await call(fresh, "ConfigurationService/ValidateConfiguration", config=CONFIG + text)
    assert judged["valid"]


async def test_a_node_is_drained_in_the_name_of_who_asks(fresh: Cluster) -> None:
    await fresh.register()
    await fresh.node("n1", vcore=4)
    answer = await call(fresh, "AdminService/DrainNode", nodeId="n1")
    assert (answer["changed"], answer["principal"]) == (True, "anonymous@127.0.0.1")
    assert (await fresh.get(f"{P}/node/n1"))["drainedBy"] == "anonymous@127.0.0.1"
    assert (await call(fresh, "AdminService/UndrainNode", nodeId="n1"))["schedulable"] is True


async def test_who_preempts_by_hand_is_named(fresh: Cluster) -> None:
    """A dry run first, which changes nothing; then the same people go, and the decision says by whom and why."""
    await fresh.register()
    await fresh.node("n1", vcore=4)
    await fresh.submit("app-1", queue="root.a")
    await fresh.ask("k1", "app-1", vcore=2)
    for dry in (True, False):
        answer = await call(
            fresh, "AdminService/Preempt", applicationId="app-1", reason="it hangs", dryRun=dry, waived=["run-time"]
        )
        decision = answer["decision"]
        assert [victim["allocationKey"] for victim in decision["victims"]] == ["k1"]
        assert (decision["kind"], decision["outcome"]) == ("by-hand", "FULL")
        assert "by hand by anonymous@127.0.0.1, run-time waived: it hangs" in decision["detail"]
    again = await call(fresh, "AdminService/Preempt", allocation="k1")
    assert again["decision"]["outcome"] == "NOTHING_TO_DO"


async def test_what_if_answers_in_numbers(fresh: Cluster) -> None:
    await fresh.register()
    await fresh.node("n1", vcore=4)
    answer = await call(fresh, "ExplainService/WhatIf", ask={"queue": "root.a", "resources": {"vcore": 3}, "count": 2})
    assert [one["nodeId"] for one in answer["placed"]] == ["n1"]
    assert len(answer["waiting"]) == 1


async def test_previews_that_wait_keep_nobody_from_a_long_list(fresh: Cluster) -> None:
    """One is worked out and one waits, and a third one is refused: lists come meanwhile."""
    await fresh.register()
    path = f"{CALLS}/ConfigurationService/PreviewConfiguration"
    with fresh.core.server.managers.questions.hold_back():
        asked = [asyncio.create_task(fresh.http.post(path, json={"config": OTHER})) for _ in range(3)]
        refused, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE_S)
        assert [(await each).status_code for each in refused] == [503]
        assert (await fresh.get(f"{P}/stranded")) is not None
    for each in waiting:
        assert [queue["path"] for queue in (await each).json()["queues"]] == ["root.b"]


async def test_who_waits_for_an_answer_to_a_question_keeps_nobody_from_a_long_list(fresh: Cluster) -> None:
    """Twenty pages ask at once: each has its turn, and the lists of other pages come meanwhile."""
    await fresh.register()
    await fresh.node("n1", vcore=4)
    supposed = {"queue": "root.a", "resources": {"vcore": 3}}
    questions = fresh.core.server.managers.questions
    with questions.hold_back():
        asked = [asyncio.create_task(call(fresh, "ExplainService/WhatIf", ask=supposed)) for _ in range(20)]
        await until(lambda: questions.waiting == 20, lambda: f"{questions.waiting} wait")
        assert (await fresh.get(f"{P}/stranded")) is not None
    assert [[one["nodeId"] for one in (await each)["placed"]] for each in asked] == [["n1"]] * 20


@pytest.mark.parametrize(
    ("name", "request_", "status", "message"),
    [
        ("AdminService/DrainNode", {"nodeId": "nope"}, 404, "no node 'nope'"),
        ("AdminService/DrainNode", {"node": 1}, 400, "not the JSON of this request"),
        ("ConfigurationService/RollbackConfiguration", {"undo": True}, 409, "no rollback is in force"),
        ("HistoryService/ListPreemptions", {}, 409, "keeps no history"),
        ("ExplainService/WhatIf", {}, 400, "nothing is supposed"),
        ("AdminService/DrainNode", {"nodeId": "x" * 70_000}, 413, "longer than 65536 bytes"),
        ("ConfigurationService/ValidateConfiguration", {"config": "", "x": [0] * 9_000}, 400, "too many values"),
    ],
)
async def test_errors_are_those_of_the_calls(
    fresh: Cluster, name: str, request_: dict[str, Any], status: int, message: str
) -> None:
    await fresh.register()
    assert message in (await call(fresh, name, status, **request_))["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "application/json", "Origin": "http://evil.example"}, 403),
        ({"Content-Type": "application/json", "Origin": "null"}, 403),
        ({"Content-Type": "application/json", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "application/json", "Sec-Fetch-Site": "same-site"}, 403),
        ({"Content-Type": "application/json", "X-Forwarded-For": "10.0.0.1"}, 403),
        ({"Content-Type": "application/json", "X-Real-IP": "10.0.0.1"}, 403),
        ({"Content-Type": "multipart/form-data; boundary=application/json"}, 415),
        ({"Content-Type": "text/plain;application/json"}, 415),
        ({"Content-Type": "application/json, text/plain"}, 415),
        ({"Content-Type": "application/jsonish"}, 415),
        ([("Content-Type", "application/json"), ("Content-Type", "text/plain")], 415),
        ({"Content-Type": "application/json", "Origin": "http://["}, 403),
        ({"Content-Type": "application/json", "Origin": "ftp://OWN"}, 403),
        ({"Content-Type": "application/json", "Origin": "http://evil@OWN"}, 403),
        ([("Content-Type", "application/json"), ("Origin", "http://OWN"), ("Origin", "http://evil.example")], 403),
        (
            [
                ("Content-Type", "application/json"),
                ("Sec-Fetch-Site", "same-origin"),
                ("Sec-Fetch-Site", "cross-site"),
            ],
            403,
        ),
    ],
)
async def test_no_page_of_another_origin_changes_anything(
    headers: dict[str, str] | list[tuple[str, str]], status: int
) -> None:
    """Neither a form that a browser sends without asking, nor a page that may read all answers."""
    async with rest_cluster(rest_origins=("*",)) as cluster:
        own = cluster.core.server.rest_address
        pairs = headers.items() if isinstance(headers, dict) else headers
        headers = [(name, value.replace("OWN", own)) for name, value in pairs]
        await cluster.register()
        await cluster.node("n1", vcore=4)
        answer = await cluster.http.post(DRAIN, content=b'{"nodeId": "n1"}', headers=headers)
        assert answer.status_code == status
        assert (await cluster.http.get(f"{PREFIX}/scheduler/holds")).json()["drainedNodes"] == []


async def test_from_afar_nothing_is_changed_where_nobody_is_asked_who_they_are() -> None:
    async with rest_cluster() as cluster:
        assert await cluster.get(f"{PREFIX}/caller") == {
            "name": "anonymous@127.0.0.1",
            "permissions": ["administer", "configure", "preempt", "read", "test-clock"],
            "guarded": False,
            "refusal": "",
        }
    async with rest_cluster(rest_address="0.0.0.0:0") as cluster:
        port = cluster.core.server.rest_address.rpartition(":")[2]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as http:
            assert (await http.get(f"{PREFIX}/clusters")).status_code == 200
            assert "only this machine" in (await http.get(f"{PREFIX}/caller")).json()["refusal"]
            assert (await http.post(DRAIN, json={"nodeId": "n1"})).status_code == 403


async def test_permissions_are_those_of_the_calls(tmp_path: Path) -> None:
    """Who may read may not drain; who administers is recorded by name."""
    tokens = {"reader": new_token(), "admin": new_token()}
    stored = [{"name": name, "sha256": digest_of(known)} for name, known in tokens.items()]
    (tmp_path / "tokens.yaml").write_text(json.dumps({"tokens": stored}))
    rules = '[{who: ["token:reader"], permissions: [read]}, {who: ["token:admin"], permissions: [read, administer]}]'
    authority = Authority(tmp_path)
    policy = f"tokens: tokens.yaml\nrules: {rules}\n"
    server = authority.issue("core", file="server")
    async with (
        secured(tmp_path, ca=authority.file, server=server, policy=policy, rest_address="127.0.0.1:0") as site,
        httpx.AsyncClient(base_url=f"https://{site.server.rest_address}", timeout=PATIENCE_S, verify=False) as http,  # noqa: S501
    ):
        reader, admin = ({"Authorization": f"Bearer {tokens[name]}"} for name in ("reader", "admin"))
        assert (await http.post(DRAIN, json={"nodeId": "n1"})).status_code == 401
        assert (await http.post(DRAIN, json={"nodeId": "n1"}, headers=reader)).status_code == 403
        found = await http.post(DRAIN, json={"nodeId": "n1"}, headers=admin)
        assert (found.status_code, found.json()["message"]) == (
            409,
            "no resource manager is registered, so there are no nodes",
        )
        caller = (await http.get(f"{PREFIX}/caller", headers=admin)).json()
        assert caller == {
            "name": "token:admin",
            "permissions": ["administer", "read"],
            "guarded": True,
            "refusal": "",
        }


async def test_who_may_change_the_configuration_of_a_manager(tmp_path: Path) -> None:
    """Its own, and operators; not another manager, and nobody without the right to configure. Each is recorded."""
    who = {
        "reader": "permissions: [read]",
        "admin": "permissions: [administer]",
        "other": "managers: [rm-2], permissions: [configure]",
        "shim": "managers: [rm-1]",
        "own": "managers: [rm-1], permissions: [configure]",
        "operator": "permissions: [configure, read]",
    }
    tokens = {name: new_token() for name in who}
    stored = [{"name": name, "sha256": digest_of(known)} for name, known in tokens.items()]
    (tmp_path / "tokens.yaml").write_text(json.dumps({"tokens": stored}))
    rules = ", ".join(f'{{who: ["token:{name}"], {grant}}}' for name, grant in who.items())
    authority = Authority(tmp_path)
    server = authority.issue("core", file="server")
    async with (
        secured(
            tmp_path,
            ca=authority.file,
            server=server,
            policy=f"tokens: tokens.yaml\nrules: [{rules}]\n",
            rest_address="127.0.0.1:0",
        ) as site,
        httpx.AsyncClient(base_url=f"https://{site.server.rest_address}", timeout=PATIENCE_S, verify=False) as http,  # noqa: S501
        site.channel() as channel,
    ):
        await si_pb2_grpc.SchedulerStub(channel).RegisterResourceManager(
            si_pb2.RegisterResourceManagerRequest(rmID="rm-1", config=CONFIG),
            metadata=bearer(tokens["own"]),
        )
        statuses = {}
        for name in who:
            headers = {"Authorization": f"Bearer {tokens[name]}", "Content-Type": "application/x-yaml"}
            applied = await http.post(f"{PREFIX}/configuration", content=f"{OTHER}# {name}\n", headers=headers)
            headers["Content-Type"] = "application/json"
            path = f"{CALLS}/ConfigurationService/RollbackConfiguration"
            rolled_back = await http.post(path, json={"version": 1}, headers=headers)
            statuses[name] = applied.status_code, rolled_back.status_code
        assert statuses == {
            "reader": (403, 403),
            "admin": (403, 403),
            "other": (403, 403),
            "shim": (403, 403),
            "own": (200, 200),
            "operator": (200, 200),
        }
        headers = {"Authorization": f"Bearer {tokens['operator']}"}
        found = await http.post(f"{CALLS}/ConfigurationService/GetConfigurationHistory", json={}, headers=headers)
        assert [one["principal"] for one in found.json()["versions"]] == [
            *("token:own", "token:own", "token:own"),
            *("token:operator", "token:operator"),
        ]


async def test_names_are_found_by_any_part_in_any_case(fresh: Cluster) -> None:
    await fresh.register()
    await fresh.node("Worker-7", vcore=4)
    await fresh.run_and_finish("Nightly-Work", "k-done")
    await fresh.submit("app-work", queue="root.a", user="worker")
    await fresh.ask("work-1", "app-work", vcore=1)
    await fresh.ask("work-2", "app-work", vcore=9)
    found = (await fresh.get(f"{P}/search?text=WORK"))["found"]
    assert {(one["kind"], one["name"]) for one in found} == {
        ("application", "app-work"),
        ("ended", "Nightly-Work"),
        ("node", "Worker-7"),
        ("user", "worker"),
        ("allocation", "work-1"),
        ("ask", "work-2"),
    }
    assert {one["name"]: one.get("place") for one in found}["app-work"] == "root.a"
    few = await fresh.get(f"{P}/search?text=ro&limit=1")
    assert few["more"] == ["queue"]
    await fresh.refused(f"{P}/search?text=", 400)


async def test_long_names_that_are_found_fit_into_an_answer(fresh: Cluster) -> None:
    """The answer says of which kind there are more."""
    await fresh.register()
    app = "a" * 200
    await fresh.submit(app, queue="root.a")
    for start in (0, 500):
        keys = [f"{at:04}" + "\N{BUG}" * 1_020 for at in range(start, start + 500)]
        asks = [
            si_pb2.Allocation(allocationKey=key, applicationID=app, resourcePerAlloc=resource(vcore=1)) for key in keys
        ]
        await fresh.allocations.send(si_pb2.AllocationRequest(rmID="rm-1", allocations=asks))
    stub = read_pb2_grpc.ReadServiceStub(fresh.core.channel)
    wanted = read_pb2.FindNamesRequest(text="\N{BUG}", limit=1_000)

    async def has_many() -> read_pb2.FindNamesResponse | None:
        answer = await stub.FindNames(wanted)
        return answer if list(answer.more) == ["ask"] else None

    answer = await until(has_many, "more asks than fit")
    assert 2 * 2**20 < answer.ByteSize() < 4 * 2**20
    assert [each.name[:4] for each in answer.found] == [f"{at:04}" for at in range(len(answer.found))]


async def test_documents_of_ours_are_the_same_over_grpc(fresh: Cluster) -> None:
    await fresh.register()
    stub = read_pb2_grpc.ReadServiceStub(fresh.core.channel)
    tags = {"namespace": "x"}
    for path, answer in {
        f"{P}/search?text=a&limit=1": await stub.FindNames(read_pb2.FindNamesRequest(text="a", limit=1)),
        f"{P}/placement?user=bob&groups=x,y&queue=root.a&tag.namespace=x": await stub.FindQueue(
            read_pb2.FindQueueRequest(user="bob", groups=["x", "y"], queue="root.a", tags=tags)
        ),
        f"{PREFIX}/scheduler/holds": await stub.GetHolds(read_pb2.GetHoldsRequest()),
        f"{PREFIX}/preemption-kinds": await stub.ListPreemptionKinds(read_pb2.ListPreemptionKindsRequest()),
    }.items():
        assert await fresh.get(path) == message_document(answer), path


async def test_applications_are_found_by_part_of_id_queue_or_user(fresh: Cluster) -> None:
    await fresh.register()
    await fresh.submit("one", queue="root.a", user="ann")
    await fresh.submit("two", queue="root.a", user="Bob")
    await fresh.submit("stray", queue="root.nowhere", user="Bob")
    for text, ids in {"ON": ["one"], "bo": ["two"], "OT.A": ["one", "two"], "zz": []}.items():
        found = await fresh.get(f"{P}/applications/active?contains={text}")
        assert [one["applicationID"] for one in found] == ids
    for text, ids in {"TRA": ["stray"], "bo": ["stray"], "nowhere": ["stray"], "default": []}.items():
        found = await fresh.get(f"{P}/applications/rejected?contains={text}")
        assert [one["applicationID"] for one in found] == ids


async def test_the_queue_of_an_application_is_known_before_it_comes(fresh: Cluster) -> None:
    await fresh.register()
    assert await fresh.get(f"{P}/placement?user=ann&queue=root.a") == {
        "queue": "root.a",
        "exists": True,
        "above": "root.a",
        "outcomes": [],
    }
    nowhere = await fresh.get(f"{P}/placement?user=ann&queue=root.nope")
    await fresh.submit("app", queue="root.nope")
    ends = await fresh.get(f"{P}/applications/rejected")
    landed = await fresh.get(f"{P}/applications/active")
    assert nowhere.get("queue", "") == (landed[0]["queueName"] if landed else "")
    if ends:
        assert nowhere["outcomes"][0] in ends[0]["rejectedMessage"]
    await fresh.refused(f"{P}/placement?user=no%20user!", 400)


async def test_the_command_shows_who_would_go_and_who_goes(fresh: Cluster) -> None:
    """And exits 1 where nobody of that name runs, or a law is waived without a reason."""
    await fresh.register()
    await fresh.node("n1", vcore=4)
    await fresh.submit("app-1", queue="root.a")
    await fresh.ask("k1", "app-1", vcore=2)

    async def preempt(*words: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, app, ["preempt", *words, "--core", fresh.core.address])

    would = await preempt("--queue", "root.a", "--amount", "vcore=1m", "--dry-run")
    assert (would.exit_code, would.output.splitlines()[0]) == (0, "FULL: 1 allocation would be asked to leave")
    assert (await preempt("k1", "--waive", "gang")).exit_code == 1
    done = await preempt("k1", "--waive", "gang", "--reason", "it hangs")
    assert (done.exit_code, done.output.splitlines()[0]) == (0, "FULL: 1 allocation asked to leave")
    assert "it hangs" in done.output
    assert (await preempt("k2")).exit_code == 1
