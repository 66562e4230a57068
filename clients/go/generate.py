"""Generates the Go stubs of ``kornel.v1`` that are committed here, or tells whether they are out of date.

The stubs are in package ``kornelv1``, except for those of the files that no shim needs: what a core stores, and the
clock of tests. These are in a package below ``internal``, which programs of others cannot import.

``python clients/go/generate.py`` writes the stubs; ``--check`` writes nothing, prints what would change and exits with
1 if anything would. The plugins are run by Go at the versions below, protoc is buf's, so the same .proto files give the
same bytes everywhere. For ``si.v1`` nothing is generated: its stubs are those of the interface's own Go package,
because a program that links upstream's shim cannot hold the same messages twice.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

MODULE: Final = Path(__file__).resolve().parent
ROOT: Final = MODULE.parent.parent
PATH: Final = (MODULE / "go.mod").read_text(encoding="utf-8").split(maxsplit=2)[1]
"""The path of the module, which begins the paths of its packages."""
PACKAGES: Final = ("kornelv1", "internal/corev1")
INTERNAL: Final = ("journal", "snapshot", "test_clock")
"""The .proto files whose stubs are in the second package; those of all others are in the first."""
INTERFACE: Final = "github.com/apache/yunikorn-scheduler-interface/lib/go/si"
PLUGINS: Final = (
    "google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.8",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1",
)


def generate_stubs(target: Path) -> None:
    """Writes all stubs below *target*. Raises RuntimeError when a program is missing or refuses the files."""
    for program in ("buf", "go"):
        if shutil.which(program, path=_search_path()) is None:
            raise RuntimeError(f"{program} is not installed")
    proto = ROOT / "proto"
    files = sorted(path.relative_to(proto).as_posix() for path in proto.glob("kornel/v*/*.proto"))
    packages = {name: PACKAGES[Path(name).stem in INTERNAL] for name in files}
    # The file names a Go package too, which would go before the last element of the path.
    options = [f"M{name}={PATH}/{package};{Path(package).name}" for name, package in packages.items()]
    options += [f"Msi/v1/si.proto={INTERFACE};si", f"module={PATH}"]
    template = {
        "version": "v2",
        "plugins": [{"local": ["go", "run", plugin], "out": str(target), "opt": options} for plugin in PLUGINS],
    }
    command = ["buf", "generate", "--template", json.dumps(template), "--path", str(proto / "kornel")]
    # The plugins have modules of their own, so the go.mod of this folder must not decide their versions.
    environment = {**os.environ, "PATH": _search_path(), "GOFLAGS": "-mod=mod", "GOWORK": "off"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"buf generate failed: {done.stderr.strip()}")


def list_differences() -> list[str]:
    """Returns a unified diff from the committed stubs to freshly generated ones; empty if they are the same."""
    with tempfile.TemporaryDirectory() as scratch:
        generate_stubs(Path(scratch))
        fresh = _read_stubs(Path(scratch))
    committed = _read_stubs(MODULE)
    diff: list[str] = []
    for name in sorted(fresh.keys() | committed.keys()):
        old = committed.get(name, "").splitlines(keepends=True)
        new = fresh.get(name, "").splitlines(keepends=True)
        diff += difflib.unified_diff(old, new, f"committed/{name}", f"generated/{name}")
    return diff


def _read_stubs(folder: Path) -> dict[str, str]:
    paths = [path for package in PACKAGES for path in (folder / package).glob("*.pb.go")]
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def _search_path() -> str:
    # buf is installed in the environment of the tools, which need not be activated.
    return os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])


def main() -> int:
    """Writes or compares the stubs, as the command line says."""
    parser = argparse.ArgumentParser(description="Generate the Go stubs of kornel.v1.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if stubs are stale")
    try:
        if parser.parse_args().check:
            diff = list_differences()
            sys.stdout.writelines(diff)
            if diff:
                print("The committed Go stubs do not match the .proto files. Run: make proto-go", file=sys.stderr)
            return 1 if diff else 0
        with tempfile.TemporaryDirectory() as scratch:
            generate_stubs(Path(scratch))
            for stale in _read_stubs(MODULE):
                (MODULE / stale).unlink()
            for name, text in _read_stubs(Path(scratch)).items():
                (MODULE / name).parent.mkdir(parents=True, exist_ok=True)
                (MODULE / name).write_text(text, encoding="utf-8")
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
