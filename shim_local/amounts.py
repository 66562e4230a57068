"""Amounts as people write them: cores, bytes and durations."""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,9}))?([A-Za-z]{0,3})\Z")
_PART: Final = re.compile(r"([0-9]{1,9})([smhd])")
_BYTES: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_BYTES: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LARGEST: Final = 2**62


class BadAmount(ValueError):
    """A text that is no amount of its kind; the message says what to write instead."""


def parse_cores(text: str) -> int:
    """Returns the thousandths of a core in a text such as ``2``, ``0.5`` or ``500m``."""
    found = _NUMBER.match(text)
    if found is None or found[3] not in ("", "m") or (found[3] and found[2]):
        raise BadAmount(f"{text!r} is no number of cores; write 2, 0.5 or 500m")
    if found[3] == "m":
        return int(found[1])
    return int(found[1]) * 1000 + int((found[2] or "").ljust(3, "0")[:3])


def parse_bytes(text: str) -> int:
    """Returns the bytes in a text such as ``4Gi`` or ``512M``. A number alone, which elsewhere means megabytes, is
    refused."""
    found = _NUMBER.match(text)
    factors = _BYTES | _BINARY_BYTES
    if found is None or found[3] not in factors:
        raise BadAmount(f"{text!r} is not an amount of memory; write 4Gi, 512Mi or 2G")
    if not found[3] and text.strip("0."):
        raise BadAmount(f"{text!r} has no unit; write {text}M, {text}Mi or {text}G")
    factor = factors[found[3]]
    fraction = found[2] or ""
    amount = int(found[1]) * factor + (int(fraction) * factor // 10 ** len(fraction) if fraction else 0)
    if amount > LARGEST:
        raise BadAmount(f"{text!r} is more memory than can be counted")
    return amount


def parse_duration(text: str) -> float:
    """Returns the seconds in a text such as ``90s``, ``2h``, ``1h30m`` or ``2d``. A number alone, which elsewhere means
    minutes, is refused."""
    if text.isascii() and text.isdigit() and len(text) <= 9:
        if int(text):
            raise BadAmount(f"{text!r} has no unit; write {text}s, {text}m or {text}h")
        return 0.0
    total, end = 0, 0
    while found := _PART.match(text, end):
        total += int(found[1]) * _SECONDS[found[2]]
        end = found.end()
    if end != len(text) or not text:
        raise BadAmount(f"{text!r} is not a duration; write 90s, 30m, 2h or 1h30m")
    return float(total)


def parse_indexes(text: str) -> tuple[int, ...]:
    """Returns the indexes of an array in a text such as ``1-100``, ``0-9:3`` or ``1,5,7-9``, in order and without
    repetition."""
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition(":")
        first, dash, last = span.partition("-")
        numbers = [first, *([last] if dash else []), *([step] if step else [])]
        if not all(each.isascii() and each.isdigit() and len(each) <= 7 for each in numbers) or step == "0":
            raise BadAmount(f"{text!r} is no list of indexes; write 1-100, 0-9:3 or 1,5,7-9")
        indexes = range(int(first), int(last if dash else first) + 1, int(step or 1))
        if not indexes:
            raise BadAmount(f"{part!r} holds no index: its end comes before its begin")
        found.update(indexes)
        if len(found) > MOST_INDEXES:
            raise BadAmount(f"{text!r} holds more than {MOST_INDEXES:,} indexes; submit several arrays")
    return tuple(sorted(found))


MOST_INDEXES: Final = 100_000


def write_cores(thousandths: int) -> str:
    """Returns a number of cores as people write it."""
    return f"{thousandths / 1000:g}"


def write_bytes(amount: int) -> str:
    """Returns bytes with the largest unit that leaves a number above one."""
    for unit, factor in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if amount >= factor:
            return f"{amount / factor:.3g}{unit}" if amount < 1000 * factor else f"{amount // factor}{unit}"
    return str(amount)


def write_duration(seconds: float) -> str:
    """Returns a duration with its two largest units."""
    if 0 < seconds < 1:
        return f"{seconds:.1g}s"
    left = int(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= length and len(parts) < 2:
            parts.append(f"{left // length}{unit}")
            left %= length
        elif parts:
            break
    return "".join(parts) or "0s"
