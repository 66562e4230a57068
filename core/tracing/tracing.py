"""Traces of each unary call, each request on a stream, and each ask from its arrival to its decision.

A stream lasts as long as its shim and would be an endless span. So each request on a stream has its own span, from its
arrival until it is in the engine's queue. The span of an ask is a child of its request's span and ends with the first
decision about the ask. Callers continue their own traces with the W3C entry ``traceparent`` of their metadata.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import grpc
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kornel.core.domain.commands import Command, UpdateAllocations
from kornel.core.domain.effects import Allocated, AllocationRejected, AskReleased, Effect, PreemptionDecided, Released

MOST_ASKS: Final = 10_000
"""The most asks whose spans are open. If there are more, the span of the oldest one is ended as no longer followed."""

_PROPAGATOR: Final = TraceContextTextMapPropagator()


class Tracing:
    """Makes spans from effects and from what the server's interceptors and the runner report. *processor* takes ended
    spans."""

    def __init__(self, processor: SpanProcessor, version: str) -> None:
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "kornel", "service.version": version}), shutdown_on_exit=False
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("kornel", version)
        self._asks: OrderedDict[tuple[str, str, str], Span] = OrderedDict()

    def make_interceptor(self) -> grpc.aio.ServerInterceptor:
        """Returns the interceptor for the gRPC server, before all others."""
        return _Interceptor(self._tracer)

    def note_submitted(self, command: Command) -> None:
        """Note that a request of a stream is queued for the engine. The current span has to be the request's."""
        if not isinstance(command, UpdateAllocations):
            return
        for spec in command.allocations:
            named = (spec.partition, spec.application_id, spec.key)
            if spec.node_id or spec.foreign or named in self._asks:
                continue
            self._asks[named] = self._tracer.start_span(
                "ask",
                attributes={
                    "kornel.application": spec.application_id,
                    "kornel.ask": spec.key,
                    "kornel.partition": spec.partition,
                },
            )
            if len(self._asks) > MOST_ASKS:
                self._end_span(next(iter(self._asks)), "not followed any more")

    def observe(self, effects: Sequence[Effect]) -> None:
        """End the spans of asks that *effects* decide."""
        for effect in effects:
            if isinstance(effect, Allocated):
                spec = effect.spec
                span = self._asks.get((spec.partition, spec.application_id, spec.key))
                if span is not None:
                    span.set_attribute("kornel.node", effect.node_id)
                    self._end_span((spec.partition, spec.application_id, spec.key), "allocated")
            elif isinstance(effect, AllocationRejected):
                self._end_span((effect.partition, effect.application_id, effect.key), "rejected", effect.reason)
            elif isinstance(effect, Released | AskReleased):
                self._end_span((effect.partition, effect.application_id, effect.key), "released")
            elif isinstance(effect, PreemptionDecided) and effect.key:
                span = self._asks.get((effect.partition, effect.application_id, effect.key))
                if span is not None:
                    span.add_event(
                        "preemption",
                        {
                            "kornel.preemption.kind": effect.kind,
                            "kornel.preemption.outcome": str(effect.outcome),
                            "kornel.preemption.detail": effect.detail,
                            "kornel.preemption.victims": [victim.key for victim in effect.victims],
                        },
                    )

    def close(self) -> None:
        """End all open spans and export everything. Blocks until the receiver has the spans, or the exporter's time is
        over."""
        while self._asks:
            self._end_span(next(iter(self._asks)), "undecided when the core stopped")
        self._provider.shutdown()

    def _end_span(self, named: tuple[str, str, str], decision: str, error: str = "") -> None:
        span = self._asks.pop(named, None)
        if span is None:
            return
        span.set_attribute("kornel.decision", decision)
        if error:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end()


class _Interceptor(grpc.aio.ServerInterceptor):
    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """Returns the handler of the call, traced; ``None``: there is none."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        forms = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        method = handler_call_details.method
        metadata = handler_call_details.invocation_metadata or ()
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                self._trace_unary(handler.unary_unary, method, metadata), **forms
            )
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(
                self._trace_stream(handler.stream_stream, method, metadata), **forms
            )
        return handler

    def _trace_unary(self, serve: Callable[[Any, Any], Awaitable[Any]], method: str, metadata: Any) -> Any:
        async def handle(request: Any, context: Any) -> Any:
            with self._tracer.start_as_current_span(
                method.lstrip("/"),
                context=_parent_of(metadata),
                kind=SpanKind.SERVER,
                attributes=_attributes_of(method),
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                try:
                    return await serve(request, context)
                finally:
                    _settle_span(span, context.code())

        return handle

    def _trace_stream(self, serve: Callable[[Any, Any], Any], method: str, metadata: Any) -> Any:
        async def handle(requests: Any, context: Any) -> None:
            serving = serve(self._trace_requests(requests, method, metadata), context)
            if not hasattr(serving, "__aiter__"):
                await serving
                return
            async for response in serving:
                await context.write(response)

        return handle

    async def _trace_requests(self, requests: AsyncIterator[Any], method: str, metadata: Any) -> AsyncIterator[Any]:
        """Yields *requests*, each within its own span, which lasts until the next one is requested."""
        parent = _parent_of(metadata)
        async for request in requests:
            span = self._tracer.start_span(
                f"{method.lstrip('/')} request", context=parent, kind=SpanKind.SERVER, attributes=_attributes_of(method)
            )
            # It is never detached: the context belongs to the reading task, which may have ended when this generator is
            # closed.
            otel_context.attach(trace.set_span_in_context(span))
            try:
                yield request
            finally:
                span.end()


def _parent_of(metadata: Any) -> Context:
    return _PROPAGATOR.extract({key: value for key, value in metadata if isinstance(value, str)})


def _attributes_of(method: str) -> dict[str, str]:
    service, _, name = method.lstrip("/").rpartition("/")
    return {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}


def _settle_span(span: Span, code: Any) -> None:
    """End *span* with *code*, which gRPC gives as a status, its number, or nothing for a call that succeeded."""
    number = code.value[0] if isinstance(code, grpc.StatusCode) else int(code or 0)
    span.set_attribute("rpc.grpc.status_code", number)
    if number:
        span.set_status(Status(StatusCode.ERROR))
