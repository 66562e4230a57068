"""The Go client as a module: an empty project gets it from a file proxy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.go.toolchain import BUILD_S, CLIENT, ROOT, find_go

SHIM: Final = """package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"{path}/fakecore"
	"{path}/kornel"
)

func main() {{
	core := fakecore.New()
	core.Serve()
	client, err := kornel.NewClient(kornel.Options{{
		Address: fakecore.Address, RMID: "rm", DialOptions: []grpc.DialOption{{core.Dialer()}},
	}})
	if err != nil {{
		panic(err)
	}}
	_, err = client.Register(context.Background(), kornel.Registration{{}})
	fmt.Println("registered:", err)
}}
"""


@pytest.mark.parametrize(
    ("repository", "path"),
    [
        ("", "kornel.internal/clients/go"),
        ("https://forge.example/Team/kornel/", "forge.example/Team/kornel/clients/go"),
    ],
)
def test_an_empty_project_gets_the_client(repository: str, path: str, tmp_path: Path) -> None:
    find_go()
    proxy, project = tmp_path / "proxy", tmp_path / "shim"
    packed = [publish(proxy, repository) for _ in range(2)]
    named, version = packed[0].split("@")
    assert named == path
    assert packed[1] == packed[0]
    fetch_modules_of_others()
    # What it depends on is there since the client was built, so nothing but the client itself has to be fetched anew.
    caches = [f"file://{proxy}", f"file://{ask_go('GOMODCACHE')}/cache/download", ask_go("GOPROXY")]
    environment = {
        **os.environ,
        "GOPROXY": ",".join(caches),
        "GOMODCACHE": str(tmp_path / "modules"),
        "GOSUMDB": "off",
        "GOWORK": "off",
        # Paths that are left out of what is compiled let the next run use it again.
        "GOFLAGS": "-modcacherw -trimpath -buildvcs=false",
    }

    def run(*arguments: str, fails: bool = False) -> str:
        command = ["go", *arguments]
        done = subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stdout + done.stderr

    project.mkdir()
    run("mod", "init", "example.org/shim")
    run("get", f"{path}/kornel")
    assert f"{path} {version}" in (project / "go.mod").read_text(encoding="utf-8")
    (project / "main.go").write_text(SHIM.format(path=path), encoding="utf-8")
    assert run("run", "-mod=mod", ".").splitlines()[-1] == "registered: <nil>"
    assert run("list", "-f", "{{.Name}}", f"{path}/kornel").split() == ["kornel"]
    # What only cores need cannot be imported.
    (project / "main.go").write_text(f'package main\n\nimport _ "{path}/internal/corev1"\n\nfunc main() {{}}\n')
    assert "use of internal package" in run("build", "-mod=mod", ".", fails=True)


def publish(proxy: Path, repository: str) -> str:
    """Returns the path and version under which the client is in the folder *proxy* afterwards."""
    done = subprocess.run(
        [sys.executable, CLIENT / "publish.py", proxy],
        env={**os.environ, "PYTHONPATH": str(ROOT), "KORNEL_REPOSITORY_URL": repository},
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def fetch_modules_of_others() -> None:
    """Has the machine's cache contain what the client depends on."""
    subprocess.run([find_go(), "mod", "download"], cwd=CLIENT, check=True, capture_output=True, timeout=BUILD_S)


def ask_go(variable: str) -> str:
    done = subprocess.run([find_go(), "env", variable], capture_output=True, text=True, timeout=BUILD_S, check=True)
    return done.stdout.strip()
