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
STANDBY = FOLDER.with_name("kubernetes-standby")


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


def patched() -> list[dict[str, Any]]:
    """The manifests of deploy/kubernetes-standby: those of deploy/kubernetes with its patches."""
    kustomization = yaml.safe_load((STANDBY / "kustomization.yaml").read_text())
    base, *own = kustomization["resources"]
    assert (STANDBY / base).resolve() == FOLDER
    found = manifests(commented=False) + [yaml.safe_load((STANDBY / name).read_text()) for name in own]
    for patch in kustomization["patches"]:
        [target] = [one for one in found if (one["kind"], one["metadata"]["name"]) == tuple(patch["target"].values())]
        changes = yaml.safe_load(patch["patch"])
        if isinstance(changes, dict):
            assert changes.pop("$patch") == "delete"
            found.remove(target)
        else:
            for change in changes:
                apply_change(target, change)
    return found


def apply_change(document: dict[str, Any], change: dict[str, Any]) -> None:
    """As much of JSON Patch as is used. A path that leads nowhere fails."""
    *above, last = change["path"].strip("/").split("/")
    place: Any = document
    for part in above:
        place = place[int(part)] if isinstance(place, list) else place[part]
    if isinstance(place, list) and change["op"] == "add":
        assert last == "-"
        place.append(change["value"])
        return
    key: Any = int(last) if isinstance(place, list) else last
    if change["op"] == "replace":
        assert isinstance(place, list) or key in place
        # Whatever has a name stays what it is, so that a patch does not hit its neighbour.
        if isinstance(place, list):
            assert place[key]["name"] == change["value"]["name"]
    else:
        assert change["op"] == "add"
    place[key] = change["value"]


def test_two_cores_share_a_database() -> None:
    kinds = by_kind(patched())
    check_deployment(kinds)
    assert kinds["Deployment"]["spec"]["replicas"] == 2
    assert {port["port"] for rule in kinds["NetworkPolicy"]["spec"]["egress"] for port in rule["ports"]} == {5432, 53}


@pytest.mark.parametrize("folder", [FOLDER, STANDBY], ids=lambda folder: folder.name)
def test_kustomize_builds_them(folder: Path) -> None:
    kustomize = shutil.which("kustomize")
    if kustomize is None:
        pytest.skip("kustomize is not installed")
    done = subprocess.run([kustomize, "build", folder], capture_output=True, text=True, check=True)
    built = by_kind(yaml.safe_load_all(done.stdout))
    check_deployment(built)
    assert {document["metadata"].get("namespace", "kornel") for document in built.values()} == {"kornel"}
    assert set(built["ConfigMap"]["data"]) == {"queues.yaml", "security.yaml"}
