"""YAML text into a tree of nodes that keep their raw text and their place, within fixed bounds.

PyYAML reads the syntax; what is added here is what its own loaders leave out. Scalars stay text (``010``, ``yes`` and
``1:30`` are never turned into something else), a key given twice is an error, and neither nesting nor aliases can make
the tree larger than the bounds, whatever the text says. Rules: config.md 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import yaml

from core.config.problems import ConfigError, Problem, ProblemLog, Severity

MOST_BYTES: Final = 4 * 2**20
MOST_NODES: Final = 500_000
"""Aliases counted as often as they are used."""
MOST_DEPTH: Final = 128
"""Each queue level takes two: its list and its mapping."""
MOST_KEY_LENGTH: Final = 1024

# The parser that upstream's reader descends from, and some ten times faster; the other one where it is not built in.
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_UNPRINTABLE: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_CORE_TAG: Final = "tag:yaml.org,2002:"
_PLAIN_TAGS: Final = frozenset(_CORE_TAG + kind for kind in ("int", "float", "bool", "null"))
_TEXT_TAGS: Final = frozenset({"!", _CORE_TAG + "str"})
_MERGE_TAG: Final = _CORE_TAG + "merge"


@dataclass(frozen=True, slots=True, eq=False)
class ScalarNode:
    """Raw text; ``plain`` when it was neither quoted nor a block, so that it may stand for null, bool or number."""

    line: int
    column: int
    text: str
    plain: bool

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in _NULLS


@dataclass(frozen=True, slots=True, eq=False)
class SequenceNode:
    line: int
    column: int
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One key of a mapping, the place being that of the key."""

    line: int
    column: int
    key: str
    value: Node


@dataclass(frozen=True, slots=True, eq=False)
class MappingNode:
    """Keys are unique; entries stand in the order of the text, merged ones (``<<``) after the mapping's own."""

    line: int
    column: int
    entries: tuple[Entry, ...]


Node = ScalarNode | SequenceNode | MappingNode


