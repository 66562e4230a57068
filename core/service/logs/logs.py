"""Structured logging: one logger, which is built once and passed to all that use it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any, Final, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger, Processor

from kornel.core.service.logs.log_choices import LogFormat, LogLevel
from kornel.core.service.logs.log_filters import protect_line

__all__ = ["LEVEL_KEY", "LevelSwitch", "LogFormat", "LogLevel", "build_logger"]

LEVEL_KEY: Final = "log.level"

_NAMES: Final = {
    "debug": LogLevel.DEBUG,
    "info": LogLevel.INFO,
    "warn": LogLevel.WARNING,
    "warning": LogLevel.WARNING,
    "error": LogLevel.ERROR,
    "dpanic": LogLevel.ERROR,
    "panic": LogLevel.ERROR,
    "fatal": LogLevel.ERROR,
    "-1": LogLevel.DEBUG,
    "0": LogLevel.INFO,
    "1": LogLevel.WARNING,
    "2": LogLevel.ERROR,
}
_FILTERS: Final = {
    level: structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]) for level in LogLevel
}


class _Deeds:
    """A logger that writes the lines that say who did something by the level with which the core was started.

    A manager that sets the level must not silence what others, or it, have done.
    """

    def __init__(self, started: Any, present: Any) -> None:
        self._started = started
        self._present = present

    def __getattr__(self, method: str) -> Any:
        present, started = getattr(self._present, method), getattr(self._started, method)
        if method not in ("info", "warning"):
            return present
        return lambda event, *args, **values: (started if "by" in values else present)(event, *args, **values)


class LevelSwitch:
    """The least severity that is written, which settings may change while the core runs (rest.md 3)."""

    def __init__(self, level: LogLevel) -> None:
        self._start = level
        self.level = level

    def follow_settings(self, extra_config: Mapping[str, str]) -> None:
        """Apply ``log.level``; if it is absent or not a level, the level with which the core was started counts."""
        self.level = _NAMES.get(extra_config.get(LEVEL_KEY, "").lower(), self._start)

    @property
    def name(self) -> str:
        """The level by YuniKorn's name."""
        return "warn" if self.level is LogLevel.WARNING else str(self.level)

    def wrap_logger(self, *args: Any, **kwargs: Any) -> FilteringBoundLogger:
        """Returns the logger that structlog calls for each line, which filters by the present level."""
        made: FilteringBoundLogger = _FILTERS[self.level](*args, **kwargs)
        if self.level is self._start:
            return made
        return cast("FilteringBoundLogger", _Deeds(_FILTERS[self._start](*args, **kwargs), made))


def build_logger(
    log_format: LogFormat, level: LogLevel | LevelSwitch, output: TextIO | None = None
) -> FilteringBoundLogger:
    """Returns a logger that writes one line per event to *output*, by default standard error. Changes no global
    configuration."""
    target = sys.stderr if output is None else output
    processors: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        protect_line,
    ]
    if log_format is LogFormat.JSON:
        processors.append(structlog.processors.JSONRenderer())
    else:
        processors.append(
            structlog.dev.ConsoleRenderer(colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback)
        )
    switch = level if isinstance(level, LevelSwitch) else LevelSwitch(level)
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(target),
        processors=processors,
        wrapper_class=cast("type[Any]", switch.wrap_logger),  # structlog only calls this method.
    )
    return logger
