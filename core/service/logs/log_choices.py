"""Defines the choices of an administrator for the log."""

from __future__ import annotations

from enum import StrEnum


class LogFormat(StrEnum):
    """The forms of a log line."""

    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The least severity that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
