#!/usr/bin/env python3
"""Rehearses a release: a core is upgraded under a simulated cluster, and then the site goes back, in both ways.

    deploy/rehearse_release.py                  # from this tree to the same one with the next number
    deploy/rehearse_release.py --old v0.1.0     # from a tag, with the shims of that time, to this tree

It takes a minute, needs no network, and runs with the packages of the Python that starts it. The cluster has tasks
that stay, which nobody may touch, and others that come and go all the time. It exits with status 1, and says at which
step, if a core does not go on as docs/operations.md says.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PATIENCE_S: Final = 60.0
REPORTED_AGAIN: Final = "everything is reported again"
"""What the simulated cluster prints when a core does not know it."""
PYTHON: Final = (sys.executable, "-P", "-m")
SCENARIO: Final = """
name: rehearsal
queues: {partitions: [{name: default, queues: [{name: root, submitacl: "*", queues: [{name: a}]}]}]}
nodes: [{name: node, count: 4, resources: {vcore: 8}}]
applications:
  - id: steady
    queue: root.a
    tasks: [{name: task, count: 12, resources: {vcore: 1}, runtime: 24h}]
  - id: stream
    queue: root.a
    tasks: [{name: task, count: 100000, resources: {vcore: 1}, runtime: 2s, arrival: 4/s}]
