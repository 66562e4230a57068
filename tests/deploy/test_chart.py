"""The Helm chart: rendered with a stand-in, and with Helm itself where it is installed."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from tests.deploy.go_templates import TemplateError, Templates
from tests.deploy.manifests import by_kind, check_deployment, check_texts

CHART = Path(__file__).resolve().parents[2] / "deploy/helm/kornel"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
PLAIN = {"tls": {"secretName": "kornel-tls"}, "security": {"tokensSecretName": "kornel-tokens"}}
EVERYTHING = {
    "fullnameOverride": "core",
    "image": {"repository": "registry.example.org/kornel", "digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "registry"}],
    "tls": {"secretName": "t", "demandClientCertificates": True, "probeSecretName": "p"},
    "security": {
        "tokensSecretName": "s",
        "oidc": {"issuer": "https://login.example.org", "audiences": ["kornel"], "jwks": "https://login.example.org/k"},
        "limits": {"calls-per-second": 100},
    },
    "extraArgs": ["--reserved-nodes=10", "--callback-timeout=2"],
    "extraEnv": [{"name": "KORNEL_HISTORY", "value": "off"}],
    "persistence": {"enabled": False},
    "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
    "serviceAccount": {"name": "given"},
    "networkPolicy": {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "monitoring"}},
    "podAnnotations": {"team": "platform"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "system-cluster-critical",
}
NO_POLICY = {**PLAIN, "networkPolicy": {"enabled": False}, "persistence": {"existingClaim": "mine"}}
VALUES = pytest.mark.parametrize("values", [PLAIN, EVERYTHING, NO_POLICY], ids=["plain", "everything", "other-claim"])


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """*above* over *below*, as Helm does it."""
    made = copy.deepcopy(below)
    for key, value in above.items():
        made[key] = merged(made[key], value) if isinstance(value, dict) and isinstance(made.get(key), dict) else value
    return made


def rendered(values: dict[str, Any]) -> dict[str, str]:
    """Text by file name, notes included."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    data = {
        "Values": merged(DEFAULTS, values),
        "Release": {"Name": "site", "Namespace": "sched", "Service": "Helm"},
        "Chart": {key[0].upper() + key[1:]: value for key, value in chart.items()},
    }
    templates = Templates({path.name: path.read_text() for path in sorted((CHART / "templates").iterdir())})
    return {path.name: templates.render(path.name, data) for path in (CHART / "templates").iterdir()}


def manifests(values: dict[str, Any]) -> dict[str, Any]:
    texts = [text for name, text in rendered(values).items() if name.endswith(".yaml")]
    return by_kind(document for text in texts for document in yaml.safe_load_all(text) if document)


@VALUES
def test_rendered_manifests_agree_with_each_other_and_with_the_program(values: dict[str, Any], tmp_path: Path) -> None:
    kinds = manifests(values)
    check_deployment(kinds)
    texts = kinds["ConfigMap"]["data"]
    check_texts(texts["queues.yaml"], texts["security.yaml"], tmp_path, tokens=True)


@VALUES
def test_helm_renders_the_same(values: dict[str, Any], tmp_path: Path) -> None:
    """Helm finds nothing to object to, and makes of the templates what the stand-in makes of them."""
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed")
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    subprocess.run([helm, "lint", "--strict", CHART, "--values", file], check=True, capture_output=True, text=True)
    command = [helm, "template", "site", CHART, "--namespace", "sched", "--kube-version", "1.30.0", "--values", file]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert by_kind(document for document in yaml.safe_load_all(done.stdout) if document) == manifests(values)


def test_a_core_without_certificate_is_not_rendered() -> None:
    with pytest.raises(TemplateError, match=r"tls\.secretName"):
        rendered({})
    with pytest.raises(TemplateError, match=r"tls\.probeSecretName"):
        rendered(merged(PLAIN, {"tls": {"demandClientCertificates": True}}))


def test_what_the_switches_turn_off_is_not_there() -> None:
    assert "ServiceMonitor" not in manifests(PLAIN)
    without = manifests(NO_POLICY)
    assert without.keys().isdisjoint({"NetworkPolicy", "PersistentVolumeClaim"})
    kinds = manifests(EVERYTHING)
    assert kinds.keys().isdisjoint({"PersistentVolumeClaim", "ServiceAccount"})
    assert kinds["Deployment"]["spec"]["template"]["spec"]["containers"][0]["image"].endswith("@sha256:" + "0" * 64)


def test_the_schema_takes_what_is_right_and_refuses_what_is_not() -> None:
    checker = jsonschema_rs.validator_for(SCHEMA)
    for values in (PLAIN, EVERYTHING, NO_POLICY):
        checker.validate(merged(DEFAULTS, values))
    for wrong in (
        {"tsl": {}},
        {"image": {"digest": "latest"}},
        {"service": {"grpcPort": "50051"}},
        {"networkPolicy": {"namespaceLabels": {"kornel.access": None}}, "log": {"level": "loud"}},
        {"persistence": {"size": "much"}},
    ):
        assert not checker.is_valid(merged(DEFAULTS, wrong)), wrong


def test_the_schema_knows_every_value() -> None:
    """A value that the schema does not name could not be set."""
    assert DEFAULTS.keys() | {"global"} == SCHEMA["properties"].keys()
    for name, value in DEFAULTS.items():
        known = SCHEMA["properties"][name]
        if not known.get("additionalProperties", True):
            assert value.keys() == known["properties"].keys()


def test_every_value_is_used() -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    for name, value in DEFAULTS.items():
        inner = SCHEMA["properties"][name].get("properties") if name != "queues" else None
        paths = [f"{name}.{key}" for key in value] if inner else [name]
        assert not [path for path in paths if f".Values.{path}" not in text]


def test_the_notes_say_where_it_serves() -> None:
    notes = rendered(PLAIN)["NOTES.txt"]
    assert "site-kornel.sched.svc:50051" in notes
    assert "kornel.access=granted" in notes
