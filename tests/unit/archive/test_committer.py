"""The process that writes the history, as far as its surroundings go."""

from __future__ import annotations

import subprocess
import sys

REFUSED = """
import os, sys
from kornel.core.service.machine import helpers

def refuse(increment):
    raise PermissionError(1, "Operation not permitted")

os.nice = refuse
sys.argv[1:] = ['kornel.core.archive.committer']
helpers.main()
"""


def test_a_sandbox_may_refuse_a_lower_priority() -> None:
    """It works all the same; here it ends because the core is gone before it said anything."""
    done = subprocess.run(
        [sys.executable, "-c", REFUSED], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
