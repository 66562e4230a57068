"""Reads times as people write them after ``--since``, ``--until`` and ``--on``; they are UTC unless they have an
offset."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from time import time_ns
from typing import Annotated, Final

import typer

from kornel.cli.options import refuse_input

SECOND_NS: Final = 10**9
_AGO: Final = re.compile(r"([0-9]{1,9})(s|m|h|d)", re.ASCII)
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

Since = Annotated[
    str, typer.Option("--since", metavar="WHEN", help="Not before: an age such as 90m or 7d, or a time such as"
                      " 2026-03-01 or 2026-03-01T12:00:00Z (without an offset: UTC). Empty: from the beginning.")
]  # fmt: skip
Until = Annotated[
    str, typer.Option("--until", metavar="WHEN", help="Only until this time, written as --since. Empty: now.")
]
On = Annotated[
    str,
    typer.Option(
        "--on", metavar="DAY", help="On this day (UTC): today, yesterday, a weekday such as tuesday, or 2026-03-01."
    ),
]


def read_range(since: str, until: str, on: str) -> tuple[int, int]:
    """Returns the range in Unix nanoseconds, with 0 for an open end. Exits if a text is not a time."""
    if on:
        if since or until:
            raise refuse_input("--on means a whole day: give it alone, or --since and --until instead")
        return _read_day(on)
    return _read_moment("--since", since), _read_moment("--until", until)


def _read_moment(option: str, text: str) -> int:
    """Returns *text* as Unix nanoseconds, 0 for none. Exits if it is neither an age nor a time."""
    if not text:
        return 0
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(1, time_ns() - int(ago[1]) * _UNITS[ago[2]] * SECOND_NS)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise refuse_input(
            f"{option}: {text!r} is neither an age such as 90m nor a time such as 2026-03-01T12:00:00Z"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(1, _unix_ns(moment))


def _read_day(text: str) -> tuple[int, int]:
    """Returns the beginning and the end of the day called *text*; a weekday means the last one."""
    today = datetime.fromtimestamp(time_ns() // SECOND_NS, UTC).replace(hour=0, minute=0, second=0)
    name = text.lower()
    if name in ("today", "yesterday"):
        day = today - timedelta(days=name == "yesterday")
    elif len(name) >= 3 and (found := [at for at, each in enumerate(_DAYS) if each.startswith(name)]):
        day = today - timedelta(days=(today.weekday() - found[0]) % 7)
    else:
        try:
            day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
        except ValueError as error:
            raise refuse_input(
                f"--on: {text!r} is neither today, yesterday, a weekday nor a date such as 2026-03-01"
            ) from error
    return max(1, _unix_ns(day)), _unix_ns(day + timedelta(days=1))


def _unix_ns(moment: datetime) -> int:
    return int(moment.timestamp()) * SECOND_NS + moment.microsecond * 1_000
