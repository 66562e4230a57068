"""The plain manifests of deploy/kubernetes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import by_kind, check_deployment, check_texts

FOLDER = Path(__file__).resolve().parents[2] / "deploy/kubernetes"


def manifests(*, commented: bool = True) -> list[dict[str, Any]]:
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    names = [*listed, "servicemonitor.yaml"] if commented else listed
    return [yaml.safe_load((FOLDER / name).read_text()) for name in names]


def test_the_manifests_agree_with_each_other_and_with_the_program() -> None:
    check_deployment(by_kind(manifests()))


def test_every_file_of_the_folder_is_used() -> None:
    """Nothing lies about that kustomize does not read, the one for the Prometheus operator aside."""
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    present = {path.name for path in FOLDER.glob("*.yaml")}
    assert present == {*listed, "servicemonitor.yaml", "kustomization.yaml"}


def test_configuration_and_security_file_load_where_they_are_mounted(tmp_path: Path) -> None:
    [generated] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["configMapGenerator"]
    texts = {Path(name).name: (FOLDER / name).read_text() for name in generated["files"]}
    check_texts(texts["queues.yaml"], texts["security.yaml"], tmp_path, tokens=True)
    volumes = by_kind(manifests())["Deployment"]["spec"]["template"]["spec"]["volumes"]
    assert {"name": "config", "configMap": {"name": generated["name"]}} in volumes


def test_kustomize_builds_them() -> None:
    kustomize = shutil.which("kustomize")
    if kustomize is None:
        pytest.skip("kustomize is not installed")
    done = subprocess.run([kustomize, "build", FOLDER], capture_output=True, text=True, check=True)
    built = by_kind(yaml.safe_load_all(done.stdout))
    check_deployment(built)
    assert {document["metadata"].get("namespace", "kornel") for document in built.values()} == {"kornel"}
    assert set(built["ConfigMap"]["data"]) == {"queues.yaml", "security.yaml"}
