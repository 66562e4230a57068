"""What is allowed and hardly meant is warned of."""

from __future__ import annotations

import pytest

from kornel.core.config.loader import load
from tests.unit.config.reading import partition_text, queue, root


def warnings_of(*queues: object, **settings: object) -> list[str]:
    found = load(partition_text(root(*queues, **settings)))
    return [warning.message for warning in found.warnings]


@pytest.mark.parametrize(
    ("name", "meant"),
    [("Memory", "memory"), ("memory-mb", "memory"), ("mem", "memory"), ("cpu", "vcore"), ("VCORE", "vcore")],
)
def test_other_names_of_well_known_types(name: str, meant: str) -> None:
    (said,) = warnings_of(queue("a", m={name: "5"}), queue("b", m={name: "7"}))
    assert f"{name!r}" in said or name in said
    assert f"not the well-known type {meant!r}" in said


@pytest.mark.parametrize("name", ["vcore", "gpu", "nvidia.com/gpu", "pods", "ephemeral-storage", "memorable"])
def test_names_of_types_that_are_what_they_say(name: str) -> None:
    assert not warnings_of(queue("a", m={name: "500"}))


@pytest.mark.parametrize(
    ("text", "warned"), [("32768", True), ("32Gi", False), ("32768Mi", False), ("16777216", False)]
)
def test_memory_without_a_unit_is_bytes(text: str, warned: bool) -> None:
    said = warnings_of(queue("a", m={"memory": text}))
    assert bool(said) == warned
    assert not warned or "MiB are written 32768Mi" in said[0]


@pytest.mark.parametrize(
    ("acl", "warned"),
    [("admins", True), ("cluster-admins", True), ("data_team", True), (" admins", False), ("ann", False), ("*", False),
     ("ann admins", False), ("stevens", False)],
)  # fmt: skip
def test_administrators_that_were_meant_as_a_group(acl: str, warned: bool) -> None:
    said = warnings_of(queue("a", adminacl=acl))
    assert bool(said) == warned
    assert not warned or "groups come after a blank" in said[0]
