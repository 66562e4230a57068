"""Plants faults one after the other in a copy of the tree, and says which are found: ``python -m tests.planted [NAME
...]``."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.planted import ROOT, Fault, read_faults

LEFT_OUT: Final = shutil.ignore_patterns(".*", "build", "dist", "__pycache__")
FAILED: Final = 1
"""What pytest returns if a test failed; it returns other numbers if it could not run any."""


def run_tests(tree: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs *tests* below *tree* until one fails."""
    # Nothing compiled is kept, because a file that changes twice in a second would be taken for the same.
    command = [sys.executable, "-B", "-m", "pytest", "-qx", "-p", "no:cacheprovider", "--timeout=60", *tests]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


def is_found(tree: Path, fault: Fault) -> bool:
    """Tells whether the test of *fault* fails if it is planted in *tree*, and takes it out again."""
    file = tree / fault.path
    sound = file.read_text(encoding="utf-8")
    file.write_text(fault.plant_in(sound), encoding="utf-8")
    try:
        return run_tests(tree, [fault.node_id]).returncode == FAILED
    finally:
        file.write_text(sound, encoding="utf-8")


def main(names: Sequence[str]) -> int:
    """Plants the faults called *names*, or all. Returns 1 if one is not found, or a test fails without any."""
    faults = [fault for fault in read_faults() if not names or fault.name in names]
    if unknown := set(names) - {fault.name for fault in faults}:
        print(f"no fault is called {', '.join(sorted(unknown))}")
        return 1
    missed, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, symlinks=True, ignore=LEFT_OUT)
        sound = run_tests(tree, list(dict.fromkeys(fault.node_id for fault in faults)))
        if sound.returncode:
            print(f"{sound.stdout}{sound.stderr}\na test fails although nothing is planted")
            return 1
        for fault in faults:
            found = is_found(tree, fault)
            missed += not found
            print(f"{'found' if found else 'NOT FOUND':<10} {fault.name:<28} {fault.test}", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} faults found in {time.monotonic() - began:.0f} s")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
