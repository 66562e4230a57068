"""Amounts and durations as text. Their grammar is that of queues.yaml, so that scenarios and queue configurations look
alike.

Every function that reads takes the raw text, and raises ValueError that says what is wrong and what is expected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from kornel.shared import quantities as shared

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
# This is longer than any simulation, and short enough that every timer computed from it is finite.
LONGEST_S: Final = 10 * 365 * 86400

UNITS: Final = {"memory": "GiB", "gpu_milli": "gpu"}
"""The units of amounts that :func:`scale_amount` writes, for the types that have one."""
_DIVISORS: Final = {"vcore": 1_000, "memory": 2**30, "gpu_milli": 1_000}

_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600}
_INTEGER: Final = re.compile(r"-?[0-9]+", re.ASCII)
_DECIMAL: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
_RATE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)/(s|m|h)", re.ASCII)


def parse_duration(text: str) -> float:
    """Returns the duration *text*, such as ``250ms``, ``1h30m`` or ``0``, in seconds. It is never negative."""
    try:
        seconds = shared.parse_duration(text) / shared.SECOND_NS
    except ValueError as error:
        raise ValueError(f"{error}: write numbers with units, such as 250ms, 5s or 1h30m") from None
    if seconds < 0:
        raise ValueError(f"{text!r} is negative")
    if seconds > LONGEST_S:
        raise ValueError(f"{text!r} is too long: at most {LONGEST_S // 3600} hours")
    return seconds


def parse_integer(text: str, least: int, most: int) -> int:
    """Returns *text* as a whole number between *least* and *most*."""
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a whole number")
    # Such a number exceeds every bound in use, and Python refuses to convert thousands of digits.
    value = int(text) if len(text) <= 40 else (least - 1 if text.startswith("-") else most + 1)
    if not least <= value <= most:
        raise ValueError(f"{text if len(text) <= 40 else 'the number'} is outside {least}..{most}")
    return value


def parse_decimal(text: str, least: float, most: float) -> float:
    """Returns *text* as a plain decimal between *least* and *most*."""
    if _DECIMAL.fullmatch(text) is None or len(text) > 40:
        raise ValueError(f"{text!r} is not a plain decimal number")
    if not least <= (value := float(text)) <= most:
        raise ValueError(f"{text} is outside {least:g}..{most:g}")
    return value


def parse_rate(text: str) -> float:
    """Returns *text*, such as ``10/s`` or ``90/m``, as a number per second."""
    match = _RATE.fullmatch(text)
    if match is None or len(text) > 40:
        raise ValueError(f"{text!r} is not a rate: write a number per unit, such as 10/s or 90/m")
    per_second = float(Fraction(match[1]) / _UNIT_S[match[2]])
    if not 0 < per_second <= 1e6:
        raise ValueError(f"{text!r} is not above 0/s and at most 1000000/s")
    return per_second


def parse_flag(text: str) -> bool:
    """Returns *text*, ``true`` or ``false``, as a truth value."""
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def scale_amount(kind: str, amount: int) -> str:
    """Returns *amount* as a readable text: vcore in cores, memory in GiB, gpu_milli in GPUs, other types unchanged.

    Decimals are shown only for small amounts, where they can matter, so that a table of a large cluster fits a
    terminal.
    """
    divisor = _DIVISORS.get(kind, 1)
    whole = amount / divisor
    return f"{whole:,.1f}" if divisor > 1 and whole < 1_000 else f"{whole:,.0f}"


def describe_share(kind: str, part: int, whole: int) -> str:
    """Returns *part* of *whole* as words for a sentence: ``vcore 3.0 of 4.0``, ``8.0 of 16.0 GiB``."""
    unit = UNITS.get(kind)
    said = f"{scale_amount(kind, part)} of {scale_amount(kind, whole)}"
    return f"{said} {unit}" if unit else f"{kind} {said}"


def describe_amounts(amounts: Mapping[str, int]) -> str:
    """Returns amounts as words for a sentence: ``vcore 3.0, 8.0 GiB``, or ``nothing`` if there are none."""
    return (
        ", ".join(
            f"{scale_amount(kind, amount)} {UNITS[kind]}" if kind in UNITS else f"{kind} {scale_amount(kind, amount)}"
            for kind, amount in amounts.items()
        )
        or "nothing"
    )
