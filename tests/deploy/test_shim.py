"""The Kubernetes shim beside the core: plain manifests, and the chart with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from tests.deploy.go_templates import TemplateError
from tests.deploy.manifests import check_deployment, check_texts
from tests.deploy.test_chart import DEFAULTS, PLAIN, SCHEMA, merged, rendered

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/kubernetes/shim"
WITH_SHIM = merged(
    PLAIN,
    {"shim": {"enabled": True, "image": {"repository": "registry.example.org/shim"}, "tokenSecretName": "shim-token"}},
)
WITH_CERTIFICATE = merged(WITH_SHIM, {"shim": {"certificateSecretName": "shim-tls", "tokenSecretName": ""}})


def plain() -> list[dict[str, Any]]:
    """Returns the plain manifests, which are all files of their folder."""
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    assert {path.name for path in FOLDER.glob("*.yaml")} == {*listed, "kustomization.yaml"}
    return [document for name in listed for document in yaml.safe_load_all((FOLDER / name).read_text())]


def of_chart(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(rendered(values)["shim.yaml"]) if document]


@pytest.fixture(params=["plain", "token", "certificate"])
def documents(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    if request.param == "plain":
        return plain()
    return of_chart(WITH_SHIM if request.param == "token" else WITH_CERTIFICATE)


def the_deployment(documents: Iterable[dict[str, Any]]) -> dict[str, Any]:
    [deployment] = [document for document in documents if document["kind"] == "Deployment"]
    return deployment


def environment(deployment: Mapping[str, Any]) -> dict[str, str]:
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one.get("value", "") for one in container["env"]}


def test_the_shim_is_hardened_and_finds_its_files(documents: list[dict[str, Any]]) -> None:
    deployment = the_deployment(documents)
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert set(mounts.values()) == {volume["name"] for volume in pod["volumes"]}
    files = [value for value in environment(deployment).values() if value.startswith("/")]
    assert len(files) >= 2
    assert all(str(Path(file).parent) in mounts for file in files)
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


def test_the_shim_may_do_what_it_needs_and_everything_named_exists(documents: list[dict[str, Any]]) -> None:
    names = {(document["kind"], document["metadata"]["name"]) for document in documents}
    account = the_deployment(documents)["spec"]["template"]["spec"]["serviceAccountName"]
    assert ("ServiceAccount", account) in names
    roles = set()
    for binding in (document for document in documents if document["kind"].endswith("RoleBinding")):
        [subject] = binding["subjects"]
        assert (subject["kind"], subject["name"]) == ("ServiceAccount", account)
        role = binding["roleRef"]["kind"], binding["roleRef"]["name"]
        roles.add(role[1])
        assert role in names or role[1].startswith("system:")
    assert {"system:kube-scheduler", "system:volume-scheduler"} < roles
    allowed = {
        (resource, verb)
        for document in documents
        if document["kind"] in ("Role", "ClusterRole")
        for rule in document["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {("leases", "create"), ("configmaps", "watch"), ("pods", "delete"), ("namespaces", "list")} <= allowed


def test_probes_and_port_are_those_of_the_program(documents: list[dict[str, Any]]) -> None:
    [container] = the_deployment(documents)["spec"]["template"]["spec"]["containers"]
    program = "".join(path.read_text() for path in (ROOT / "shim_k8s/cmd/kornel-shim-k8s").glob("*.go"))
    [port] = container["ports"]
    assert f'defaultListen = ":{port["containerPort"]}"' in program
    for probe in ("livenessProbe", "readinessProbe"):
        assert f'"GET {container[probe]["httpGet"]["path"]}"' in program
    given = {option.partition("=")[0].removeprefix("--") for option in container.get("args", [])}
    assert given <= set(re.findall(r'flag\.\w+Var\(&[\w.]+, "([\w-]+)"', program))


def test_the_plain_shim_reaches_the_plain_core() -> None:
    address = environment(the_deployment(plain()))["KORNEL_ADDRESS"]
    service = yaml.safe_load((FOLDER.parent / "service.yaml").read_text())
    namespace = yaml.safe_load((FOLDER.parent / "kustomization.yaml").read_text())["namespace"]
    assert address == f"{service['metadata']['name']}.{namespace}.svc:50051"


@pytest.mark.parametrize("values", [WITH_SHIM, WITH_CERTIFICATE], ids=["token", "certificate"])
def test_the_chart_deploys_both(values: dict[str, Any], tmp_path: Path) -> None:
    """The core stays what it is, does not take the shim's pods for its own, and lets the shim act as its cluster."""
    jsonschema_rs.validator_for(SCHEMA).validate(merged(DEFAULTS, values))
    texts = rendered(values)
    core = {
        document["kind"]: document
        for name, text in texts.items()
        if name.endswith(".yaml") and name != "shim.yaml"
        for document in yaml.safe_load_all(text)
        if document
    }
    check_deployment(core)
    security = core["ConfigMap"]["data"]["security.yaml"]
    check_texts(core["ConfigMap"]["data"]["queues.yaml"], security, tmp_path, tokens=True)
    assert {"who": ["token:shim"], "managers": ["mycluster"], "permissions": ["configure"]} in (
        yaml.safe_load(security)["rules"]
    )
    shim = the_deployment(of_chart(values))
    labels = shim["spec"]["template"]["metadata"]["labels"]
    assert not core["Service"]["spec"]["selector"].items() <= labels.items()
    assert environment(shim)["KORNEL_ADDRESS"] == "site-kornel.sched.svc:50051"


def test_the_shim_may_be_given_the_addresses_of_other_cores() -> None:
    several = "core-1.example.org:50051,core-2.example.org:50051"
    values = merged(WITH_SHIM, {"shim": {"coreAddress": several}})
    jsonschema_rs.validator_for(SCHEMA).validate(merged(DEFAULTS, values))
    assert environment(the_deployment(of_chart(values)))["KORNEL_ADDRESS"] == several


def test_a_shim_without_image_is_not_rendered() -> None:
    with pytest.raises(TemplateError, match=r"shim\.image\.repository: .*none is published"):
        rendered(merged(PLAIN, {"shim": {"enabled": True}}))
    assert of_chart(PLAIN) == []


def test_the_image_is_built_from_the_two_modules_and_runs_as_nobody() -> None:
    text = (ROOT / "shim_k8s/Dockerfile").read_text()
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)
    ignored = (ROOT / "shim_k8s/Dockerfile.dockerignore").read_text().splitlines()
    copied = {word for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE) for word in line.split()[:-1]}
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert all(any(source == one or source.startswith(f"{one}/") for one in kept) for source in copied)
    assert all((ROOT / source).exists() for source in copied)