def read(text: str, log: ProblemLog) -> Node | None:
    """The first and only document of *text*; ``None`` when it holds none.

    Problems go to *log*. Raises ConfigError at once for text that is too large or no YAML: nothing after that place
    can be trusted.
    """
    if len(text) > MOST_BYTES or len(text.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        _fail(log, 0, 0, "the text is too large", f"at most {MOST_BYTES} bytes")
    unprintable = _UNPRINTABLE.search(text)
    if unprintable is not None:
        before = text[: unprintable.start()]
        message = f"character U+{ord(unprintable.group()):04X} is not allowed"
        _fail(log, before.count("\n") + 1, len(before) - before.rfind("\n"), message, "printable text")
    try:
        return _Composer(log).compose(yaml.parse(text, Loader=_LOADER))
    except ConfigError:
        # A ValueError itself, and already complete.
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        _fail(log, mark.line + 1 if mark else 0, mark.column + 1 if mark else 0, f"not valid YAML: {said}")
    except (yaml.YAMLError, ValueError) as error:
        _fail(log, 0, 0, f"not valid YAML: {error}")


def collections_of(root: Node | None) -> list[Node]:
    """All lists and mappings at and below *root*, parents before what they hold, aliases as often as they are used."""
    found = [root] if isinstance(root, (MappingNode, SequenceNode)) else []
    for node in found:
        below = node.items if isinstance(node, SequenceNode) else [entry.value for entry in node.entries]
        found += [child for child in below if not isinstance(child, ScalarNode)]
    return list(found)


def _fail(log: ProblemLog, line: int, column: int, message: str, expected: str = "") -> NoReturn:
    log.add(Problem(Severity.ERROR, line, column, "", message, expected))
    raise ConfigError(log.in_order())


@dataclass(slots=True)
class _Open:
    """A collection whose end has not been read yet."""

    event: Any
    nodes: list[Node]


class _Composer:
    """Events into nodes, with a stack of its own: nesting costs no recursion, and bounds hold while reading."""

    def __init__(self, log: ProblemLog) -> None:
        self._log = log
        self._anchors: dict[str, Node | None] = {}
        """``None`` while the anchored collection is still open."""
        self._extent: dict[Node, tuple[int, int]] = {}
        """Nodes and levels of each collection, aliases counted in full."""
        self._count = 0

    def compose(self, events: Iterator[Any]) -> Node | None:
        stack: list[_Open] = []
        root: Node | None = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.ScalarEvent):
                node: Node = self._scalar(event)
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                self._open(event, stack)
                continue
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                node = self._close(stack.pop())
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._fail(event, "a second document follows", "one document")
                continue
            elif isinstance(event, yaml.AliasEvent):
                node = self._alias(event, depth=len(stack))
            else:
                continue
            if stack:
                stack[-1].nodes.append(node)
            else:
                root = node
        return root

    def _open(self, event: Any, stack: list[_Open]) -> None:
        if len(stack) >= MOST_DEPTH:
            self._fail(event, "nested too deeply", f"at most {MOST_DEPTH} levels")
        kind = "map" if isinstance(event, yaml.MappingStartEvent) else "seq"
        if event.tag not in (None, "!", _CORE_TAG + kind):
            self._refuse_tag(event)
        self._spend(event, 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        stack.append(_Open(event, []))

    def _close(self, opened: _Open) -> Node:
        line, column = _place(opened.event)
        node: Node
        children: list[Node]
        if isinstance(opened.event, yaml.MappingStartEvent):
            entries = self._entries(opened.nodes)
            node, children = MappingNode(line, column, entries), [entry.value for entry in entries]
        else:
            node, children = SequenceNode(line, column, tuple(opened.nodes)), opened.nodes
        extents = [self._extent_of(child) for child in children]
        self._extent[node] = (1 + sum(n for n, _ in extents), 1 + max((d for _, d in extents), default=0))
        if opened.event.anchor is not None:
            self._anchors[opened.event.anchor] = node
        return node

    def _scalar(self, event: Any) -> ScalarNode:
        line, column = _place(event)
        plain = event.style is None or event.style == ""
        if event.tag in _PLAIN_TAGS or event.tag == _MERGE_TAG:
            plain = True
        elif event.tag in _TEXT_TAGS:
            plain = False
        elif event.tag is not None:
            self._refuse_tag(event)
        self._spend(event, 1)
        node = ScalarNode(line, column, event.value, plain)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, event: Any, depth: int) -> Node:
        if event.anchor not in self._anchors:
            self._fail(event, f"alias *{event.anchor} has no anchor before it")
        node = self._anchors[event.anchor]
        if node is None:
            self._fail(event, f"alias *{event.anchor} contains itself")
        size, levels = self._extent_of(node)
        self._spend(event, size)
        if depth + levels > MOST_DEPTH:
            self._fail(event, "nested too deeply", f"at most {MOST_DEPTH} levels")
        return node

    def _entries(self, nodes: list[Node]) -> tuple[Entry, ...]:
        entries: dict[str, Entry] = {}
        merged: list[Node] = []
        saw_merge = False
        for key, value in zip(nodes[::2], nodes[1::2], strict=True):
            if not isinstance(key, ScalarNode):
                self._error(key, "a key cannot be a list or a mapping", "text")
                continue
            is_merge = key.plain and key.text == "<<"
            name = "" if key.is_null else key.text
            if name in entries or (is_merge and saw_merge):
                first = f", first on line {entries[name].line}" if name in entries else ""
                self._error(key, f"key {shortened(key.text)} is given twice{first}", "each key once")
            elif len(name) > MOST_KEY_LENGTH:
                self._error(key, f"key {shortened(name)} is too long", f"at most {MOST_KEY_LENGTH} characters")
            elif is_merge:
                saw_merge = True
                merged.append(value)
            else:
                entries[name] = Entry(key.line, key.column, name, value)
        for value in merged:
            for source in value.items if isinstance(value, SequenceNode) else (value,):
                self._merge(source, entries)
        return tuple(entries.values())

    def _merge(self, source: Node, entries: dict[str, Entry]) -> None:
        if not isinstance(source, MappingNode):
            self._error(source, "only mappings can be merged with <<", "an alias of a mapping")
            return
        for entry in source.entries:
            if entry.key not in entries:
                self._spend(source, self._extent_of(entry.value)[0])
                entries[entry.key] = entry

    def _extent_of(self, node: Node) -> tuple[int, int]:
        return (1, 0) if isinstance(node, ScalarNode) else self._extent[node]

    def _spend(self, where: Any, nodes: int) -> None:
        self._count += nodes
        if self._count > MOST_NODES:
            self._fail(where, "too many entries, aliases counted in full", f"at most {MOST_NODES}")

    def _refuse_tag(self, event: Any) -> None:
        self._error(event, f"tag {shortened(event.tag)} is not supported here", "no tag")

    def _error(self, where: Any, message: str, expected: str = "") -> None:
        line, column = _place(where)
        self._log.add(Problem(Severity.ERROR, line, column, "", message, expected))

    def _fail(self, where: Any, message: str, expected: str = "") -> NoReturn:
        _fail(self._log, *_place(where), message, expected)


def _place(where: Any) -> tuple[int, int]:
    if isinstance(where, (ScalarNode, SequenceNode, MappingNode)):
        return where.line, where.column
    return where.start_mark.line + 1, where.start_mark.column + 1


def shortened(text: str, most: int = 64) -> str:
    """*text* quoted for a message, cut off where it would drown the rest."""
    return repr(text if len(text) <= most else f"{text[:most]}...")
