"""Reads YAML text into a tree of nodes with their raw text and their places, within fixed bounds.

PyYAML parses the syntax; this module adds what its own loaders leave out. Scalars stay text (``010``, ``yes`` and
``1:30`` are never converted), a duplicate key is an error, and neither nesting nor aliases can make the tree larger
than the bounds. Rules: config.md 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NoReturn

import yaml

from kornel.core.config.text.problems import ConfigError, Problem, ProblemLog, Severity
from kornel.core.domain.secrets import HIDDEN, names_secret

MOST_BYTES: Final = 4 * 2**20
MOST_NODES: Final = 500_000
"""The most nodes of a document, with aliases counted as often as they are used."""
MOST_DEPTH: Final = 128
"""The deepest nesting, of which each queue level takes two: its list and its mapping."""
MOST_KEY_LENGTH: Final = 1024

# The C parser, which is some ten times faster, or the Python one if the C parser is not available.
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_UNPRINTABLE: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_CORE_TAG: Final = "tag:yaml.org,2002:"
_PLAIN_TAGS: Final = frozenset(_CORE_TAG + kind for kind in ("int", "float", "bool", "null"))
_TEXT_TAGS: Final = frozenset({"!", _CORE_TAG + "str"})
_MERGE_TAG: Final = _CORE_TAG + "merge"

FOLD_MARK: Final = '"..."'
"""The text that stands in place of a part that was left out, and the value as which it is read."""
_FOLD_TEXT: Final = "..."


# Nodes are never changed, but they are not frozen, because that would take a third of the reading time.
@dataclass(slots=True, eq=False)
class ScalarNode:
    """Raw text. ``plain`` tells whether it was neither quoted nor a block, so that it may mean null, a truth value or a
    number."""

    line: int
    column: int
    text: str
    plain: bool

    @property
    def is_null(self) -> bool:
        """Tells whether the scalar means null."""
        return self.plain and self.text in _NULLS


@dataclass(slots=True, eq=False)
class SequenceNode:
    """A list. ``size`` and ``levels``: the number of nodes and of levels at and below it, with aliases counted as often
    as they are used.

    ``block`` tells whether it is written with a dash for each item; such a list ends at ``end``, the place of what
    follows it.
    """

    line: int
    column: int
    items: tuple[Node, ...]
    size: int
    levels: int
    block: bool
    end: tuple[int, int]


@dataclass(slots=True, eq=False)
class Entry:
    """One entry of a mapping, with the place of its key."""

    line: int
    column: int
    key: str
    value: Node


@dataclass(slots=True, eq=False)
class MappingNode:
    """A mapping with unique keys, in the order of the text; merged entries (``<<``) follow its own."""

    line: int
    column: int
    entries: tuple[Entry, ...]
    size: int
    levels: int


@dataclass(slots=True, eq=False)
class FoldedNode:
    """An item of a block list that was left out of the text; ``content`` is the known value.

    It is neither text nor list nor mapping, so code that does not expect it treats it as an error.
    """

    line: int
    column: int
    content: object
    size: int
    levels: int


Node = ScalarNode | SequenceNode | MappingNode | FoldedNode

Folds = Mapping[tuple[int, int], FoldedNode]
"""The left-out parts by the place of their ``FOLD_MARK``."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document; ``root`` is ``None`` for a text without one.

    self_contained  nothing refers to another place (anchors, aliases, tags, directives, merges): an item of a list
                    means the same whatever stands around it
    folds           how many marks were found in the place of an item of a block list
    """

    root: Node | None
    self_contained: bool
    folds: int


def read(text: str, log: ProblemLog, folds: Folds = MappingProxyType({})) -> Document:
    """Returns the only document in *text*, with *folds* in place of their marks.

    Problems go to *log*. Raises ConfigError at once for text that is too large or not YAML, because nothing after that
    place can be trusted.
    """
    if len(text) > MOST_BYTES or len(text.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        _raise_error(log, 0, 0, "the text is too large", f"at most {MOST_BYTES} bytes")
    unprintable = _UNPRINTABLE.search(text)
    if unprintable is not None:
        before = text[: unprintable.start()]
        message = f"character U+{ord(unprintable.group()):04X} is not allowed"
        _raise_error(log, before.count("\n") + 1, len(before) - before.rfind("\n"), message, "printable text")
    try:
        composer = _Composer(log, folds, may_have_marks=HIDDEN in text)
        return composer.compose(yaml.parse(text, Loader=_LOADER))
    except ConfigError:
        # A ConfigError is a ValueError itself, and is complete already.
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        _raise_error(log, mark.line + 1 if mark else 0, mark.column + 1 if mark else 0, f"not valid YAML: {said}")
    except (yaml.YAMLError, ValueError) as error:
        _raise_error(log, 0, 0, f"not valid YAML: {error}")


def collections_of(root: Node | None) -> list[Node]:
    """Returns all lists and mappings at and below *root*, parents before children, and aliases as often as they are
    used."""
    found = [root] if isinstance(root, (MappingNode, SequenceNode)) else []
    for node in found:
        below = node.items if isinstance(node, SequenceNode) else [entry.value for entry in node.entries]
        found += [child for child in below if isinstance(child, (MappingNode, SequenceNode))]
    return list(found)


def _raise_error(log: ProblemLog, line: int, column: int, message: str, expected: str = "") -> NoReturn:
    log.add(Problem(Severity.ERROR, line, column, "", message, expected))
    raise ConfigError(log.in_order())


@dataclass(slots=True)
class _Open:
    """A collection whose end has not been read yet."""

    event: Any
    nodes: list[Node]


class _Composer:
    """Turns parser events into nodes, with a stack of its own, so that nesting costs no recursion and the bounds hold
    while reading."""

    def __init__(self, log: ProblemLog, folds: Folds, *, may_have_marks: bool) -> None:
        """Prepares to compose. *may_have_marks*: the text contains the mark that is shown in place of secrets."""
        self._log = log
        self._folds = folds
        self._may_have_marks = may_have_marks
        self._folds_found = 0
        self._anchors: dict[str, Node | None] = {}
        """The anchored collection; ``None`` while it is still open."""
        self._self_contained = True
        self._count = 0

    def compose(self, events: Iterator[Any]) -> Document:
        stack: list[_Open] = []
        root: Node | None = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.ScalarEvent):
                scalar = self._make_scalar(event)
                node: Node = scalar
                if self._folds and scalar.text == _FOLD_TEXT:
                    node = self._unfold_node(scalar, stack)
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                self._open(event, stack)
                continue
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                node = self._close(stack.pop(), event)
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._fail(event, "a second document follows", "one document")
                if event.version or event.tags:
                    self._self_contained = False
                continue
            elif isinstance(event, yaml.AliasEvent):
                node = self._resolve_alias(event, depth=len(stack))
            else:
                continue
            if stack:
                stack[-1].nodes.append(node)
            else:
                root = node
        return Document(root, self._self_contained, self._folds_found)

    def _open(self, event: Any, stack: list[_Open]) -> None:
        if len(stack) >= MOST_DEPTH:
            self._fail(event, "nested too deeply", f"at most {MOST_DEPTH} levels")
        if event.tag is not None:
            self._self_contained = False
            kind = "map" if isinstance(event, yaml.MappingStartEvent) else "seq"
            if event.tag not in ("!", _CORE_TAG + kind):
                self._refuse_tag(event)
        self._count_nodes(event, 1)
        if event.anchor is not None:
            self._self_contained = False
            self._anchors[event.anchor] = None
        stack.append(_Open(event, []))

    def _close(self, opened: _Open, end: Any) -> Node:
        event, children = opened.event, opened.nodes
        line, column = _place_of(event)
        node: Node
        if isinstance(event, yaml.MappingStartEvent):
            entries = self._entries(children)
            size, levels = _extent_around([entry.value for entry in entries])
            node = MappingNode(line, column, entries, size, levels)
        else:
            size, levels = _extent_around(children)
            node = SequenceNode(line, column, tuple(children), size, levels, not event.flow_style, _place_of(end))
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _unfold_node(self, node: ScalarNode, stack: list[_Open]) -> Node:
        """Returns the node for which the mark *node* stands; *node* itself if it only has the same text."""
        fold = self._folds.get((node.line, node.column))
        around = stack[-1].event if stack else None
        if fold is None or not isinstance(around, yaml.SequenceStartEvent) or around.flow_style:
            return node
        self._folds_found += 1
        self._count_nodes(node, fold.size - 1)
        if len(stack) + fold.levels > MOST_DEPTH:
            self._fail(node, "nested too deeply", f"at most {MOST_DEPTH} levels")
        return fold

    def _make_scalar(self, event: Any) -> ScalarNode:
        line, column = _place_of(event)
        plain = event.style is None or event.style == ""
        if event.tag is not None:
            self._self_contained = False
            if event.tag in _PLAIN_TAGS or event.tag == _MERGE_TAG:
                plain = True
            elif event.tag in _TEXT_TAGS:
                plain = False
            else:
                self._refuse_tag(event)
        self._count_nodes(event, 1)
        if self._may_have_marks and HIDDEN in event.value:
            self._refuse_mark(event)
        node = ScalarNode(line, column, event.value, plain)
        if event.anchor is not None:
            self._self_contained = False
            self._anchors[event.anchor] = node
        return node

    def _resolve_alias(self, event: Any, depth: int) -> Node:
        if event.anchor not in self._anchors:
            self._fail(event, f"alias *{event.anchor} has no anchor before it")
        node = self._anchors[event.anchor]
        if node is None:
            self._fail(event, f"alias *{event.anchor} contains itself")
        size, levels = _extent_of(node)
        self._count_nodes(event, size)
        if depth + levels > MOST_DEPTH:
            self._fail(event, "nested too deeply", f"at most {MOST_DEPTH} levels")
        return node

    def _entries(self, nodes: list[Node]) -> tuple[Entry, ...]:
        entries: dict[str, Entry] = {}
        merged: list[Node] = []
        saw_merge = False
        for key, value in zip(nodes[::2], nodes[1::2], strict=True):
            if not isinstance(key, ScalarNode):
                self._report_error(key, "a key cannot be a list or a mapping", "text")
                continue
            if self._may_have_marks and names_secret(key.text) and _is_mark(value):
                self._refuse_mark(value)
            is_merge = key.plain and key.text == "<<"
            name = "" if key.is_null else key.text
            if name in entries or (is_merge and saw_merge):
                first = f", first on line {entries[name].line}" if name in entries else ""
                self._report_error(key, f"key {shorten_text(key.text)} is given twice{first}", "each key once")
            elif len(name) > MOST_KEY_LENGTH:
                self._report_error(
                    key, f"key {shorten_text(name)} is too long", f"at most {MOST_KEY_LENGTH} characters"
                )
            elif is_merge:
                saw_merge = True
                self._self_contained = False
                merged.append(value)
            else:
                entries[name] = Entry(key.line, key.column, name, value)
        for value in merged:
            for source in value.items if isinstance(value, SequenceNode) else (value,):
                self._merge_mapping(source, entries)
        return tuple(entries.values())

    def _merge_mapping(self, source: Node, entries: dict[str, Entry]) -> None:
        if not isinstance(source, MappingNode):
            self._report_error(source, "only mappings can be merged with <<", "an alias of a mapping")
            return
        for entry in source.entries:
            if entry.key not in entries:
                self._count_nodes(source, _extent_of(entry.value)[0])
                entries[entry.key] = entry

    def _count_nodes(self, where: Any, nodes: int) -> None:
        self._count += nodes
        if self._count > MOST_NODES:
            self._fail(where, "too many entries, aliases counted in full", f"at most {MOST_NODES}")

    def _refuse_tag(self, event: Any) -> None:
        self._report_error(event, f"tag {shorten_text(event.tag)} is not supported here", "no tag")

    def _refuse_mark(self, where: Any) -> None:
        """Reports a mark that would come into force instead of the secret that it hides."""
        message = f"{HIDDEN} stands where a secret was when this text was shown"
        self._report_error(where, message, "the secret itself")

    def _report_error(self, where: Any, message: str, expected: str = "") -> None:
        line, column = _place_of(where)
        self._log.add(Problem(Severity.ERROR, line, column, "", message, expected))

    def _fail(self, where: Any, message: str, expected: str = "") -> NoReturn:
        _raise_error(self._log, *_place_of(where), message, expected)


def _is_mark(node: Node) -> bool:
    """Tells whether *node* is the result of an unquoted mark that hides a secret."""
    if not isinstance(node, SequenceNode) or len(node.items) != 1:
        return False
    item = node.items[0]
    return isinstance(item, ScalarNode) and f"[{item.text}]" == HIDDEN


def _extent_of(node: Node) -> tuple[int, int]:
    """Returns the number of nodes and of levels of *node*, aliases counted in full."""
    return (1, 0) if isinstance(node, ScalarNode) else (node.size, node.levels)


def _extent_around(children: list[Node]) -> tuple[int, int]:
    """Returns the number of nodes and of levels of a collection of *children*."""
    size, levels = 1, 0
    for child in children:
        if isinstance(child, ScalarNode):
            size += 1
            continue
        size += child.size
        levels = max(levels, child.levels)
    return size, levels + 1


def _place_of(where: Any) -> tuple[int, int]:
    if isinstance(where, (ScalarNode, SequenceNode, MappingNode, FoldedNode)):
        return where.line, where.column
    mark = where.start_mark
    return mark.line + 1, mark.column + 1


def shorten_text(text: str, most: int = 64) -> str:
    """Returns *text* quoted for a message, cut off if it is too long."""
    return repr(text if len(text) <= most else f"{text[:most]}...")
