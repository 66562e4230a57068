"""A field of ``si.v1.Allocation`` that REST and the command line show takes five files: everything between takes it by
name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
CARRY: Final = Path(__file__).with_name("carry.py")
MOST_FILES: Final = 5

LINES: Final = {
    "proto/si/v1/si.proto": {"  PreemptionPolicy preemptionPolicy = 15;\n": "  string workClass = 16;\n"},
    "core/domain/commands.py": {"    originator: bool = False\n": '    work_class: str = ""\n'},
    "proto/kornel/v1/read.proto": {
        "  // Whether it was told to leave, to make room.\n  bool preempted = 8;\n": "  string work_class = 9;\n"
    },
    "core/telling/encoding/yunikorn/applications.py": {
        '        "originator": if_any(FLAG, "spec.originator"),\n': (
            '        "workClass": if_any(TEXT, "spec.work_class"),\n'
        )
    },
    "cli/text/cluster.py": {
        '        "allocation": lambda one: one.key,\n': '        "class": lambda one: one.work_class,\n',
    },
}
"""What a new field adds to which files, and behind what. ``make proto`` does the rest."""


def with_field(folder: Path) -> Path:
    """Returns *folder*, which holds a copy of the core with the toy field now."""
    shutil.copytree(ROOT / "kornel", folder / "kornel", symlinks=True)
    for name in ("core", "cli", "shared", "proto"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.pyc.*"))
    for name, added in LINES.items():
        path = folder / name
        text = path.read_text(encoding="utf-8")
        for before, line in added.items():
            assert before in text, f"{name} has no {before!r}"
            text = text.replace(before, before + line)
        path.write_text(text, encoding="utf-8")
    return folder


def run_python(folder: Path, script: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_field_is_carried_from_the_wire_to_rest_and_the_command_line(tmp_path: Path) -> None:
    """Requests, answers, journal, snapshots, REST with its schema, the core's own messages, and the command line."""
    assert len(LINES) <= MOST_FILES
    folder = with_field(tmp_path)
    run_python(folder, folder / "proto" / "generate.py")
    shown = json.loads(run_python(folder, CARRY))
    lines = shown.pop("command line").splitlines()
    assert shown == {
        "journal": ["gold", "gold"],
        "answer": "gold",
        "rest": ["gold", "gold"],
        "schema": ["workClass"],
        "message": "gold",
    }
    assert [line.split()[:2] for line in lines[-2:]] == [["allocation", "class"], ["small", "gold"]]
