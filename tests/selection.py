"""Which tests run when nobody names them: not those marked ``long`` or ``alone``, and not the folders below."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

FOLDERS_LEFT_OUT: Final = tuple(
    Path(__file__).parent / name for name in ("hostile", "go", "kubernetes", "stubs", "frameworks")
)
LEFT_OUT: Final = ("long", "alone")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out folders with a command of their own, unless one of them or a part of it is named."""
    if collection_path not in FOLDERS_LEFT_OUT:
        return None
    return None if any(path.is_relative_to(collection_path) for path in _named_paths(config)) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is marked, unless its file is named or ``-m`` chooses."""
    if config.option.markexpr:
        return
    files = {path for path in _named_paths(config) if path.is_file()}
    left_out = [
        item for item in items if item.path not in files and any(item.get_closest_marker(marker) for marker in LEFT_OUT)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        skipped = set(left_out)
        items[:] = [item for item in items if item not in skipped]


def _named_paths(config: pytest.Config) -> list[Path]:
    return [Path(argument.partition("::")[0]).resolve() for argument in config.args]
