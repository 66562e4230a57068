"""Writes the Go client as a module into a folder from which ``go get`` takes it: a file proxy, or what a mirror serves.

``python clients/go/publish.py FOLDER`` prints the path and version under which the module is there. The path is below
the address that KORNEL_REPOSITORY_URL names (``https://forge.example/team/kornel``). Where the variable is not set, the
path is the one in go.mod, whose domain nobody can own: no forge serves it, and no stranger either, only a proxy that
was given it.

The same sources give the same bytes. A module that is no release has a digest of its content in its version.
"""

from __future__ import annotations

import argparse
import os
import re
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Final

import kornel

MODULE: Final = Path(__file__).resolve().parent
ROOT: Final = MODULE.parent.parent
VARIABLE: Final = "KORNEL_REPOSITORY_URL"


def find_path(committed: str, repository: str) -> str:
    """Returns the path of the module for the address of a repository, which is empty where there is none."""
    address = re.sub("^[a-z]+://", "", repository).strip("/")
    return f"{address}/{MODULE.relative_to(ROOT).as_posix()}" if address else committed


def read_module(committed: str, path: str) -> dict[str, bytes]:
    """Returns the files of the module by name, with *path* in the place of the *committed* one."""
    names = [*sorted(MODULE.glob("**/*.go")), *(MODULE / name for name in ("go.mod", "go.sum", "README.md"))]
    files = {each.relative_to(MODULE).as_posix(): each.read_bytes() for each in names}
    files = {name: text.replace(committed.encode(), path.encode()) for name, text in files.items()}
    return files | {"LICENSE": (ROOT / "LICENSE").read_bytes()}


def find_version(files: dict[str, bytes]) -> str:
    """Returns the version of the module that consists of these files."""
    if kornel.RELEASED:
        return f"v{kornel.RELEASE}"
    digest = sha256(b"".join(b"%b\0%d\0%b" % (name.encode(), len(text), text) for name, text in files.items()))
    return f"v{kornel.RELEASE}-dev.s{digest.hexdigest()[:8]}"


def write_module(folder: Path, path: str, version: str, files: dict[str, bytes]) -> None:
    """Writes what the protocol of module proxies serves of one version."""
    # In the protocol a capital is an exclamation mark and the small letter.
    versions = folder / re.sub("[A-Z]", lambda capital: f"!{capital[0].lower()}", path) / "@v"
    versions.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(versions / f"{version}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            # Without a time, the earliest that there is.
            archive.writestr(zipfile.ZipInfo(f"{path}@{version}/{name}"), text, zipfile.ZIP_DEFLATED)
    (versions / f"{version}.mod").write_bytes(files["go.mod"])
    (versions / f"{version}.info").write_text(f'{{"Version": "{version}"}}', encoding="utf-8")
    listed = versions / "list"
    known = set(listed.read_text(encoding="utf-8").split()) if listed.exists() else set()
    listed.write_text("".join(f"{each}\n" for each in sorted(known | {version})), encoding="utf-8")


def main() -> None:
    """Writes the module into the folder that the command line names."""
    parser = argparse.ArgumentParser(description="Write the Go client as a module that go get takes from a folder.")
    parser.add_argument("folder", type=Path, help="the folder of a file proxy; it may contain other modules")
    folder = parser.parse_args().folder
    committed = (MODULE / "go.mod").read_text(encoding="utf-8").split(maxsplit=2)[1]
    path = find_path(committed, os.environ.get(VARIABLE, ""))
    files = read_module(committed, path)
    version = find_version(files)
    write_module(folder, path, version, files)
    print(f"{path}@{version}")


if __name__ == "__main__":
    main()
