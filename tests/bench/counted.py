"""Counted instructions as a benchmark: counted in a fresh interpreter, kept as a baseline, printed as a command.

The counts depend on the code and on the minor version of Python only (hash seed 0), so each version has its own
baseline.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kornel.shim_mock.load.workload import Workload

ROOT: Final = Path(__file__).parents[2]
VERSION: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The version of Python whose baseline counts."""

Counts = dict[str, dict[str, float]]
"""Instructions per ask, by workload and part."""


@dataclass(frozen=True)
class CountedBench:
    """A benchmark of :mod:`tests.bench` that counts instructions: ``python -m tests.bench.<name>``."""

    name: str
    workloads: Mapping[str, Workload]
    per_ask: Callable[[Workload], dict[str, float]]
    functions_table: Callable[[Workload], str]

    @property
    def path(self) -> Path:
        """The file of the committed baselines."""
        return Path(__file__).with_name(f"{self.name}.json")

    def measure(self) -> Counts:
        """Returns the instructions per ask of each workload, counted in a fresh interpreter with hash seed 0."""
        done = subprocess.run(
            [sys.executable, "-m", f"tests.bench.{self.name}"],
            env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        found: Counts = json.loads(done.stdout)
        return found

    def read_baselines(self) -> dict[str, Counts]:
        """Returns the committed counts by minor version of Python."""
        known: dict[str, Counts] = json.loads(self.path.read_text()) if self.path.exists() else {}
        return known

    def record_baseline(self) -> None:
        """Makes the present counts the baseline of this version of Python."""
        known = self.read_baselines()
        known[VERSION] = self.measure()
        ordered = {version: known[version] for version in sorted(known)}
        self.path.write_text(json.dumps(ordered, indent=2) + "\n")

    def run_command(self, about: str | None) -> None:
        """Does what the command line says; *about* is the text of its help."""
        parser = argparse.ArgumentParser(prog=f"python -m tests.bench.{self.name}", description=about)
        parser.add_argument("--record", action="store_true", help="write the baseline of this version of Python")
        parser.add_argument("--functions", choices=list(self.workloads), help="print each function's share in this one")
        given = parser.parse_args()
        with suppress(BrokenPipeError):
            if given.record:
                self.record_baseline()
            elif given.functions:
                print(self.functions_table(self.workloads[given.functions]))
            else:
                counts = {name: self.per_ask(workload) for name, workload in self.workloads.items()}
                print(json.dumps(counts, indent=2))
