"""The programs of the page about workers, as they stand there, with Dask and Ray themselves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.local.harness import ROOT, Local
from tests.patience import PATIENCE_S
from tests.ports import reserve_port
from tests.waiting import wait_until

SECTIONS: Final = (ROOT / "docs" / "workers.md").read_text(encoding="utf-8").split("\n## ")
ANSWER: Final = str(sum(number * number for number in range(60)))
BIN: Final = Path(sys.executable).parent


def run_program(local: Local, framework: str, address: str = "") -> str:
    """Returns what the program about *framework* prints, with the *address* of this machine in place of the page's."""
    if find_spec("distributed" if framework == "Dask" else "ray") is None:
        pytest.skip(f"{framework} is not installed")
    [section] = [each for each in SECTIONS if each.startswith(framework)]
    [program] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    script = local.folder.parent / "program.py"
    script.write_text(program.replace("127.0.0.1:6379", address), encoding="utf-8")
    environment = {
        **os.environ,
        "KORNEL_LOCAL_STATE": str(local.folder),
        "PYTHONPATH": str(ROOT),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=script.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "distributed." not in done.stderr
    return done.stdout


def test_dask(local: Local) -> None:
    assert run_program(local, "Dask").splitlines()[-1] == ANSWER
    assert {each["state"] for each in local.wait("1")} == {"cancelled"}


@pytest.fixture
def ray_folder() -> Iterator[Path]:
    """A folder with a short name, because Ray has its sockets there."""
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_ray(local: Local, ray_folder: Path) -> None:
    """The head is a job as well, so that nothing of it is left."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    port = reserve_port()
    head = ["--head", "--num-cpus", "0", "--port", str(port), "--temp-dir", str(ray_folder), "--block"]
    path = {"PATH": f"{BIN}:{os.environ['PATH']}", "RAY_USAGE_STATS_ENABLED": "0", "HOME": str(ray_folder)}
    # By default its workers may take the ports that tests reserve.
    head += ["--min-worker-port", "0", "--max-worker-port", "0", "--ray-client-server-port", str(reserve_port())]
    local.submit(str(BIN / "ray"), "start", *head, "--include-dashboard", "false", environment=path)
    wait_until(lambda: "Ray runtime started" in local.read_log("1"), lambda: local.read_log("1"))
    assert run_program(local, "Ray", f"127.0.0.1:{port}").splitlines()[-1] == ANSWER
    assert {each["state"] for each in local.wait("2")} == {"cancelled"}
    local.request("cancel", names=["1"])
    local.wait("1")
