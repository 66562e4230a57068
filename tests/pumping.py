"""Texts that are as bad as possible for a regular expression, made from its structure, and what it needs for them.

Python's engine goes back in the text. Where two repeats can share what they match, or a search begins anew within what
it has just read, time grows faster than the text does. The texts here repeat what a repeat takes, what stands before
it, and every word of the expression, and end in something that spoils the match.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
from re import _constants, _parser  # type: ignore[attr-defined]
from types import FrameType
from typing import Any, Final

SMALL: Final = 4_096
LARGE: Final = 65_536
LONGEST_S: Final = 0.25
"""Processor time for a text of :data:`LARGE` characters, many times what one pass takes."""

METHODS: Final = ("fullmatch", "match", "search", "finditer")
_CANDIDATES: Final = 3
_SUSPICIOUS_S: Final = 0.01
"""Of a small text; a linear expression needs a tenth of a millisecond."""
_ENDLESS: Final = 16
"""A repeat of so many or more can be pumped."""
_ORDINARY: Final = "a0A_-. :/@=\\\n\x00é"
_SPOILERS: Final = ("", "\x00", "!", "\n")
_REPEATS: Final = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
_CATEGORIES: Final = {
    _constants.CATEGORY_DIGIT: str.isdigit,
    _constants.CATEGORY_NOT_DIGIT: lambda c: not c.isdigit(),
    _constants.CATEGORY_SPACE: str.isspace,
    _constants.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
    _constants.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
    _constants.CATEGORY_NOT_WORD: lambda c: not (c.isalnum() or c == "_"),
}


class TooSlow(Exception):
    """An expression needed more than its time."""


def find_slow_text(pattern: re.Pattern[str], methods: Iterable[str] = METHODS) -> str | None:
    """Says with which text one of *methods* needs more time than its length explains; ``None``: with none tried."""
    for method in methods:
        times: list[tuple[float, tuple[str, str, str]]] = []
        for attack in _attacks(pattern):
            if _is_slow(pattern, method, attack, 24):
                return f"{method} of {attack} at 24 characters"
            took_s = _time_of(pattern, method, _pumped(attack, SMALL))
            if took_s > _SUSPICIOUS_S and _is_slow(pattern, method, attack, LARGE):
                return f"{method} of {attack} at {LARGE} characters"
            times.append((took_s, attack))
        times.sort(key=lambda found: -found[0])
        for _, attack in times[:_CANDIDATES]:
            if _is_slow(pattern, method, attack, LARGE):
                return f"{method} of {attack} at {LARGE} characters"
    return None


def _is_slow(pattern: re.Pattern[str], method: str, attack: tuple[str, str, str], length: int) -> bool:
    """Twice: a machine with other work may take its time once."""
    return all(_time_of(pattern, method, _pumped(attack, length)) > LONGEST_S for _ in range(2))


def _pumped(attack: tuple[str, str, str], length: int) -> str:
    before, pump, after = attack
    return before + pump * (length // len(pump)) + after


def _time_of(pattern: re.Pattern[str], method: str, text: str) -> float:
    run = getattr(pattern, method)
    started = time.process_time()
    with suppress(TooSlow), _alarm(LONGEST_S * 1.2):
        found = run(text)
        if method == "finditer":
            for _ in found:
                pass
    return time.process_time() - started


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise :class:`TooSlow` after *seconds* of processor time: an exponential expression would never return."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _attacks(pattern: re.Pattern[str]) -> Iterator[tuple[str, str, str]]:
    """What stands in front, what is repeated, what spoils it."""
    tree = _parser.parse(pattern.pattern, pattern.flags)
    letters = _letters(tree)
    pumps = dict.fromkeys([*letters, *_words(tree), *_bodies(tree, letters), _sample(tree, letters)])
    fronts = dict.fromkeys(["", *_fronts(tree, letters, "")])
    yield from product(fronts, filter(None, pumps), _SPOILERS)


def _letters(tree: Any) -> str:
    """Every literal of *tree* and its neighbours, and some ordinary characters."""
    found = dict.fromkeys(_ORDINARY)
    for kind, value in _nodes(tree):
        if kind in (_constants.LITERAL, _constants.NOT_LITERAL):
            found[chr(value)] = None
        elif kind is _constants.RANGE:
            found.update(dict.fromkeys(map(chr, value)))
    return "".join(found)


def _nodes(tree: Any) -> Iterator[tuple[Any, Any]]:
    """All nodes of *tree*, classes taken apart."""
    for kind, value in tree:
        yield kind, value
        if kind is _constants.IN:
            yield from value
        for part in _parts(kind, value):
            yield from _nodes(part)


def _parts(kind: Any, value: Any) -> list[Any]:
    """The expressions inside of one node."""
    if kind in _REPEATS:
        return [value[2]]
    if kind is _constants.BRANCH:
        return list(value[1])
    if kind is _constants.SUBPATTERN:
        return [value[3]]
    if kind is _constants.ATOMIC_GROUP:
        return [value]
    if kind in (_constants.ASSERT, _constants.ASSERT_NOT):
        return [value[1]]
    return []


def _words(tree: Any) -> Iterator[str]:
    """Runs of literals."""
    run = ""
    for kind, value in [*tree, (None, None)]:
        if kind is _constants.LITERAL:
            run += chr(value)
            continue
        if run:
            yield run
        run = ""
        for part in _parts(kind, value):
            yield from _words(part)


def _bodies(tree: Any, letters: str) -> Iterator[str]:
    """What each repeat repeats."""
    for kind, value in _nodes(tree):
        if kind in _REPEATS and value[1] >= _ENDLESS:
            yield _sample(value[2], letters)
            yield _sample(value[2], letters[::-1])


def _fronts(tree: Any, letters: str, before: str) -> Iterator[str]:
    """What stands in front of each repeat."""
    for kind, value in tree:
        if kind in _REPEATS and value[1] >= _ENDLESS:
            yield before
        for part in _parts(kind, value):
            yield from _fronts(part, letters, before)
        before += _sample([(kind, value)], letters)


def _sample(tree: Any, letters: str) -> str:
    """A short text that *tree* matches, or nearly."""
    text = ""
    for kind, value in tree:
        if kind is _constants.LITERAL:
            text += chr(value)
        elif kind is _constants.ANY:
            text += "a"
        elif kind is _constants.NOT_LITERAL:
            text += next(letter for letter in letters if letter != chr(value))
        elif kind is _constants.IN:
            text += next((letter for letter in letters if _in_class(letter, value)), "")
        elif kind in _REPEATS:
            text += _sample(value[2], letters) * max(1, value[0])
        elif kind is _constants.BRANCH:
            text += _sample(value[1][0], letters)
        elif kind in (_constants.SUBPATTERN, _constants.ATOMIC_GROUP):
            text += _sample(_parts(kind, value)[0], letters)
        elif kind is _constants.ASSERT and value[0] < 0:
            text += _sample(value[1], letters)
    return text


def _in_class(letter: str, members: Any) -> bool:
    negated = False
    found = False
    for kind, value in members:
        if kind is _constants.NEGATE:
            negated = True
        elif kind is _constants.LITERAL:
            found = found or ord(letter) == value
        elif kind is _constants.RANGE:
            found = found or value[0] <= ord(letter) <= value[1]
        elif kind is _constants.CATEGORY:
            found = found or _CATEGORIES[value](letter)
    return found != negated
