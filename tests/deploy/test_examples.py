"""The sample configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from kornel.core.config import loader

FOLDER = Path(__file__).resolve().parents[2] / "deploy/examples"
EXAMPLES = sorted(FOLDER.glob("*.yaml"))


def test_there_is_an_example_for_each_kind_of_site() -> None:
    assert {path.stem for path in EXAMPLES} == {"gangs", "multi-tenant", "preemption", "small-site"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_loads_without_a_warning(path: Path) -> None:
    configuration = loader.load(path.read_text())
    assert configuration.warnings == ()
    assert [partition.name for partition in configuration.partitions] == ["default"]
