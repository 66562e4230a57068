"""What a package index shows of Kornel: built by the project's own hook, as a build calls it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from email import message_from_string
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REPOSITORY = "https://example.org/site/kornel"
LINK = re.compile(r"\]\(([^)]+)\)")


def metadata() -> Message:
    """The metadata of a wheel, as hatchling writes it."""
    from hatchling.metadata.spec import construct_metadata_file_2_4  # noqa: PLC0415

    return message_from_string(construct_metadata_file_2_4(ProjectMetadata(str(ROOT), PluginManager())))


def test_links_of_the_readme_lead_to_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each to a file that the checkout has; and the index links repository, documentation, changes and issues."""
    monkeypatch.setenv("KORNEL_REPOSITORY_URL", f"{REPOSITORY}/")
    built = metadata()
    links = LINK.findall(str(built.get_payload()))
    assert len(links) > 20
    for link in links:
        form = "raw" if link.endswith(".png") else "blob"
        assert link.startswith(f"{REPOSITORY}/{form}/HEAD/")
        assert (ROOT / link.removeprefix(f"{REPOSITORY}/{form}/HEAD/").partition("#")[0]).exists(), link
    assert f"![The web page of a core whose cluster is full]({REPOSITORY}/raw/HEAD/" in str(built.get_payload())
    urls = dict(entry.split(", ", 1) for entry in built.get_all("Project-URL", []))
    assert urls.keys() == {"Repository", "Documentation", "Changelog", "Issues"}
    assert all(url.startswith(REPOSITORY) for url in urls.values())


def test_without_a_repository_no_link_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of the links stay."""
    monkeypatch.delenv("KORNEL_REPOSITORY_URL", raising=False)
    built = metadata()
    text = str(built.get_payload())
    assert not LINK.findall(text)
    assert "The web page of a core" not in text
    assert "Getting started" in text
    assert built.get_all("Project-URL") is None
    assert built["Description-Content-Type"].startswith("text/markdown")


def test_classifiers_name_the_versions_that_are_allowed() -> None:
    named = [entry.rpartition(" ")[2] for entry in PROJECT["classifiers"] if ":: Python :: 3." in entry]
    assert named == ["3.11", "3.12", "3.13"]
    assert all(version in SpecifierSet(PROJECT["requires-python"]) for version in named)
    assert "3.10" not in SpecifierSet(PROJECT["requires-python"])


def test_the_client_of_shims_takes_grpc_and_protobuf_alone() -> None:
    """Who writes a shim may leave out everything else that the distribution asks for."""
    code = """
import sys
# gRPC imports these if they are there.
sys.modules.update({name: None for name in ("grpc_tools", "grpc_health", "grpc_reflection")})
import kornel.shim_client, kornel.si.v1.si_pb2_grpc
parts = [name.split(".") for name, module in sys.modules.items() if getattr(module, "__file__", None)]
names = {".".join(part[: 2 if part[0] == "google" else 1]) for part in parts}
print(*names - sys.stdlib_module_names)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert {"kornel", "grpc", "google.protobuf"} <= found
    # typing_extensions is asked for by grpcio; the underscores are of the interpreter and of an editable installation.
    assert {name for name in found if not name.startswith(("_", "google._upb"))} == {
        "kornel",
        "grpc",
        "google.protobuf",
    } | ({"typing_extensions"} & found)
