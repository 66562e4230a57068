"""Spans from call to decision, in memory and over OTLP to a small receiver."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.tracing import export
from kornel.core.tracing import tracing as tracing_module
from kornel.core.tracing.export import tracing_to
from kornel.core.tracing.tracing import Tracing
from kornel.v1 import status_pb2
from kornel.v1.status_pb2_grpc import StatusServiceStub
from tests.e2e.harness import (
    Conversation,
    Core,
    allocation_request,
    application_request,
    ask,
    create,
    node_request,
    running_core,
)
from tests.e2e.test_command import environment, kornel
from tests.patience import PATIENCE_S
from tests.waiting import until

TRACE_ID, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = ("traceparent", f"00-{TRACE_ID}-{CALLER}-01")


@asynccontextmanager
async def traced() -> AsyncIterator[tuple[Core, InMemorySpanExporter]]:
    spans = InMemorySpanExporter()
    async with running_core(tracing=Tracing(SimpleSpanProcessor(spans), "test")) as core:
        await core.register()
        yield core, spans


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


async def test_an_ask_is_followed_from_its_request_to_its_decision() -> None:
    """Its span is a child of the request's, which is a child of the caller's."""
    async with traced() as (core, spans):
        scheduler = core.scheduler
        async with (
            Conversation.open(scheduler.UpdateNode()) as nodes,
            Conversation.open(scheduler.UpdateApplication()) as applications,
            Conversation.open(scheduler.UpdateAllocation(metadata=[TRACEPARENT])) as allocations,
        ):
            await nodes.send(node_request(create("n-1")))
            await nodes.receive()
            await applications.send(application_request("app"))
            await applications.receive()
            await allocations.send(allocation_request(ask("a-1")), allocation_request(ask("a-2", "nobody")))
            await allocations.entries(2)
            await until(lambda: len(named(spans, "ask")) == 2, "both decisions")
            await until(
                lambda: len(named(spans, "si.v1.Scheduler/UpdateAllocation request")) >= 1, "the request to be over"
            )
        request = named(spans, "si.v1.Scheduler/UpdateAllocation request")[0]
        good, bad = sorted(named(spans, "ask"), key=lambda span: span.attributes["kornel.ask"])
        assert f"{request.context.trace_id:032x}" == TRACE_ID
        assert f"{request.parent.span_id:016x}" == CALLER
        assert good.context.trace_id == request.context.trace_id
        assert good.parent.span_id == request.context.span_id
        assert good.attributes["kornel.decision"] == "allocated"
        assert good.attributes["kornel.node"] == "n-1"
        assert bad.attributes["kornel.decision"] == "rejected"
        assert not bad.status.is_ok


async def test_unary_calls_have_a_span_with_their_status() -> None:
    async with traced() as (core, spans):
        stub = StatusServiceStub(core.channel)
        await stub.GetStatus(status_pb2.GetStatusRequest())
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.ExplainQueue(status_pb2.ExplainQueueRequest(path="nowhere"))
        names = [f"kornel.v1.StatusService/{name}" for name in ("GetStatus", "ExplainQueue")]
        await until(lambda: all(named(spans, name) for name in names), "the spans to end")
        (good,), (bad,) = (named(spans, name) for name in names)
        assert good.attributes["rpc.grpc.status_code"] == 0
        assert good.attributes["rpc.method"] == "GetStatus"
        assert bad.attributes["rpc.grpc.status_code"] == grpc.StatusCode.NOT_FOUND.value[0]


async def test_asks_that_are_followed_are_bounded_and_end_with_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing_module, "MOST_ASKS", 3)
    async with traced() as (core, spans):
        scheduler = core.scheduler
        async with (
            Conversation.open(scheduler.UpdateApplication()) as applications,
            Conversation.open(scheduler.UpdateAllocation()) as allocations,
        ):
            await applications.send(application_request("app"))
            await applications.receive()
            await allocations.send(allocation_request(*(ask(f"a-{number}") for number in range(5))))
            await until(lambda: len(named(spans, "ask")) == 2, "the oldest ones to be given up")
    ends = [span.attributes["kornel.decision"] for span in named(spans, "ask")]
    assert ends == ["not followed any more"] * 2 + ["undecided when the core stopped"] * 3


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """An OTLP receiver: its address, and what it was sent."""
    got: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            got.append(ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_spans_reach_an_otlp_receiver(
    receiver: tuple[str, list[ExportTraceServiceRequest]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "TIMEOUT_S", PATIENCE_S)
    address, got = receiver
    async with running_core(
        tracing=tracing_to(address, "test", build_logger(LogFormat.JSON, LogLevel.INFO, io.StringIO()))
    ) as core:
        await core.register()
    names = [
        span.name
        for request in got
        for of in request.resource_spans
        for scope in of.scope_spans
        for span in scope.spans
    ]
    assert names == ["si.v1.Scheduler/RegisterResourceManager"]


async def test_a_receiver_that_is_not_there_holds_nobody_up() -> None:
    """It is told in the core's log: once, and not for each batch."""
    log = io.StringIO()
    tracing = tracing_to("http://127.0.0.1:1", "test", build_logger(LogFormat.JSON, LogLevel.INFO, log))
    async with running_core(tracing=tracing) as core:
        await core.serves()
        await core.register()
    [line] = map(json.loads, log.getvalue().splitlines())
    assert (line["level"], line["event"], line["left_out"]) == ("warning", "tracing", 0)
    assert "refused" in line["problem"]


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "ftp://127.0.0.1", "http://"])
def test_an_endpoint_that_is_none_is_refused(endpoint: str) -> None:
    done = kornel("serve", "--grpc", "127.0.0.1:0", "--tracing-endpoint", endpoint)
    assert done.returncode == 2
    assert "is not an OTLP receiver's address" in done.stderr


def test_nothing_of_it_is_loaded_while_it_is_off() -> None:
    """The packages need not even be installed."""
    code = "import sys, core.commands.serving; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], env=environment(), check=False).returncode == 0
