"""The client library as a page, made from its docstrings and signatures."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from typing import Any, Final

from docs.site.markdown import cell, escaped, table
from docs.site.members import members
from kornel import shim_client

_GROUPS: Final = {
    "The client": ("ShimClient", "Credentials"),
    "What a shim asks for": ("Ask", "Topology", "Devices", "Device", "devices_attribute", "resource", "Generation"),
    "What the core says": (
        "Allocated", "Released", "AskReleased", "AskRejected", "ApplicationUpdated", "NodeAccepted", "NodeRejected",
        "ApplicationAccepted", "ApplicationRejected", "StreamReopened", "StreamKind", "Update", "UpdateHandler",
        "devices_of",
    ),
    "Callbacks": (
        "CallbackHandler", "CallbackAttachment", "PredicatesQuestion", "PreemptionQuestion", "PreemptionNotice",
        "PreemptionWithdrawal", "NoticeReply", "SchedulingState", "Judgement",
    ),
    "Errors": (
        "ShimClientError", "CoreUnreachable", "RegistrationRefused", "RegistrationHeld", "ConnectionLost",
        "ResyncRequired", "Superseded", "StreamRefused", "NotSupported", "CallFailed", "CredentialsUnusable",
    ),
}  # fmt: skip
_INTRODUCTION: Final = """\
The Python library for authors of shims, generated from its sources. [Write a shim](../shim-author.md) leads through a
whole one.
"""
_ROLE: Final = re.compile(r":(?:class|meth|func|attr|mod|data|exc):`~?(?:[\w.]+\.)?(\w+)`")

_PARAMETER: Final = re.compile(r"\*(\w+)\*")
_TERM: Final = re.compile(r"^(\w+)  +(?=\S)", re.MULTILINE)


def page() -> str:
    """Markdown of the whole reference. Raises ValueError when a public name stands in no group."""
    if missing := set(shim_client.__all__).symmetric_difference(name for group in _GROUPS.values() for name in group):
        raise ValueError(f"the groups of the reference and shim_client.__all__ differ: {sorted(missing)}")
    lines = ["# shim_client", "", _INTRODUCTION, ""]
    for title, names in _GROUPS.items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += _entry(name, getattr(shim_client, name))
    return "\n".join(lines)


def _entry(name: str, subject: Any) -> Iterator[str]:
    yield from (f"### {name}", "")
    if not isinstance(subject, type):
        if callable(subject) and inspect.isfunction(subject):
            yield from _signed(name, subject)
        else:
            yield from (f"One of {escaped(_plain(str(subject)))}.", "")
        return
    yield from (_prose(subject), "")
    if issubclass(subject, Enum):
        yield from (
            *table("Value", "Meaning"),
            *(f"| `{value}` | {cell(text)} |" for value, text in members(subject).items()),
            "",
        )
    elif fields := _fields(subject):
        yield from (*table("Field", "Type", "Default"), *fields, "")
    elif not issubclass(subject, Exception):
        yield from _methods(name, subject)


def _fields(subject: type) -> list[str]:
    if not (is_dataclass(subject) or hasattr(subject, "_fields")):
        return []
    parameters = inspect.signature(subject).parameters.values()
    return [
        f"| `{one.name}` | {cell('`' + _plain(str(one.annotation)) + '`')} | {_default(one)} |" for one in parameters
    ]


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return ""
    empty = "factory" in repr(parameter.default) or "mappingproxy" in repr(parameter.default)
    return "empty" if empty else cell(f"`{parameter.default!r}`")


def _methods(name: str, subject: type) -> Iterator[str]:
    if "__init__" in vars(subject):
        yield from _signed(name, subject)
    for method, function in vars(subject).items():
        if not method.startswith("_") and (inspect.isfunction(function) or isinstance(function, classmethod)):
            yield from _signed(f"{name}.{method}", getattr(subject, method))


def _signed(name: str, function: Any) -> Iterator[str]:
    signature = inspect.signature(function)
    parameters = [one for one in signature.parameters.values() if one.name != "self"]
    bare = [one.replace(annotation=inspect.Parameter.empty, default=_shown(one.default)) for one in parameters]
    shown = str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    waits = (
        "await "
        if inspect.iscoroutinefunction(function)
        else "async for … in "
        if inspect.isasyncgenfunction(function)
        else ""
    )
    text = inspect.getdoc(function.__init__ if isinstance(function, type) else function) or ""
    yield from ("```python", f"{waits}{name}{shown}", "```", "", _markdown(text), "")


class _Named(str):
    """A default that shows as its name instead of its representation."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _shown(default: Any) -> Any:
    return _Named(f"{type(default).__name__}.{default.name}") if isinstance(default, Enum) else default


def _prose(subject: type) -> str:
    text = subject.__doc__ or ""
    # A dataclass and a named tuple without words of their own get their signature for a docstring.
    return "" if text.startswith(f"{subject.__name__}(") else _markdown(inspect.cleandoc(text))


def _markdown(text: str) -> str:
    """*text* with roles, parameters and double backticks as code, and lists of terms as lists; indented blocks stay."""
    coded = _PARAMETER.sub(r"`\1`", _ROLE.sub(r"`\1`", text)).replace("``", "`")
    return "\n\n".join(map(_paragraph, coded.split("\n\n")))


def _paragraph(text: str) -> str:
    if text.startswith("    "):
        return text
    return escaped(_TERM.sub(r"- `\1`: ", text))


def _plain(annotation: str) -> str:
    """An annotation without the modules that its names come from."""
    bare = re.sub(r"ForwardRef\('(.*)'\)", r"\1", annotation.strip("'"))
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", bare)


if __name__ == "__main__":
    print(page())
