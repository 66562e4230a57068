"""What log lines hide and write out, and that nobody can make that expensive."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from kornel.core.domain.secrets import HIDDEN
from kornel.core.service.logs.log_filters import LONGEST_READ, LONGEST_VALUE, protect_line
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from tests.paced import paced_time

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJib2IifQ.c2lnbmF0dXJl"
HOSTILE = "a\x1b[2Jb\x07c\x9bd\u202ee\nf\x7fg\u200bh\u2066i\u3164j\u00a0k"
VISIBLE = r"a\x1b[2Jb\x07c\x9bd\u202ee\nf\x7fg\u200bh\u2066i\u3164j\xa0k"


def shown(value: object) -> object:
    return protect_line(None, "info", {"value": value})["value"]


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (JWT, HIDDEN),
        (f"token={JWT};", f"token={HIDDEN};"),
        (f"x{JWT}", f"x{HIDDEN}"),
        ("eyJhbGci.eyJzdWI.", HIDDEN),
        ("eyJhbGci.eyJzdWI", "eyJhbGci.eyJzdWI"),
        ("eyJeyJ", "eyJeyJ"),
        (f"eyJ {JWT} eyJa", f"eyJ {HIDDEN} eyJa"),
        (f"eyJa.{JWT}", HIDDEN),
        ("krn_" + "a" * 43, HIDDEN),
        ("Bearer abc.def ghi", f"Bearer {HIDDEN} ghi"),
        ("https://bob:word@host/", f"https://{HIDDEN}@host/"),
        ("-----BEGIN PRIVATE KEY-----\nabc", HIDDEN),
        ({"password": "x", "a": JWT}, {"password": HIDDEN, "a": HIDDEN}),
    ],
)
def test_secrets_are_hidden(value: object, left: object) -> None:
    """Whole, wherever they stand; what only looks like the beginning of one stays."""
    assert shown(value) == left


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    ["eyJ" * 100_000, "eyJ." * 75_000, "://a:" * 60_000, "-----BEGIN " * 30_000, "bearer " * 50_000, "krn_" * 75_000],
    ids=lambda text: text[:12],
)
def test_no_name_makes_a_line_expensive(text: str) -> None:
    """Of 300,000 characters, where one pass over the old filter took more than a minute."""
    with paced_time() as took:
        assert len(str(shown(text))) <= LONGEST_VALUE
    assert took.seconds < 0.25


def test_a_secret_across_the_end_of_what_is_written_is_hidden() -> None:
    """More is read than written, so that no secret is taken apart."""
    text = "." * (LONGEST_VALUE - 10) + JWT
    assert "eyJ" not in str(shown(text))
    assert LONGEST_READ > LONGEST_VALUE == len(str(shown("x" * LONGEST_READ)))


@pytest.mark.parametrize("log_format", LogFormat)
def test_names_are_written_out_in_both_formats(log_format: LogFormat) -> None:
    """Neither control characters nor those that turn the direction of text around reach the log."""
    output = io.StringIO()
    logger = build_logger(log_format, LogLevel.INFO, output)
    logger.info("stream ended", rm_id=HOSTILE, names=[HOSTILE], values={HOSTILE: HOSTILE})
    (line,) = output.getvalue().splitlines()
    assert line.isprintable()
    assert VISIBLE.replace("\\", "\\\\") in line if log_format is LogFormat.JSON else VISIBLE in line


def logged(log_format: LogFormat, **values: Any) -> str:
    output = io.StringIO()
    build_logger(log_format, LogLevel.DEBUG, output).info("something happened", **values)
    return output.getvalue()


@pytest.mark.parametrize("log_format", LogFormat)
def test_secrets_and_lines_within_values_and_exceptions_are_taken_care_of(log_format: LogFormat) -> None:
    """Traceback lines are indented, so that none begins like a line of the log."""
    try:
        raise ValueError(f"cannot use {JWT}\n2030-01-01T00:00:00Z [info     ] all is well")
    except ValueError as error:
        told = logged(log_format, exc_info=error)
    assert not any(line.startswith("2030") for line in told.splitlines())
    for line in (told, logged(log_format, said={"inside": [JWT]}), logged(log_format, said=ValueError(JWT))):
        assert JWT not in line


def test_what_is_no_text_stays_what_it_is() -> None:
    values = {"count": 3, "share": 0.5, "on": True, "nothing": None, "names": ["a", 1]}
    line = json.loads(logged(LogFormat.JSON, **values))
    assert {name: line[name] for name in values} == values
