"""How tests are dealt out to workers (pytest-xdist, ``--dist loadscope``).

A file is one unit of work, so that what its tests share is made once. Files whose tests are costly and share nothing
are dealt out test by test: otherwise the end of the run would wait for the longest file.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

try:
    from xdist.scheduler import LoadScopeScheduling
except ImportError:  # One process does without it.
    LoadScopeScheduling = object

TEST_BY_TEST: Final = ("tests/conformance/", "tests/e2e/", "tests/properties/", "tests/unit/archive/")
FILE_BY_FILE: Final = ("tests/e2e/web/", "tests/e2e/security/test_client_commands", "tests/e2e/test_hostile_input")
"""Below the former, but their tests share a server."""


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Deals out files whole, or test by test where :data:`TEST_BY_TEST` says so."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(TEST_BY_TEST) and not nodeid.startswith(FILE_BY_FILE):
            return nodeid
        return nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling | None:
    """Replaces the mode ``loadscope``; the order of collection stays, in which what is costly comes first."""
    if config.getoption("dist") != "loadscope":
        return None
    config.option.loadscopereorder = False
    return FileScheduling(config, log)
