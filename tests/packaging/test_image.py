"""The container image: built, started and asked for its health, where a container engine answers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kornel.cli.entry import read_health_options
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
BUILD_SECONDS = 600

pytestmark = pytest.mark.timeout(BUILD_SECONDS + 120)


def call(*command: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=seconds)


def succeed(*command: str, seconds: float = 60) -> str:
    done = call(*command, seconds=seconds)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def engine() -> str:
    """A container engine that answers; a client program without its daemon does not count."""
    reasons = []
    for name in ("docker", "podman"):
        if shutil.which(name) is None:
            reasons.append(f"{name} is not installed")
            continue
        # With a daemon out of reach, "info" prints the client's part and may still exit with 0.
        answer = call(name, "ps")
        if answer.returncode == 0:
            return name
        reasons.append(f"{name} does not answer: {answer.stderr.strip().splitlines()[-1:]}")
    pytest.skip("no container engine: " + "; ".join(reasons))


@pytest.fixture(scope="module")
def image(engine: str) -> Iterator[str]:
    tag = f"kornel-test:{uuid.uuid4().hex[:12]}"
    # podman writes no health check into its own default format.
    form = ["--format", "docker"] if engine == "podman" else []
    succeed(engine, "build", *form, "--tag", tag, ".", seconds=BUILD_SECONDS)
    yield tag
    call(engine, "rmi", "--force", tag)


@pytest.fixture
def container(engine: str, image: str) -> Iterator[str]:
    name = succeed(engine, "run", "--detach", "--read-only", "--tmpfs", "/tmp", image).strip()  # noqa: S108
    yield name
    call(engine, "rm", "--force", name)


def dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text()


def test_the_image_has_the_newest_python_that_we_test() -> None:
    """The newest that the classifiers name, by an exact version."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    newest = max(int(found[1]) for entry in classifiers if (found := re.search(r":: Python :: 3\.(\d+)$", entry)))
    base = re.search(r"^ARG BASE=python:3\.(\d+)\.\d+-slim", dockerfile(), re.MULTILINE)
    assert base is not None
    assert int(base[1]) == newest


def test_the_health_check_takes_the_short_way() -> None:
    """With further options `kornel health` would import gRPC, ten times as much work every ten seconds."""
    check = re.search(r"^HEALTHCHECK .*\\\n +CMD (\[.*\])$", dockerfile(), re.MULTILINE)
    assert check is not None
    program, *arguments = json.loads(check[1])
    assert program == "kornel"
    assert read_health_options(arguments, {"KORNEL_ADDRESS": "localhost:50051", "KORNEL_CA": "ca.pem"}) is not None


@pytest.mark.long
def test_no_python_of_the_image_has_pip(engine: str, image: str) -> None:
    """Neither that of Kornel nor the one below it, and none could be made from what is there."""
    for python in ("/opt/kornel/bin/python", "/usr/local/bin/python"):
        code = "import importlib.util as u; print([n for n in ('pip', 'ensurepip') if u.find_spec(n)])"
        assert succeed(engine, "run", "--rm", "--entrypoint", python, image, "-c", code).strip() == "[]"


@pytest.mark.long
def test_image_does_not_run_as_root(engine: str, image: str) -> None:
    """The user is numeric and not 0, so that a cluster's policy can check it."""
    config = json.loads(succeed(engine, "image", "inspect", image))[0]["Config"]
    user = config["User"].partition(":")[0]
    assert user.isdigit()
    assert int(user) > 0


@pytest.mark.long
def test_container_becomes_healthy(engine: str, container: str) -> None:
    """The core starts on a read-only file system and its own health check says that it serves."""
    health = ("kornel", "health", "--grpc", "127.0.0.1:50051")
    wait_until(
        lambda: call(engine, "exec", container, *health).returncode == 0,
        lambda: f"the core to serve: {succeed(engine, 'logs', container)}",
    )
