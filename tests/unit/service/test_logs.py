"""Log lines."""

from __future__ import annotations

import io
import json

from kornel.core.service.logs.logs import LevelSwitch, LogFormat, LogLevel, build_logger


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


def test_lines_of_who_did_what_are_not_silenced_by_a_manager() -> None:
    """Its level counts for all others; the level with which the core was started counts for these."""
    output = io.StringIO()
    switch = LevelSwitch(LogLevel.INFO)
    logger = build_logger(LogFormat.JSON, switch, output)
    switch.follow_settings({"log.level": "error"})
    logger.info("node drained", by="ann")
    logger.warning("configuration refused", by="ann")
    logger.info("stream ended")
    logger.error("bug")
    assert [json.loads(line)["event"] for line in output.getvalue().splitlines()] == [
        "node drained",
        "configuration refused",
        "bug",
    ]
    quiet = LevelSwitch(LogLevel.ERROR)
    logger = build_logger(LogFormat.JSON, quiet, output)
    quiet.follow_settings({"log.level": "warn"})
    before = output.getvalue()
    logger.info("node drained", by="ann")
    assert output.getvalue() == before
