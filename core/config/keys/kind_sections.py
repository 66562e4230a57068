"""Reads the sections of kinds of preemption below ``preemption``, as the kinds' records describe them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kornel.core.config.text.fields import Field
from kornel.core.domain.preemption_kinds import KINDS, Setting

Value = bool | int | float | str

SECTIONS: Final = tuple(kind.name for kind in KINDS if kind.section)
"""The keys of the sections, which are the names of the kinds."""


def read_sections(keys: Mapping[str, Field]) -> Mapping[str, Mapping[str, Value]]:
    """Returns the sections among *keys* by kind, with defaults for missing settings; a section that is not written is
    missing."""
    found: dict[str, Mapping[str, Value]] = {}
    for kind in KINDS:
        settings = kind.section
        if settings:
            fields = keys[kind.name].mapping(settings)
            if keys[kind.name].given:
                values = {key: _read(fields[key], setting) for key, setting in settings.items()}
                found[kind.name] = MappingProxyType(values)
    return MappingProxyType(found)


def _read(at: Field, setting: Setting) -> Value:
    default = setting.default
    if isinstance(default, bool):
        return at.boolean(default)
    if isinstance(default, str):
        return at.choice(setting.choices, default)
    if isinstance(default, int):
        return at.unsigned(default, least=setting.least)
    return at.number(default, most=setting.most)
