"""The syntax trees of source files, each parsed once for all tests of this folder."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def parse_source(path: Path) -> ast.Module:
    """Returns the syntax tree of *path*."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def list_nodes(path: Path) -> tuple[ast.AST, ...]:
    """Returns all nodes of the syntax tree of *path*, as :func:`ast.walk` does, which takes longer than to parse."""
    return tuple(ast.walk(parse_source(path)))


def forget_trees() -> None:
    """Gives back the memory of all trees, a few hundred bytes for each node."""
    list_nodes.cache_clear()
    parse_source.cache_clear()
