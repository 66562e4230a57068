"""Explanations and decisions to preempt: ours beside the routes of YuniKorn."""

from __future__ import annotations

from typing import Any

import pytest

from kornel.core.domain.effects import PreemptionDecided, VictimRecord
from kornel.core.domain.reasons import Outcome
from kornel.core.service.events.event_journal import Decision
from kornel.core.telling.encoding.documents import DOCUMENTS
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import events_pb2, events_pb2_grpc
from tests.e2e.rest.shim import Cluster, P
from tests.e2e.rest.test_openapi import closed

CONFIG = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: prod, resources: {guaranteed: {vcore: 4}}, properties: {preemption.delay: 1s}}
          - {name: batch}
"""
MAY = si.PreemptionPolicy(allowPreemptSelf=True, allowPreemptOther=True)
EXPLAIN = f"{P}/explain?key="
PREEMPTIONS = f"{P}/preemptions"


def check(name: str, document: Any) -> None:
    """*document* is as the OpenAPI document says, and says nothing that is not described."""
    import jsonschema_rs  # noqa: PLC0415

    schemas = {known: closed(document.schema) for known, document in DOCUMENTS.items()}
    schema = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}
    jsonschema_rs.Draft202012Validator(schema).validate(document)


async def crowded(cluster: Cluster) -> None:
    """One node, full of batch work beyond any guarantee, and an ask of prod that wants half of it."""
    await cluster.register(CONFIG)
    await cluster.node("n1", vcore=8)
    await cluster.submit("etl", queue="root.batch")
    for number in range(4):
        await cluster.ask(f"etl-{number}", "etl", {"preemptionPolicy": MAY}, vcore=2)
    await cluster.submit("shop", queue="root.prod")
    await cluster.ask("web", "shop", {"preemptionPolicy": MAY}, vcore=4)


async def test_a_pending_ask_is_explained(fresh: Cluster) -> None:
    await crowded(fresh)
    found = await fresh.get(f"{EXPLAIN}web")
    check("ExplainResponse", found)
    ask = found["ask"]
    assert (ask["state"], ask["queueName"], ask["resource"]) == ("Pending", "root.prod", {"vcore": 4})
    full = next(blocker for blocker in ask["blockers"] if blocker["kind"] == "node-full")
    assert full["shortages"] == [{"type": "vcore", "limit": 8, "used": 8, "asked": 4, "short": 4}]
    assert ask["preemption"]["verdict"] == "would-help"
    assert len(ask["preemption"]["victims"]) == 2
    assert ask["position"]["partition"] == 1


async def test_an_application_is_explained_by_its_kinds_of_asks(fresh: Cluster) -> None:
    await crowded(fresh)
    found = await fresh.get(f"{EXPLAIN}shop")
    check("ExplainResponse", found)
    assert found["application"]["pendingAsks"] == 1
    assert [(group["size"], group["first"]["allocationKey"]) for group in found["application"]["groups"]] == [
        (1, "web")
    ]


async def test_a_preemption_is_told_with_its_law_and_to_its_victims(fresh: Cluster) -> None:
    await crowded(fresh)
    assert (await fresh.get(PREEMPTIONS))["preemptions"] == []
    await fresh.wait(10)
    batch = await fresh.get(PREEMPTIONS)
    check("ListDecisionsResponse", batch)
    (decided,) = [one for one in batch["preemptions"] if one["outcome"] == "TRIGGERED"]
    assert (decided["kind"], decided["allocationKey"], decided["applicationID"]) == ("guarantee", "web", "shop")
    assert decided["law"].startswith("law 4")
    assert len(decided["victims"]) == 2
    victim = decided["victims"][0]["allocationKey"]
    found = await fresh.get(EXPLAIN + victim)
    check("ExplainResponse", found)
    assert found["ask"]["preempted"]["takenBy"] == "web"
    await fresh.release(victim, "etl")
    found = await fresh.get(EXPLAIN + victim)
    check("ExplainResponse", found)
    assert found["lost"]["takenByQueue"] == "root.prod"


async def test_decisions_are_read_on_by_their_numbers(fresh: Cluster) -> None:
    await crowded(fresh)
    await fresh.wait(10)
    batch = await fresh.get(PREEMPTIONS)
    first, after = batch["preemptions"][0]["id"], batch["nextID"]
    assert (await fresh.get(f"{PREEMPTIONS}?start={first}"))["preemptions"] == batch["preemptions"]
    assert (await fresh.get(f"{PREEMPTIONS}?start={after}"))["preemptions"] == []
    assert (await fresh.get(f"{PREEMPTIONS}?start=0&limit=1"))["nextID"] == batch["lowestID"] + 1


async def test_decisions_with_many_victims_come_in_several_answers(fresh: Cluster) -> None:
    """Each fits into a message of gRPC. The newest come without a number, and nobody who reads on misses any."""
    await fresh.register(CONFIG)
    (views,) = fresh.core.server.managers.reader.partitions()
    victims = tuple(VictimRecord(f"task-{n:030}", "etl", "root.batch", "n1", {"vcore": 2}, 0) for n in range(100))
    ring = fresh.core.server.events.decisions
    first = ring.next_id
    for number in range(600):
        decided = PreemptionDecided(
            number, views.name, "guarantee", "web", "shop", "root.prod", Outcome.TRIGGERED, "", "n1", victims
        )
        ring.append_entries([Decision(0, decided)])
    call = events_pb2_grpc.EventServiceStub(fresh.core.channel).ListDecisions
    newest = await call(events_pb2.ListDecisionsRequest())
    assert newest.next_id == first + 600
    assert [one.id for one in newest.preemptions] == list(range(newest.preemptions[0].id, first + 600))
    read: list[int] = []
    at, answers = first, 0
    while at < ring.next_id:
        page = await call(events_pb2.ListDecisionsRequest(start=at))
        read += [one.id for one in page.preemptions]
        at, answers = page.next_id, answers + 1
    assert read == list(range(first, first + 600))
    assert 1 < answers < 5
    assert (await fresh.get(f"{PREEMPTIONS}?start={first}"))["nextID"] < first + 600


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{P}/explain", 400),
        (f"{EXPLAIN}nobody", 404),
        (f"{P.replace('default', 'other')}/explain?key=web", 404),
        (f"{P.replace('default', 'other')}/preemptions", 404),
        (f"{PREEMPTIONS}?start=x", 400),
        (f"{PREEMPTIONS}?limit=0", 400),
    ],
)
async def test_refusals(cluster: Cluster, path: str, status: int) -> None:
    await cluster.refused(path, status)
