"""The commands of manifests and chart, run as they stand with files where the volumes would be."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.deploy import test_chart, test_kubernetes
from tests.deploy.manifests import by_kind
from tests.e2e.security.test_commands import succeed
from tests.e2e.test_command import environment
from tests.patience import PATIENCE_S
from tests.prepared import python


def plain() -> tuple[dict[str, Any], dict[str, str]]:
    """The container of deploy/kubernetes, and the files of its ConfigMap."""
    kinds = by_kind(test_kubernetes.manifests())
    texts = {path.name: path.read_text() for path in (test_kubernetes.FOLDER / "config").iterdir()}
    return kinds["Deployment"]["spec"]["template"]["spec"]["containers"][0], texts


def chart() -> tuple[dict[str, Any], dict[str, str]]:
    kinds = test_chart.manifests(test_chart.PLAIN)
    return kinds["Deployment"]["spec"]["template"]["spec"]["containers"][0], kinds["ConfigMap"]["data"]


def mounted(folder: Path, texts: dict[str, str]) -> str:
    """Make what the README has an operator make, mount it below *folder*, and return the token of Prometheus."""
    for name in ("config", "tokens", "tls", "state", "made"):
        (folder / name).mkdir()
    made = folder / "made"
    succeed("security", "certificate", "core", "--host", "localhost", "--dir", str(made))
    entries = [
        succeed("security", "token", name, "--out", str(made / f"{name}.token"))
        for name in ("ops", "shim", "prometheus")
    ]
    (folder / "tokens/tokens.yaml").write_text("tokens:\n" + "".join(entries))
    for source, target in (("core.pem", "tls.crt"), ("core-key.pem", "tls.key"), ("ca.pem", "ca.crt")):
        shutil.copy(made / source, folder / "tls" / target)
    for name, text in texts.items():
        (folder / "config" / name).write_text(text)
    return (made / "prometheus.token").read_text().strip()


def fetch(url: str, ca: Path, token: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    context = ssl.create_default_context(cafile=str(ca))
    request = urllib.request.Request(url, headers=headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, context=context, timeout=PATIENCE_S) as got:  # noqa: S310
            return int(got.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("source", [plain, chart])
def test_the_container_serves_secured_and_its_probes_succeed(source: Any, tmp_path: Path) -> None:
    """Probes pass without a token, metrics take one, and gRPC answers over TLS."""
    container, texts = source()
    token = mounted(tmp_path, texts)
    arguments = [
        one.replace("/etc/kornel", str(tmp_path)).replace("0.0.0.0:50051", "0.0.0.0:0").replace(":9080", ":0")
        for one in container["args"]
    ]
    variables = environment() | {"STATE_DIRECTORY": str(tmp_path / "state")}
    [journal] = [one["value"] for one in container["env"] if one["name"] == "KORNEL_JOURNAL"]
    variables["KORNEL_JOURNAL"] = journal.replace("/var/lib/kornel", str(tmp_path / "state"))
    command = [python(), "-m", "kornel", *arguments]
    with subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = next((json.loads(line) for line in process.stderr if '"serving"' in line), {})
            assert said, "it ended before it served"
            port = str(said["rest"]).rpartition(":")[2]
            ca = tmp_path / "tls/ca.crt"
            for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
                assert fetch(f"https://localhost:{port}{container[probe]['httpGet']['path']}", ca) == 200
            assert fetch(f"https://localhost:{port}/ws/v1/metrics", ca) == 401
            assert fetch(f"https://localhost:{port}/ws/v1/metrics", ca, token) == 200
            grpc = f"localhost:{str(said['address']).rpartition(':')[2]}"
            assert "SERVING" in succeed("--ca", str(ca), "health", "--grpc", grpc)
            succeed("--ca", str(ca), "--token-file", str(tmp_path / "made/ops.token"), "status", "--grpc", grpc)
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
    assert process.returncode == 0
    assert (tmp_path / "state/journal.db").is_file()
