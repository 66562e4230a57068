"""As much of Go's templates, with the functions Helm adds, as the chart uses. Anything else is an error.

Stands in for `helm template` where no Helm is installed; ``test_chart.py`` compares the two where one is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

_ACTION: Final = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
_TOKEN: Final = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|([()|,])|(:=)|([^\s()|,"]+))')


class TemplateError(Exception):
    """What the template says is wrong, or beyond this subset."""


@dataclass
class _Block:
    """``kind``: text, action, if, with, range or define. ``branches``: conditions and bodies; of else: None."""

    kind: str
    text: str = ""
    branches: list[tuple[str | None, list[_Block]]] = field(default_factory=list)


class Templates:
    """The templates of one chart. *files*: text by name."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._defined: dict[str, list[_Block]] = {}
        self._files: dict[str, list[_Block]] = {}
        for name, text in files.items():
            self._files[name] = self._parse(name, text)

    def render(self, name: str, data: Mapping[str, Any]) -> str:
        """File *name* with *data* as dot."""
        return self._blocks(self._files[name], data, {"$": data})

    def _parse(self, name: str, text: str) -> list[_Block]:
        top: list[_Block] = []
        open_ones: list[tuple[_Block | None, list[_Block]]] = [(None, top)]
        for kind, value in _pieces(text):
            block, body = open_ones[-1]
            word, _, rest = value.partition(" ")
            if kind == "text":
                body.append(_Block("text", value))
            elif word in ("if", "with", "range", "define"):
                inner: list[_Block] = []
                opened = _Block(word, rest, [(rest, inner)])
                body.append(opened)
                open_ones.append((opened, inner))
            elif word == "else":
                if block is None:
                    raise TemplateError(f"{name}: else of nothing")
                inner = []
                block.branches.append((rest.removeprefix("if ") if rest else None, inner))
                open_ones[-1] = (block, inner)
            elif word == "end":
                if block is None:
                    raise TemplateError(f"{name}: end of nothing")
                open_ones.pop()
                if block.kind == "define":
                    open_ones[-1][1].remove(block)
                    self._defined[block.text.strip('"')] = block.branches[0][1]
            elif not value.startswith("/*"):
                body.append(_Block("action", value))
        if len(open_ones) != 1:
            raise TemplateError(f"{name}: a block has no end")
        return top

    def _blocks(self, blocks: list[_Block], dot: Any, names: dict[str, Any]) -> str:
        return "".join(self._block(block, dot, names) for block in blocks)

    def _block(self, block: _Block, dot: Any, names: dict[str, Any]) -> str:
        if block.kind == "text":
            return block.text
        if block.kind == "action":
            if declared := re.fullmatch(r"(\$\w+) := (.*)", block.text, re.DOTALL):
                names[declared[1]] = self._value(declared[2], dot, names)
                return ""
            return _shown(self._value(block.text, dot, names))
        if block.kind == "range":
            return self._range(block, dot, names)
        for condition, body in block.branches:
            value = True if condition is None else self._value(condition, dot, names)
            if value:
                inside = value if block.kind == "with" and condition is not None else dot
                return self._blocks(body, inside, dict(names))
        return ""

    def _range(self, block: _Block, dot: Any, names: dict[str, Any]) -> str:
        [(header, body)] = block.branches
        assert header is not None
        pair = re.fullmatch(r"(\$\w+), (\$\w+) := (.*)", header)
        over = self._value(pair[3] if pair else header, dot, names)
        items = sorted(over.items()) if isinstance(over, Mapping) else list(enumerate(over))
        made = []
        for key, value in items:
            inner = names | ({pair[1]: key, pair[2]: value} if pair else {})
            made.append(self._blocks(body, value, inner))
        return "".join(made)

    def _value(self, text: str, dot: Any, names: Mapping[str, Any]) -> Any:
        tokens = _tokens(text)
        value = self._pipeline(tokens, dot, names)
        if tokens:
            raise TemplateError(f"not understood: {text}")
        return value

    def _pipeline(self, tokens: list[str], dot: Any, names: Mapping[str, Any]) -> Any:
        value = self._command(tokens, dot, names, [])
        while tokens and tokens[0] == "|":
            tokens.pop(0)
            value = self._command(tokens, dot, names, [value])
        return value

    def _command(self, tokens: list[str], dot: Any, names: Mapping[str, Any], piped: list[Any]) -> Any:
        if not tokens:
            raise TemplateError("an action is empty")
        if (function := self._functions(dot).get(tokens[0])) is not None:
            tokens.pop(0)
            arguments = []
            while tokens and tokens[0] not in ("|", ")"):
                arguments.append(self._operand(tokens, dot, names))
            return function(*arguments, *piped)
        if piped:
            raise TemplateError(f"not a function of this subset: {tokens[0]}")
        return self._operand(tokens, dot, names)

    def _operand(self, tokens: list[str], dot: Any, names: Mapping[str, Any]) -> Any:
        token = tokens.pop(0)
        if token == "(":
            value = self._pipeline(tokens, dot, names)
            if not tokens or tokens.pop(0) != ")":
                raise TemplateError("a bracket is not closed")
            return value
        if token.startswith('"'):
            return yaml.safe_load(token)
        if re.fullmatch(r"-?\d+", token):
            return int(token)
        if token.startswith("$"):
            start, _, path = token.partition(".")
            if start not in names:
                raise TemplateError(f"unknown variable {start}")
            return _walk(names[start], path, token)
        if token.startswith("."):
            return _walk(dot, token[1:], token)
        raise TemplateError(f"not of this subset: {token}")

    def _functions(self, _: Any) -> Mapping[str, Callable[..., Any]]:
        return {**_FUNCTIONS, "include": self._include}

    def _include(self, name: str, dot: Any) -> str:
        if name not in self._defined:
            raise TemplateError(f"no template {name}")
        return self._blocks(self._defined[name], dot, {"$": dot})


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Text and actions in turn, white space trimmed where an action says so."""
    at, trim = 0, False
    for found in _ACTION.finditer(text):
        before = text[at : found.start()]
        if trim:
            before = before.lstrip()
        if found[1]:
            before = before.rstrip()
        yield "text", before
        yield "action", found[2]
        at, trim = found.end(), bool(found[3])
    yield "text", text[at:].lstrip() if trim else text[at:]


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise TemplateError(f"not understood: {text}")
        found.append(match[0].strip())
        at = match.end()
    return found


def _walk(value: Any, path: str, token: str) -> Any:
    """A missing key is an error here, unlike in Go: the chart's values name everything."""
    for part in filter(None, path.split(".")):
        if not isinstance(value, Mapping) or part not in value:
            raise TemplateError(f"{token}: there is no {part}")
        value = value[part]
    return value


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, Mapping | list):
        raise TemplateError(f"shown as it is: {value!r}")
    return str(value)


def _required(message: str, value: Any) -> Any:
    if value in (None, ""):
        raise TemplateError(message)
    return value


def _and(*values: Any) -> Any:
    return next((value for value in values if not value), values[-1])


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "and": _and,
    "contains": lambda part, text: part in text,
    "default": lambda fallback, value: value or fallback,
    "hasPrefix": lambda prefix, text: text.startswith(prefix),
    "nindent": lambda width, text: "\n" + "\n".join(" " * width + line if line else "" for line in text.split("\n")),
    "not": lambda value: not value,
    "or": lambda *values: next((value for value in values if value), values[-1]),
    "printf": lambda form, *values: form % values,
    "quote": lambda value: '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"',
    "required": _required,
    "toYaml": lambda value: yaml.safe_dump(value, sort_keys=True, default_flow_style=False).rstrip("\n"),
    "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
    "trunc": lambda width, text: text[:width],
}
