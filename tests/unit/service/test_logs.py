"""Log lines."""

from __future__ import annotations

import io
import json

from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger


def test_json_lines_hold_event_level_time_and_values() -> None:
    """One JSON object per line, with a traceback where there is one."""
    output = io.StringIO()
    logger = build_logger(LogFormat.JSON, LogLevel.INFO, output)
    logger.debug("hidden")
    logger.info("shown", rm_id="rm-1")
    logger.error("failed", exc_info=ValueError("why"))
    first, second = (json.loads(line) for line in output.getvalue().splitlines())
    assert (first["event"], first["level"], first["rm_id"]) == ("shown", "info", "rm-1")
    assert first["timestamp"].endswith("Z")
    assert "ValueError: why" in second["exception"]


def test_console_lines_are_for_people() -> None:
    """The console form names the event and its values, without colours where nobody sees them."""
    output = io.StringIO()
    build_logger(LogFormat.CONSOLE, LogLevel.DEBUG, output).debug("shown", rm_id="rm-1")
    assert "shown" in output.getvalue()
    assert "rm_id=rm-1" in output.getvalue()
    assert "\x1b" not in output.getvalue()
