"""Programs keep gRPC's own log lines from standard error, unless the user asks for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kornel.shim_local.machine.launcher import program_environment
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
SHOWN = "import os, sys; import {module}; {start} print('grpc' in sys.modules, os.environ.get('GRPC_VERBOSITY'))"
PROGRAMS = {
    "kornel.shim_mock": "",
    "kornel.conformance": "",
    "kornel.cli.entry": (
        "import types; sys.modules['kornel.cli.app'] = types.SimpleNamespace(run_app=lambda: None);"
        " kornel.cli.entry.main();"
    ),
}


@pytest.mark.parametrize("module", PROGRAMS)
@pytest.mark.parametrize(("given", "in_force"), [(None, "ERROR"), ("INFO", "INFO")])
def test_grpc_is_quiet_before_it_is_imported(module: str, given: str | None, in_force: str) -> None:
    """gRPC reads the variable when it is imported."""
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    environment |= {"PYTHONPATH": str(ROOT)} | ({} if given is None else {"GRPC_VERBOSITY": given})
    program = SHOWN.format(module=module, start=PROGRAMS[module])
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert done.stdout.split() == ["False", in_force]


def test_programs_that_a_local_server_starts_are_quiet_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their standard error is a log."""
    monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
    assert program_environment()["GRPC_VERBOSITY"] == "ERROR"
    monkeypatch.setenv("GRPC_VERBOSITY", "DEBUG")
    assert program_environment()["GRPC_VERBOSITY"] == "DEBUG"


def test_grpc_leaves_copies_of_a_core_alone_whatever_the_environment_says() -> None:
    """It would abort them. Who serves a core from a shell where other programs want it otherwise notices nothing."""
    program = PROGRAMS["kornel.cli.entry"] + " import os; print(os.environ['GRPC_ENABLE_FORK_SUPPORT'])"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; import kornel.cli.entry; {program}"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "GRPC_ENABLE_FORK_SUPPORT": "1"},
        capture_output=True, text=True, check=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.stdout.strip() == "false"
