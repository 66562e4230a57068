"""The OpenAPI document: well-formed, complete, and kept by every answer (rest.md 12.1)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from http import HTTPStatus
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    positive_data_acceptance,
    response_schema_conformance,
    status_code_conformance,
)

from kornel.core.telling.encoding.documents import DOCUMENTS
from tests.e2e.rest.shim import PREFIX, Cluster, P, rest_cluster
from tests.e2e.rest.test_pages import pages

CONFIG = """
partitions:
  - name: default
    topology: [zone]
    nodesortpolicy: {type: binpacking, resourceweights: {vcore: 2}}
    preemption: {quotapreemptionenabled: true}
    placementrules:
      - name: provided
        create: true
        filter: {type: allow, users: [ann], groups: [".*"]}
      - {name: tag, value: namespace, create: true, parent: {name: fixed, value: spaces}}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: default
            maxapplications: 7
            properties: {application.sort.policy: fair, priority.offset: "3", preemption.delay: 7200s}
            resources: {guaranteed: {vcore: 1m}, max: {vcore: 4m, memory: 100}}
            limits:
              - {limit: all, users: ["*"], groups: [dev], maxapplications: 3, maxresources: {vcore: 3m}}
          - name: spaces
            parent: true
            childtemplate: {maxapplications: 2, properties: {a: b}, resources: {max: {vcore: 1}}}
"""
ALWAYS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
CHECKS: dict[GenerationMode, list[Any]] = {
    GenerationMode.POSITIVE: [*ALWAYS, positive_data_acceptance],
    GenerationMode.NEGATIVE: ALWAYS,
}
JSON_ROUTES = {
    f"{PREFIX}/clusters": ("list", "Cluster"),
    f"{PREFIX}/partitions": ("list", "Partition"),
    f"{P}/placementrules": ("list", "Rule"),
    f"{P}/queues": ("", "Queue"),
    f"{P}/queues/flat": ("list", "Queue"),
    f"{P}/claims": ("list", "Claim"),
    f"{P}/queue/root.default": ("", "Queue"),
    f"{P}/nodes": ("list", "Node"),
    f"{P}/node/n1": ("", "Node"),
    f"{P}/domains": ("list", "Domain"),
    f"{P}/explain?key=waits": ("", "ExplainResponse"),
    f"{P}/explain?node=n1": ("", "ExplainResponse"),
    f"{P}/search?text=a": ("", "FindNamesResponse"),
    f"{P}/waits?by=user": ("", "ListWaitsResponse"),
    f"{P}/stranded": ("", "ListNodesResponse"),
    f"{P}/placement?user=ann": ("", "FindQueueResponse"),
    f"{P}/preemptions": ("", "ListDecisionsResponse"),
    f"{PREFIX}/preemption-kinds": ("", "ListPreemptionKindsResponse"),
    f"{PREFIX}/scheduler/holds": ("", "GetHoldsResponse"),
    f"{PREFIX}/scheduler/refusals": ("", "ListRefusalsResponse"),
    f"{P}/applications/active": ("list", "Application"),
    f"{P}/applications/completed": ("list", "Application"),
    f"{P}/applications/rejected": ("list", "Application"),
    f"{P}/usage/users": ("list", "UserUsage"),
    f"{P}/usage/groups": ("list", "GroupUsage"),
    f"{PREFIX}/events/batch": ("", "EventBatch"),
    f"{PREFIX}/events/batch?start=999999": ("", "EventBatch"),
    f"{PREFIX}/scheduler/healthcheck": ("", "Health"),
    f"{PREFIX}/scheduler/node-utilizations": ("list", "PartitionNodeUtilization"),
    f"{PREFIX}/history/apps": ("list", "ApplicationSample"),
    f"{PREFIX}/history/containers": ("list", "ContainerSample"),
    "/debug/fullstatedump": ("", "StateDump"),
}


@pytest.fixture
async def busy() -> AsyncIterator[Cluster]:
    """A core with something of everything."""
    async with rest_cluster() as cluster:
        await cluster.register(CONFIG, build_info={"buildVersion": "1"}, log_level="info")
        await cluster.node("n1", attributes={"si/hostname": "h", "zone": "z"}, vcore=10, memory=1000)
        await cluster.run_and_finish("done")
        await cluster.submit("app", "idle", tags={"namespace": "x"})
        await cluster.ask("k", vcore=1, memory=10)
        await cluster.ask("waits", fields={"allocationTags": {"a": "b"}, "priority": 5}, vcore=9)
        await cluster.ask("f", "", fields={"nodeID": "n1", "allocationTags": {"foreign": "static"}}, vcore=2)
        await cluster.node("n2", memory=50)
        required = {"allocationTags": {"yunikorn.apache.org/requiredNode": "n2"}}
        for key in ("there", "holds"):
            await cluster.ask(key, fields=required, memory=30)
        await cluster.submit("gang", user="bob", executionTimeoutMilliSeconds=1000)
        await cluster.ask("p", "gang", fields={"placeholder": True, "taskGroupName": "tg"}, vcore=1)
        await cluster.submit("bad", user="no user!")
        await cluster.wait(61)
        yield cluster


def closed(schema: Any) -> Any:
    """*schema*, under which fields that it does not name are errors: nothing is answered that is not described."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    shown = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema["properties"] and "type" in schema:
        shown.setdefault("additionalProperties", False)
    return shown


