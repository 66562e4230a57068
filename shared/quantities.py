"""Parses numbers: resource quantities (config.md 5) and durations (config.md 6.1, preemption.md D.2).

All computations use integers, so nothing is rounded. Every error is a ValueError whose message can follow the name of
the key.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

INT64_MAX: Final = 2**63 - 1
SECOND_NS: Final = 10**9
MOST_DELAY_SECONDS: Final = 2**31 - 1
"""The largest bare number of seconds that ``quota.preemption.delay`` accepts (preemption.md D.2)."""

# int() would also take signs, underscores and other scripts' digits, hence the pattern and the ASCII flag.
_QUANTITY: Final = re.compile(r"([0-9]+)[ \t\n\v\f\r]*([A-Za-z]*)", re.ASCII)
_BLANKS: Final = " \t\n\v\f\r\x85\xa0"
_LONGEST_NUMBER: Final = 64

FACTORS: Final = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
    "Ei": 2**60,
}
"""The factors of the suffixes of a quantity."""
_SUFFIX_SHAPES: Final = frozenset(suffix.lower() for suffix in FACTORS)

_DURATION_GROUP: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS_NS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": SECOND_NS,
    "m": 60 * SECOND_NS,
    "h": 3600 * SECOND_NS,
}
_WHOLE_SECONDS: Final = re.compile(r"[0-9]+", re.ASCII)


def parse_quantity(resource: str, text: str) -> int:
    """Returns *text* in base units: thousandths for ``vcore``, bytes for ``memory``, the plain count for anything else.

    The result is from 0 to 2^63-1. Raises ValueError for one of three errors: invalid quantity, invalid suffix,
    overflow.
    """
    match = _QUANTITY.fullmatch(text.strip(_BLANKS))
    if match is None:
        raise ValueError(f"invalid quantity {_quote_text(text)}")
    digits, suffix = match.groups()
    is_cpu = resource == "vcore"
    if suffix == "m" and is_cpu:
        scale = 1
    elif suffix in FACTORS:
        scale = FACTORS[suffix] * (1000 if is_cpu else 1)
    elif suffix == "m" or suffix.lower() in _SUFFIX_SHAPES:
        raise ValueError(f"invalid suffix {suffix!r} in {_quote_text(text)}")
    else:
        raise ValueError(f"invalid quantity {_quote_text(text)}")
    # int() is quadratic, and refuses long texts altogether.
    significant = digits.lstrip("0") or "0"
    if len(significant) > _LONGEST_NUMBER or int(significant) * scale > INT64_MAX:
        raise ValueError(f"overflow: {_quote_text(text)} does not fit into a signed 64-bit number")
    return int(significant) * scale


def parse_duration(text: str) -> int:
    """Returns *text* such as ``1h30m``, ``.5s`` or ``-3ms`` in nanoseconds, which may be negative.

    A bare ``0`` is the only number without a unit. Parts below a nanosecond are cut off. Raises ValueError for anything
    else and for more than about 292 years.
    """
    if len(text) > _LONGEST_NUMBER * 4:
        raise ValueError(f"invalid duration {_quote_text(text)}")
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    total = 0
    position = 0
    while match := _DURATION_GROUP.match(rest, position):
        whole, fraction, unit = match.groups()
        if not whole and not fraction:
            break
        parts = Fraction(int(whole or "0"))
        if fraction:
            parts += Fraction(int(fraction), 10 ** len(fraction))
        total += int(parts * _UNITS_NS[unit])
        position = match.end()
    if not rest or position != len(rest):
        raise ValueError(f"invalid duration {_quote_text(text)}")
    if total > INT64_MAX:
        raise ValueError(f"duration {_quote_text(text)} is longer than 292 years")
    return sign * total


class DelayTooLong(ValueError):
    """A number of seconds above 2^31-1: refused, where other bad delays fall back to off."""


def parse_delay(text: str) -> int:
    """Returns a ``quota.preemption.delay`` in nanoseconds: whole seconds as bare digits, or a duration.

    The result may be 0 or negative, which both mean off. Raises DelayTooLong, or another ValueError for text that is
    neither.
    """
    if _WHOLE_SECONDS.fullmatch(text) is None:
        return parse_duration(text)
    significant = text.lstrip("0") or "0"
    if len(significant) > _LONGEST_NUMBER or int(significant) > MOST_DELAY_SECONDS:
        raise DelayTooLong(f"delay {_quote_text(text)} is above {MOST_DELAY_SECONDS} seconds")
    return int(significant) * SECOND_NS


def _quote_text(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_NUMBER else f"{text[:_LONGEST_NUMBER]}...")
