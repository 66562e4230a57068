"""What the sources say of their names: docstrings below the members of an enumeration."""

from __future__ import annotations

import ast
import inspect
from enum import Enum


def members(kind: type[Enum]) -> dict[str, str]:
    """Value and docstring of each member of *kind*, in order; an empty text where there is none."""
    tree = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(tree, ast.ClassDef)
    told: dict[str, str] = {}
    for statement, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(statement, ast.Assign):
            continue
        name = statement.targets[0]
        assert isinstance(name, ast.Name)
        text = ""
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            text = inspect.cleandoc(str(below.value.value))
        told[str(kind[name.id].value)] = text
    return told
