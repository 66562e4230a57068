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
IMAGE = {"image": {"repository": "registry.example.org/kornel"}}
PLAIN = {**IMAGE, "tls": {"secretName": "kornel-tls"}, "security": {"tokensSecretName": "kornel-tokens"}}
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
    "extraEnv": [{"name": "KORNEL_HISTORY", "value": "off"}, {"name": "SSL_CERT_FILE", "value": "/etc/site/ca.crt"}],
    "extraVolumes": [
        {"name": "ldap", "secret": {"secretName": "kornel-ldap", "defaultMode": 0o440}},
        {"name": "authorities", "configMap": {"name": "site-authorities"}},
    ],
    "extraVolumeMounts": [
        {"name": "ldap", "mountPath": "/etc/kornel/ldap", "readOnly": True},
        {"name": "authorities", "mountPath": "/etc/site", "readOnly": True},
    ],
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
SHARED = {**PLAIN, "journal": {"secretName": "kornel-database", "replicas": 3}}
SHARED_WITH_CERTIFICATES = {**SHARED, "tls": EVERYTHING["tls"]}
NO_POLICY = {**PLAIN, "networkPolicy": {"enabled": False}, "persistence": {"existingClaim": "mine"}}
VALUES = pytest.mark.parametrize(
    "values",
    [PLAIN, EVERYTHING, NO_POLICY, SHARED, SHARED_WITH_CERTIFICATES],
    ids=["plain", "everything", "other-claim", "shared", "shared-with-certificates"],
)


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
        rendered(IMAGE)
    with pytest.raises(TemplateError, match=r"tls\.probeSecretName"):
        rendered(merged(PLAIN, {"tls": {"demandClientCertificates": True}}))


@pytest.mark.parametrize("image", [{}, {"tag": "1.0"}, {"digest": "sha256:" + "0" * 64}])
def test_an_image_has_to_be_named(image: dict[str, str]) -> None:
    with pytest.raises(TemplateError, match=r"image\.repository: .*none is published"):
        rendered({**PLAIN, "image": image})
    assert 'image: "registry.example.org/kornel:' in rendered(PLAIN)["deployment.yaml"]


def test_volumes_of_the_site_stand_beside_those_of_the_chart() -> None:
    """Where they are mounted, and what they hold, as the values say it."""
    pod = manifests(EVERYTHING)["Deployment"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    for held, given in (
        (pod["volumes"], EVERYTHING["extraVolumes"]),
        (container["volumeMounts"], EVERYTHING["extraVolumeMounts"]),
    ):
        assert [one for one in held if one["name"] in ("ldap", "authorities")] == given
        assert len(held) > len(given)


def test_what_the_switches_turn_off_is_not_there() -> None:
    assert "ServiceMonitor" not in manifests(PLAIN)
    without = manifests(NO_POLICY)
    assert without.keys().isdisjoint({"NetworkPolicy", "PersistentVolumeClaim"})
    kinds = manifests(EVERYTHING)
    assert kinds.keys().isdisjoint({"PersistentVolumeClaim", "ServiceAccount"})
    assert kinds["Deployment"]["spec"]["template"]["spec"]["containers"][0]["image"].endswith("@sha256:" + "0" * 64)


def test_the_schema_takes_what_is_right_and_refuses_what_is_not() -> None:
    checker = jsonschema_rs.validator_for(SCHEMA)
    for values in (PLAIN, EVERYTHING, NO_POLICY, SHARED):
        checker.validate(merged(DEFAULTS, values))
    for wrong in (
        {"tsl": {}},
        {"image": {"digest": "latest"}},
        {"service": {"grpcPort": "50051"}},
        {"networkPolicy": {"namespaceLabels": {"kornel.access": None}}, "log": {"level": "loud"}},
        {"persistence": {"size": "much"}},
        {"journal": {"replicas": 0}},
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


def test_cores_that_share_a_database_have_to_reach_it() -> None:
    """The notes say so while the NetworkPolicy lets nothing out, and who is ready."""
    notes = rendered(SHARED)["NOTES.txt"]
    assert "3 cores share the database of the Secret kornel-database" in notes
    assert "networkPolicy.egress needs rules" in notes
    egress = {"networkPolicy": {"egress": [{"ports": [{"port": 5432}]}]}}
    assert "needs rules" not in rendered(merged(SHARED, egress))["NOTES.txt"]


def test_the_notes_say_where_it_serves() -> None:
    notes = rendered(PLAIN)["NOTES.txt"]
    assert "site-kornel.sched.svc:50051" in notes
    assert "kornel.access=granted" in notes


OTHER_WAYS_IN: list[dict[str, Any]] = [
    {"security": {"oidc": {"issuer": "https://login.example.org"}}},
    {"tls": {"secretName": "t", "demandClientCertificates": True, "probeSecretName": "p"}},
]


def test_the_notes_say_when_nobody_may_use_the_core() -> None:
    """That is: as the chart comes, with neither tokens nor another way to say who one is."""
    closed = {**IMAGE, "tls": {"secretName": "t"}}
    notes = rendered(closed)["NOTES.txt"]
    assert "nobody may use this core" in notes
    assert "security.tokensSecretName" in notes
    assert "nobody" not in rendered(PLAIN)["NOTES.txt"]
    assert "security.tokensSecretName" not in rendered(PLAIN)["NOTES.txt"]


@pytest.mark.parametrize("way", OTHER_WAYS_IN)
def test_the_notes_say_when_tokens_are_named_and_there_are_none(way: dict[str, Any]) -> None:
    """Somebody may come in then, but not whom the rules of the chart name."""
    notes = rendered(merged({**IMAGE, "tls": {"secretName": "t"}}, way))["NOTES.txt"]
    assert "nobody may" not in notes
    assert "set security.tokensSecretName, or name other callers" in notes
    named = {"security": {"rules": [{"who": ["cn:shim"], "managers": ["shim"]}]}}
    notes = rendered(merged(merged({**IMAGE, "tls": {"secretName": "t"}}, way), named))["NOTES.txt"]
    assert "tokensSecretName" not in notes


@pytest.mark.parametrize("who", ["anyone", "anonymous"])
def test_a_rule_for_whoever_comes_lets_no_shim_in(who: str) -> None:
    """`anyone` is anyone who proved something, and `anonymous` reads at most."""
    rules = {"rules": [{"who": [who], "permissions": ["read"]}]}
    notes = rendered({**IMAGE, "tls": {"secretName": "t"}, "security": rules})["NOTES.txt"]
    assert "nobody may use this core" in notes
