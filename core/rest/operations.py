"""Descriptions of routes for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

JSON_TYPE: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One query parameter. ``schema``: the schema of its decoded text."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    required: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path.

    identity  unique name, for generated clients
    answer    schema of a successful answer; ``None``: the answer is not JSON
    errors    other statuses that the handler gives, with what they mean
    content   media types of a successful answer
    body      media type of the request's body; empty: it has none
    status    status of a successful answer
    wanted    schema of the request's body
    """

    identity: str
    tag: str
    summary: str
    answer: Mapping[str, Any] | None
    parameters: tuple[Parameter, ...] = ()
    errors: Mapping[int, str] = field(default_factory=dict)
    content: tuple[str, ...] = (JSON_TYPE,)
    body: str = ""
    status: int = 200
    wanted: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