timeout: 24h
"""


class RehearsalFailed(Exception):
    """A core or the cluster did not go on as it should."""


@dataclass(frozen=True)
class Version:
    """A tree in which one version lies, importable as ``kornel``, and what it calls itself."""

    tree: Path
    name: str

    def start(self, *arguments: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Starts a program of this version, by the name of its module, which writes to *log*."""
        return subprocess.Popen([*PYTHON, *arguments], env=self._environment(), stdout=log, stderr=log)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a program of this version, by the name of its module."""
        return subprocess.run(
            [*PYTHON, *arguments], env=self._environment(), capture_output=True, text=True, check=False
        )

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KORNEL_")}
        return kept | {"PYTHONPATH": str(self.tree)}


def say(text: str) -> None:
    print(text, flush=True)


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Waits until *condition* holds; raises :class:`RehearsalFailed` with *what* if it does not within a minute."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise RehearsalFailed(f"waited {PATIENCE_S:g} s for {what}")
        time.sleep(0.3)


def make_versions(folder: Path, old: str) -> tuple[Version, Version]:
    """Returns the version of the git reference *old*, or of this tree if that is empty, and the one that comes next."""
    trees = folder / "old", folder / "new"
    shutil.copytree(ROOT / "kornel", trees[1] / "kornel", ignore=shutil.ignore_patterns("__pycache__"))
    if old:
        trees[0].mkdir()
        archive = subprocess.run(["git", "archive", old], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", trees[0]], input=archive, check=True)
    else:
        shutil.copytree(trees[1], trees[0])
    if name_version(trees[0]) == name_version(trees[1]):
        raise_number(trees[1] / "kornel/__init__.py")
    return Version(trees[0], name_version(trees[0])), Version(trees[1], name_version(trees[1]))


def name_version(tree: Path) -> str:
    """Returns what the code in *tree* calls itself."""
    return Version(tree, "").run("kornel", "version").stdout.split()[1]


def raise_number(file: Path) -> None:
    """Gives the code the number of the next minor release, which is not released yet."""
    text = re.sub(
        r'(?m)^RELEASE = "(\d+)\.(\d+)\..*"$', lambda n: f'RELEASE = "{n[1]}.{int(n[2]) + 1}.0"', file.read_text()
    )
    file.write_text(re.sub('(?m)^RELEASED = ".*"$', 'RELEASED = ""', text))


class Site:
    """A core with a journal and a history in a state directory, and a simulated cluster of the old version at it."""

    def __init__(self, folder: Path, shim: Version) -> None:
        self.state = folder / "state"
        self.state.mkdir()
        self._folder = folder
        self._shim_version = shim
        self._address = f"unix:{folder}/core.sock"
        self._shim: subprocess.Popen[bytes] | None = None
        self._kept: dict[str, str] = {}

    @contextmanager
    def serve(self, version: Version, *options: str) -> Iterator[None]:
        """Runs a core of *version*, until it is ended with SIGTERM."""
        kept = ("--journal", str(self.state / "journal.db"), "--history", str(self.state / "history.db"))
        where = ("--grpc", self._address, "--rest-address", "off")
        with (self._folder / "core.log").open("ab") as log:
            core = version.start("kornel", "serve", *where, *kept, *options, log=log)
        try:
            wait_for(lambda: core.poll() is not None or self._is_served_by(version), f"version {version.name} to serve")
            if core.poll() is not None:
                raise RehearsalFailed(f"version {version.name} ended with status {core.returncode}")
            yield
            core.terminate()
            if core.wait(PATIENCE_S):
                raise RehearsalFailed(f"version {version.name} ended with status {core.returncode}")
        except RehearsalFailed as error:
            lines = (self._folder / "core.log").read_text(errors="replace").splitlines()
            raise RehearsalFailed("\n".join([str(error), *lines[-10:]])) from error
        finally:
            core.kill()
            core.wait()

    def _is_served_by(self, version: Version) -> bool:
        status = self.ask(version, "status")
        if status and status["core_version"] != version.name:
            raise RehearsalFailed(f"version {version.name} says that it is {status['core_version']}")
        return bool(status)

    def ask(self, version: Version, *words: str) -> dict[str, Any]:
        """Returns the answer of a command with ``--json``; an empty one if there is none yet."""
        answer = version.run("kornel", *words, "--json", "--core", self._address)
        return dict(json.loads(answer.stdout)) if answer.returncode == 0 else {}

    def drain(self, version: Version, node: str) -> None:
        """Has an operator drain *node*."""
        if not self.ask(version, "drain", "node", node):
            raise RehearsalFailed(f"{node} could not be drained")

    def start_cluster(self, version: Version) -> None:
        """Starts the cluster, and waits until its tasks that stay run."""
        (self._folder / "rehearsal.yaml").write_text(SCENARIO)
        with (self._folder / "cluster.log").open("wb") as log:
            run = ("run", str(self._folder / "rehearsal.yaml"), "--core", self._address, "--out", str(self._folder))
            self._shim = self._shim_version.start("kornel.shim_mock", *run, log=log)
        wait_for(lambda: len(self._find_steady(version)) == 12, "the first tasks to run")
        self._kept = self._find_steady(version)

    def stop_cluster(self) -> None:
        """Ends the cluster, if it runs."""
        if self._shim is not None:
            self._shim.kill()
            self._shim.wait()

    def count_reports(self) -> int:
        """Returns how often the cluster has reported everything again."""
        return (self._folder / "cluster.log").read_text(errors="replace").count(REPORTED_AGAIN)

    def check_going_on(self, version: Version, *drained: str) -> None:
        """Raises :class:`RehearsalFailed` unless every task that stays is where it was, the *drained* nodes are, and
        further tasks are placed."""
        wait_for(lambda: self._find_steady(version) == self._kept, "the tasks that stay to be where they were")
        before = self._find_newest(version)
        wait_for(lambda: self._find_newest(version) > before + 4, "further tasks to be placed")
        if self._find_steady(version) != self._kept:
            raise RehearsalFailed("tasks that stay were moved")
        [partition] = self.ask(version, "status")["partitions"]
        found = sorted(node["node_id"] for node in partition["drained_nodes"])
        if found != sorted(drained):
            raise RehearsalFailed(f"drained are {found}, and should be {sorted(drained)}")
        if self._shim is None or self._shim.poll() is not None:
            raise RehearsalFailed(f"the cluster ended:\n{(self._folder / 'cluster.log').read_text(errors='replace')}")
        out = ", ".join(found) or "none"
        say(f"   {len(self._kept)} tasks are where they were, new ones are placed, drained: {out}")

    def _find_steady(self, version: Version) -> dict[str, str]:
        return dict(self._find_allocations(version, "steady"))

    def _find_newest(self, version: Version) -> int:
        return max((int(key.rpartition("-")[2]) for key, _ in self._find_allocations(version, "stream")), default=-1)

    def _find_allocations(self, version: Version, application: str) -> list[tuple[str, str]]:
        found = self.ask(version, "apps", application).get("allocations", [])
        return [(one["key"], one["node_id"]) for one in found]


def rehearse(folder: Path, old: Version, new: Version) -> None:
    """Upgrades and goes back."""
    site = Site(folder, old)
    copy = folder / "copy"
    try:
        say(f"1. {old.name} serves")
        with site.serve(old):
            site.start_cluster(old)
            site.drain(old, "node-3")
            site.check_going_on(old, "node-3")
        shutil.copytree(site.state, copy)
        say(f"2. it ends; its state is copied; {new.name} goes on from it")
        with site.serve(new):
            site.check_going_on(new, "node-3")
            if site.count_reports():
                raise RehearsalFailed("the cluster had to report again after the upgrade")
            site.drain(new, "node-2")
            site.check_going_on(new, "node-2", "node-3")
        upgraded = folder / "upgraded"
        site.state.rename(upgraded)
        shutil.copytree(copy, site.state)
        say(f"3. back: {old.name} goes on from the copy, and the cluster reports again")
        with site.serve(old):
            wait_for(lambda: site.count_reports() == 1, "the cluster to report again")
            site.check_going_on(old, "node-3")
        shutil.rmtree(site.state)
        upgraded.rename(site.state)
        say(f"4. or back without a copy: {old.name} with --journal-afresh, and the cluster reports again")
        with site.serve(old, "--journal-afresh"):
            wait_for(lambda: site.count_reports() == 2, "the cluster to report again")
            site.check_going_on(old)
    finally:
        site.stop_cluster()


def main() -> int:
    """Rehearses; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", default="", metavar="TAG", help="what is upgraded. [default: this tree]")
    with tempfile.TemporaryDirectory(prefix="kornel-rehearsal-") as scratch:
        try:
            rehearse(Path(scratch), *make_versions(Path(scratch), parser.parse_args().old))
        except RehearsalFailed as error:
            say(f"FAILED: {error}")
            return 1
    say("PASSED")
    return 0


if __name__ == "__main__":
    sys.exit(main())
