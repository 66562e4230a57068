"""The rehearsal of a release: an upgrade of a core under a cluster, and both ways back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
def test_a_core_is_upgraded_and_both_ways_lead_back() -> None:
    """Tasks that run stay; what operators did is as at the copy, or gone."""
    script = [sys.executable, str(ROOT / "deploy/rehearse_release.py")]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line.rpartition("drained: ")[2] for line in done.stdout.splitlines() if "drained: " in line]
    assert said == ["node-3", "node-3", "node-2, node-3", "node-3", "none"]
