"""The conformance kit for shims judges the server."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from kornel.conformance.outcome import Verdict
from kornel.conformance.shim.checks import select_checks
from kornel.conformance.shim.runner import judge_shim
from kornel.conformance.shim.stage import Patience
from tests.patience import PATIENCE_S
from tests.prepared import python

ROOT = Path(__file__).parents[3]
PATIENCE = Patience(start_s=PATIENCE_S, deadline_s=PATIENCE_S, settle_s=0.3, watch_s=4.0)


async def test_the_server_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does all that a shim without gangs can do."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(ROOT)
    # The path of a socket has room for a short folder only.
    with tempfile.TemporaryDirectory(prefix="kornel-local-") as folder:
        command = [python(), "-m", "tests.e2e.local.kit_shim", "--core", "{address}", "--folder", folder]
        results = await judge_shim(command, select_checks(), PATIENCE)
    failed = {result.case.id: result.reason for result in results if result.verdict is Verdict.FAIL}
    assert not failed
    unseen = [result.case.id for result in results if result.verdict is Verdict.UNSEEN]
    assert unseen == ["S8", "S9", "S29", "S34", "S35"]
