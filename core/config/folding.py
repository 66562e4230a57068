"""Folds a text: leaves out everything that is the same in a text that was read before.

Only whole items of block lists are left out, which are queues below queues. Such an item ends, whatever it contains, at
the first line that is indented no deeper than its dash. If the parser finds a mark in place of the item, in a list at
the same column, it would have found the item there, and would read the rest in the same way. Two things must not occur
in the text: references between places (anchors, tags, merges), and line ends that the parser counts differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, takewhile
from operator import eq, ne
from typing import Final

from kornel.core.config.keys.declared import DeclaredQueue
from kornel.core.config.text.yaml_reader import FOLD_MARK, FoldedNode, Folds, MappingNode, SequenceNode

_OTHER_LINE_ENDS: Final = ("\r", "\x85", "\u2028", "\u2029", "\ufeff")


@dataclass(frozen=True, slots=True)
class Folded:
    """A document without the queues that need not be read again. ``text`` has as many lines as the whole text, so that
    everything left in it keeps its line.

    ``left``: the queues of the old text that are neither in ``folds`` nor below one of them, parents before children.
    """

    text: str
    folds: Folds
    left: list[DeclaredQueue]


def can_be_counted(text: str) -> bool:
    """Tells whether the parser ends lines of *text* at newlines only, so that they can be counted without it."""
    return not any(end in text for end in _OTHER_LINE_ENDS)


def fold_document(new: str, old: str, roots: list[DeclaredQueue]) -> Folded:
    """Returns *new* without the queues that are the same in *old*, from which *roots* were read."""
    before, lines = old.split("\n"), new.split("\n")
    moved = _match_lines(before, lines)
    breaks = list(accumulate(map(ne, moved, moved[1:]), initial=0))
    folds: dict[tuple[int, int], FoldedNode] = {}
    left = list(roots)
    for parent in left:
        for item in _items(parent, before):
            down = moved[item.start]
            # The line after an item marks its end, so it has to be the same as before as well.
            if not item.apart or down is None or breaks[item.start] != breaks[item.end]:
                left.append(item.queue)
                continue
            start, length = item.start + down, item.end - item.start
            lines[start : start + length] = [f"{' ' * item.indent}- {FOLD_MARK}"] + [""] * (length - 1)
            line, column = start + 1, item.indent + 3
            node = item.node
            folds[line, column] = FoldedNode(line, column, item.queue, node.size, node.levels)
    return Folded("\n".join(lines), folds, left)


def _match_lines(before: list[str], lines: list[str]) -> list[int | None]:
    """Returns how far down each line of *before* is found in *lines*; ``None``: it is not. The order of lines is kept.

    If the number of lines is the same, lines in the same place are compared; otherwise all lines from the first change
    to the last count as changed.
    """
    down = len(lines) - len(before)
    if not down:
        return [0 if same else None for same in map(eq, before, lines)]
    head = _count_alike(map(eq, before, lines))
    most = min(len(before), len(lines)) - head
    tail = min(most, _count_alike(map(eq, reversed(before), reversed(lines))))
    return [0] * head + [None] * (len(before) - head - tail) + [down] * tail


def _count_alike(pairs: Iterator[bool]) -> int:
    return sum(1 for _ in takewhile(bool, pairs))


@dataclass(frozen=True, slots=True)
class _Item:
    """A queue in the list of its parent: lines ``start``, counted from 0, until before ``end``.

    ``apart``: these lines belong to no other item or key.
    """

    queue: DeclaredQueue
    node: MappingNode
    start: int
    end: int
    indent: int
    apart: bool


def _items(parent: DeclaredQueue, lines: list[str]) -> Iterator[_Item]:
    listed = parent.children_field
    if listed is None or not isinstance(listed.node, SequenceNode) or not listed.node.block:
        return
    indent = listed.node.column - 1
    starts = [child.at.line - 1 for child in parent.children]
    clean = [
        lines[start][: child.at.column - 1].rstrip(" ") == " " * indent + "-"
        for start, child in zip(starts, parent.children, strict=True)
    ]
    end_line, end_column = listed.node.end
    end = end_line + listed.line - listed.row - 1
    starts.append(end)
    clean.append(end < len(lines) and not lines[end][: end_column - 1].strip(" "))
    for number, child in enumerate(parent.children):
        if isinstance(child.at.node, MappingNode):
            apart = clean[number] and clean[number + 1]
            yield _Item(child, child.at.node, starts[number], starts[number + 1], indent, apart)
