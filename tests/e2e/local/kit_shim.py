"""``python -m tests.e2e.local.kit_shim --core ADDRESS --folder FOLDER``: a server with jobs for the kit.

Each server has a directory of its own in FOLDER. The kit kills some of them, so whoever made FOLDER removes it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from kornel.shim_local.jobs.spec import JobSpec
from kornel.shim_local.jobs.store import JobStore
from kornel.shim_local.jobs.task import TaskState
from kornel.shim_local.machine.capacity import Capacity
from kornel.shim_local.program import run_program
from kornel.shim_local.server.settings import Settings

JOBS = 8


def main() -> None:
    """Submit jobs before the server starts, and run it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--core", required=True)
    parser.add_argument("--folder", required=True)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    store = JobStore(folder / "jobs.db")
    spec = JobSpec(("sleep", "20"), "/", {"PATH": os.environ["PATH"]}, "kit", queue="batch", vcore=1000)
    for _ in range(JOBS):
        store.add_job(spec, 1.0, TaskState.QUEUED, (-1,))
    store.close()
    raise SystemExit(run_program(Settings(folder, "this", Capacity(4000, 2**30, 0), core=options.core)))


if __name__ == "__main__":
    main()