async def test_answers_have_the_shapes_that_are_documented(busy: Cluster) -> None:
    schemas = {known: closed(document.schema) for known, document in DOCUMENTS.items()}
    schemas["Configuration"] = DOCUMENTS["Configuration"].schema
    for path, (kind, name) in JSON_ROUTES.items():
        item = {"$ref": f"#/components/schemas/{name}"}
        schema = {**({"type": "array", "items": item} if kind else item), "components": {"schemas": schemas}}
        answer = (await busy.http.get(path)).json()
        assert answer, path
        found = [error.message for error in jsonschema_rs.Draft202012Validator(schema).iter_errors(answer)]
        assert not found, f"{path}: {found}"


async def test_every_list_has_pages(busy: Cluster) -> None:
    """Page by page there is the same as at once, in the same order."""
    document = await busy.get("/openapi.json")
    tried = 0
    for template, methods in document["paths"].items():
        parameters = {parameter["name"] for parameter in methods.get("get", {}).get("parameters", ())}
        if not {"limit", "cursor", "fields"} <= parameters:
            continue
        path = template.format(partition="default", queue="root.default", state="active")
        everything = await busy.get(path)
        assert everything, path
        found = await pages(busy, f"{path}?limit=1")
        assert [len(page) for page in found] == [1] * len(everything), path
        assert [item for page in found for item in page] == everything, path
        answer = await busy.http.get(f"{path}?limit=1")
        assert answer.headers["x-total-count"] == str(len(everything))
        name = next(iter(everything[0]))
        assert await busy.get(f"{path}?fields={name},nope") == [{name: item[name]} for item in everything]
        await busy.refused(f"{path}?limit=0", 400)
        assert await busy.get(f"{path}?cursor=~") == [], "nothing comes after a name as late as that"
        tried += 1
    assert tried == 15


async def test_document_is_served_and_sound(fresh: Cluster) -> None:
    document = await fresh.get("/openapi.json")
    assert document == await fresh.get(f"{PREFIX}/openapi.json")
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    named = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(named) == len(set(named)) >= 30
    assert len([path for path in document["paths"] if path.startswith(PREFIX)]) == 59
    references = set(re.findall(r"#/components/schemas/(\w+)", str(document)))
    assert references <= set(DOCUMENTS)


async def test_page_needs_nobody_else(fresh: Cluster) -> None:
    answer = await fresh.http.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "http://" not in answer.text
    assert "https://" not in answer.text
    for name in ("/ws/v1/partition/{partition}/queues", "Allocation", "lastOccurrence", "validate-conf"):
        assert name in answer.text


@pytest.mark.long
async def test_schemathesis_finds_nothing(busy: Cluster) -> None:
    """Generated requests, good and bad ones: no server errors, no undocumented answers."""
    document = await busy.get("/openapi.json")
    base_url = str(busy.http.base_url)
    schema = schemathesis.openapi.from_dict(document)
    found = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    tried = [operation for operation in found if not operation.path.endswith("/events/stream")]
    assert len(tried) >= 30
    for operation in tried:
        for mode, usual in CHECKS.items():
            # A call of kornel.v1 refuses more than a schema can say.
            checks = ALWAYS if "Calls" in operation.tags else usual
            await asyncio.to_thread(_try, operation, base_url, mode, checks)
    assert (await busy.http.get("/healthz/ready")).status_code == HTTPStatus.OK


def _try(operation: Any, base_url: str, mode: GenerationMode, checks: list[Any]) -> None:
    """The cursor of a sorted list is one that the core has given, and nothing to be made up."""
    cases = operation.as_strategy(generation_mode=mode)

    @given(case=cases.filter(lambda case: not {"sort", "cursor"} <= set(case.query or ())))
    @settings(
        max_examples=5,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def attempt(case: Any) -> None:
        case.call_and_validate(base_url=base_url, allow_redirects=False, checks=checks)

    # What takes no parameters can be asked nothing wrong.
    with suppress(Unsatisfiable) if mode is GenerationMode.NEGATIVE else nullcontext():
        attempt()
