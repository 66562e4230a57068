"""Structured logging: one logger, built once and passed in."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import TextIO

import structlog
from structlog.typing import FilteringBoundLogger, Processor

from core.service.log_filters import protect


class LogFormat(StrEnum):
    """How a log line looks."""

    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """Least severity that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def build_logger(log_format: LogFormat, level: LogLevel, output: TextIO | None = None) -> FilteringBoundLogger:
    """A logger that writes one line per event to *output*, by default standard error. Configures nothing global."""
    target = sys.stderr if output is None else output
    processors: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        protect,
    ]
    if log_format is LogFormat.JSON:
        processors.append(structlog.processors.JSONRenderer())
    else:
        processors.append(
            structlog.dev.ConsoleRenderer(colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback)
        )
    severity = logging.getLevelNamesMapping()[level.upper()]
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(target),
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(severity),
    )
    return logger
