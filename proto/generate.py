"""Generate the Python stubs that are committed beside the .proto files, or tell whether they are out of date.

``python proto/generate.py`` writes the stubs; ``--check`` writes nothing, prints what would change and exits
with 1 if anything would. protoc comes from grpcio-tools and the type stubs from mypy-protobuf, both at locked
versions, so the same .proto files give the same bytes everywhere.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import sysconfig
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Final

from grpc_tools import protoc

ROOT: Final = Path(__file__).resolve().parent
STUB_PATTERNS: Final = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def proto_files() -> list[str]:
    """Every .proto file of the contract, relative to ROOT: the names protoc puts into the stubs."""
    return sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/v*/*.proto"))


def generate(target: Path) -> None:
    """Write all stubs below *target*. Raises RuntimeError when protoc refuses the files."""
    # protoc looks for the mypy plugins on PATH, where they are not if the environment was never activated.
    scripts = sysconfig.get_path("scripts")
    os.environ["PATH"] = os.pathsep.join([scripts, os.environ.get("PATH", "")])
    arguments = [
        "protoc",
        f"--proto_path={ROOT}",
        f"--proto_path={files('grpc_tools') / '_proto'}",
        f"--python_out={target}",
        f"--grpc_python_out={target}",
        f"--mypy_out=quiet:{target}",
        f"--mypy_grpc_out=quiet:{target}",
        *proto_files(),
    ]
    if protoc.main(arguments) != 0:
        raise RuntimeError("protoc failed, see its messages above")
    for name, text in stubs(target).items():
        (target / name).write_text(_import_below_kornel(text), encoding="utf-8")


def _import_below_kornel(stub: str) -> str:
    """Returns *stub* for ``kornel.si.v1``, where the package lies; protoc takes it to be ``si.v1``, as the .proto
    does.
    """
    return stub.replace("from si.v1 import", "from kornel.si.v1 import").replace(
        "'si.v1.si_pb2'", "'kornel.si.v1.si_pb2'"
    )


def stubs(root: Path) -> dict[str, str]:
    """Text of every stub below *root*, by path relative to it."""
    paths = (path for pattern in STUB_PATTERNS for path in root.glob(f"*/v*/{pattern}"))
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def differences() -> list[str]:
    """Unified diff from the committed stubs to freshly generated ones. Empty: they are the same."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh = stubs(Path(scratch))
    committed = stubs(ROOT)
    diff: list[str] = []
    for name in sorted(fresh.keys() | committed.keys()):
        old = committed.get(name, "").splitlines(keepends=True)
        new = fresh.get(name, "").splitlines(keepends=True)
        diff += difflib.unified_diff(old, new, f"committed/{name}", f"generated/{name}")
    return diff


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate the Python stubs of the wire contract.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if stubs are stale")
    if parser.parse_args().check:
        diff = differences()
        sys.stdout.writelines(diff)
        if diff:
            print("The committed stubs do not match the .proto files. Run: make proto", file=sys.stderr)
        return 1 if diff else 0
    for stale in stubs(ROOT):
        (ROOT / stale).unlink()
    generate(ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
