"""Where spans go: an OTLP receiver over HTTP, from a thread of its own; what it cannot take in time is dropped."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from core.tracing.tracing import Tracing

TIMEOUT_S: Final = 2.0
TRACES_PATH: Final = "/v1/traces"


class BadEndpoint(ValueError):
    """Not an address spans can be sent to."""


def tracing_to(endpoint: str, version: str) -> Tracing:
    """Tracing to *endpoint*, ``http://host:4318`` or the full path. Raises :class:`BadEndpoint`."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadEndpoint(f"{endpoint!r} is no address of an OTLP receiver, such as http://127.0.0.1:4318")
    if parts.path in ("", "/"):
        endpoint = endpoint.rstrip("/") + TRACES_PATH
    return Tracing(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=TIMEOUT_S)), version)
