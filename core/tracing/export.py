"""Export of spans to an OTLP receiver over HTTP, in a separate thread. Spans that the receiver does not accept in time
are dropped."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from structlog.typing import FilteringBoundLogger

from kornel.core.tracing.tracing import Tracing

TIMEOUT_S: Final = 2.0
TRACES_PATH: Final = "/v1/traces"
REPEAT_S: Final = 60.0
"""The time for which the exporter's errors are only counted after one has been logged."""


class BadEndpoint(ValueError):
    """The endpoint is not an address to which spans can be sent."""


def tracing_to(endpoint: str, version: str, logger: FilteringBoundLogger) -> Tracing:
    """Returns the tracing that sends spans to *endpoint*, which is ``http://host:4318`` or the full path. Raises
    :class:`BadEndpoint`.

    *logger* gets a line when spans cannot be sent.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadEndpoint(f"{endpoint!r} is not an OTLP receiver's address, such as http://127.0.0.1:4318")
    if parts.path in ("", "/"):
        endpoint = endpoint.rstrip("/") + TRACES_PATH
    theirs = logging.getLogger("opentelemetry")
    theirs.handlers = [_Complaints(logger)]
    theirs.propagate = False
    return Tracing(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=TIMEOUT_S)), version)


class _Complaints(logging.Handler):
    """A handler for the two log lines that OpenTelemetry writes for each batch that it cannot send. It logs one of
    them, and then only counts."""

    def __init__(self, logger: FilteringBoundLogger) -> None:
        super().__init__(logging.WARNING)
        self._logger = logger
        # This lock is not that of the handler, because logging the line may take as long as the output does.
        self._counting = threading.Lock()
        self._told_s: float | None = None
        self._untold = 0

    def emit(self, record: logging.LogRecord) -> None:
        now_s = time.monotonic()
        with self._counting:
            if self._told_s is not None and now_s - self._told_s < REPEAT_S:
                self._untold += 1
                return
            untold, self._untold, self._told_s = self._untold, 0, now_s
        self._logger.warning("tracing", problem=record.getMessage(), left_out=untold)
