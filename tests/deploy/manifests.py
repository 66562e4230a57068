"""What every deployment of a core has to get right, whoever wrote the manifests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import typer.main
import yaml

from kornel.cli.app import app
from kornel.core.config import loader
from kornel.core.process.server_settings import ServerSettings

Manifest = Mapping[str, Any]

GRPC_PORT, HTTPS_PORT = 50051, 9080


def by_kind(documents: Iterable[Manifest]) -> dict[str, Manifest]:
    found = list(documents)
    kinds = {document["kind"]: document for document in found}
    assert len(kinds) == len(found), "two manifests of one kind"
    return kinds


def serve_options(args: list[str]) -> dict[str, str | None]:
    """Options of `kornel serve` as manifests give them; an unknown one fails."""
    assert args[0] == "serve"
    known = {name for one in typer.main.get_command(app).commands["serve"].params for name in one.opts}  # type: ignore[attr-defined]
    given = {name: value or None for name, _, value in (one.partition("=") for one in args[1:])}
    assert not given.keys() - known
    assert "--insecure-anywhere" not in given
    return given


def check_deployment(kinds: Mapping[str, Manifest]) -> None:
    """Ports, files, probes, labels and hardening agree with each other and with the program."""
    deployment = kinds["Deployment"]
    spec = deployment["spec"]
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    assert spec["strategy"] == {"type": "Recreate"}
    options = serve_options(container["args"])
    check_journal(kinds, options)
    check_mounts(pod, container, options)
    check_ports(kinds, container, options)
    check_hardening(pod, container)
    selector, labels = spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]
    assert selector.items() <= labels.items()
    assert kinds["Service"]["spec"]["selector"] == selector
    if "NetworkPolicy" in kinds:
        assert kinds["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == selector
        assert {port["port"] for port in kinds["NetworkPolicy"]["spec"]["ingress"][0]["ports"]} == {"grpc", "https"}
    if "ServiceMonitor" in kinds:
        assert kinds["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items() <= (
            kinds["Service"]["metadata"]["labels"].items()
        )


def check_journal(kinds: Mapping[str, Manifest], options: Mapping[str, str | None]) -> None:
    """One core has a journal on the volume that outlives it; several share a database, and have nothing to outlive."""
    spec = kinds["Deployment"]["spec"]
    pod = spec["template"]["spec"]
    variables = {one["name"]: one for one in pod["containers"][0]["env"]}
    state = next(volume for volume in pod["volumes"] if volume["name"] == "state")
    journal = variables["KORNEL_JOURNAL"]
    if "value" in journal:
        assert PurePosixPath(journal["value"]).parent == PurePosixPath(variables["STATE_DIRECTORY"]["value"])
        assert spec["replicas"] == 1
        assert "PodDisruptionBudget" not in kinds
        assert "--advertise" not in options
        return
    assert spec["replicas"] > 1
    assert journal["valueFrom"]["secretKeyRef"]["key"] == "url"
    assert variables["KORNEL_HISTORY"]["valueFrom"] == journal["valueFrom"]
    assert state == {"name": "state", "emptyDir": {}}
    assert "PersistentVolumeClaim" not in kinds
    service = kinds["Service"]
    assert str(options["--advertise"]).partition(".")[0] == service["metadata"]["name"]
    assert str(options["--advertise"]).endswith(f".svc:{GRPC_PORT}")
    budget = kinds["PodDisruptionBudget"]["spec"]
    # The leader alone is ready.
    assert budget["minAvailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    selector = spec["selector"]["matchLabels"]
    assert budget["selector"]["matchLabels"] == selector
    [spread] = pod["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == selector


def check_mounts(pod: Manifest, container: Manifest, options: Mapping[str, str | None]) -> None:
    """Every file an option names lies in a volume, and every volume that is mounted exists."""
    mounts = {PurePosixPath(mount["mountPath"]): mount for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in mounts.values()} == volumes.keys()
    for name in ("--tls-cert", "--tls-key", "--security", "--config"):
        path = options[name]
        assert path is not None
        mount = mounts[PurePosixPath(path).parent]
        assert mount["readOnly"]
        volume = volumes[mount["name"]]
        assert ("secret" in volume) == name.startswith("--tls")
        if secret := volume.get("secret"):
            assert secret["defaultMode"] == 0o440
    [state] = [one["value"] for one in container["env"] if one["name"] == "STATE_DIRECTORY"]
    assert PurePosixPath(state) in mounts


def check_ports(kinds: Mapping[str, Manifest], container: Manifest, options: Mapping[str, str | None]) -> None:
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"grpc": GRPC_PORT, "https": HTTPS_PORT}
    assert options["--grpc"] == f"0.0.0.0:{GRPC_PORT}"
    assert options["--rest-address"] == f"0.0.0.0:{HTTPS_PORT}"
    ServerSettings(address=options["--grpc"], version="", rest_address=options["--rest-address"])
    assert {port["targetPort"] for port in kinds["Service"]["spec"]["ports"]} == ports.keys()
    live, ready = container["livenessProbe"], container["readinessProbe"]
    if any(each["name"] == "KORNEL_JOURNAL" and "valueFrom" in each for each in container["env"]):
        # The Service has to lead to whichever core leads.
        assert (ready["periodSeconds"], ready["failureThreshold"]) == (1, 1)
        assert ready["timeoutSeconds"] <= 2
    if "--tls-client-ca" in options:
        assert live["tcpSocket"] == {"port": "https"}
        assert ready["exec"]["command"][0] == "kornel"
        return
    assert live["httpGet"] == {"path": "/healthz/live", "port": "https", "scheme": "HTTPS"}
    assert ready["httpGet"] == {"path": "/healthz/ready", "port": "https", "scheme": "HTTPS"}


def check_hardening(pod: Manifest, container: Manifest) -> None:
    """What the Pod Security Standard "restricted" demands, and a read-only file system."""
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["fsGroup"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def check_texts(queues: str, security: str, folder: Path, *, tokens: bool) -> None:
    """Both files load without a warning, with the token file where they are mounted."""
    from kornel.core.security.guard import read_files  # noqa: PLC0415

    assert loader.load(queues).warnings == ()
    (folder / "config").mkdir(exist_ok=True)
    (folder / "tokens").mkdir(exist_ok=True)
    if tokens:
        digests = [{"name": name, "sha256": digit * 64} for name, digit in (("shim", "a"), ("ops", "b"))]
        (folder / "tokens/tokens.yaml").write_text(yaml.safe_dump({"tokens": digests}))
    file = folder / "config/security.yaml"
    file.write_text(security)
    assert len(read_files(file)[0].rules) >= 1
