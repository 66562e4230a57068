"""The command line as an administrator uses it, and shims that connect to what it started."""

from __future__ import annotations

import stat
from contextvars import copy_context
from pathlib import Path
from typing import Final

import pytest
from click.testing import Result
from typer.testing import CliRunner

from kornel.cli.app import app
from kornel.shim_client import Credentials, RegistrationRefused, ShimClient
from tests.e2e.harness import CONFIG, create
from tests.e2e.test_command import kornel, serving

POLICY: Final = """
tokens: tokens.yaml
rules:
  - who: ["cn:shim", "token:shim"]
    managers: [rm-1]
    permissions: [configure]
  - who: ["token:ops"]
    permissions: [read]
"""


def invoke(*arguments: str, **variables: str) -> Result:
    """`kornel` with *arguments* within this process, which takes a tenth of the time."""
    return copy_context().run(CliRunner().invoke, app, arguments, env=variables)


def succeed(*arguments: str, **variables: str) -> str:
    done = invoke(*arguments, **variables)
    assert done.exit_code == 0, done.output
    return done.stdout


def make_token(folder: Path, name: str) -> Path:
    """A token file, its entry added to ``tokens.yaml``."""
    file = folder / f"{name}.token"
    listed = folder / "tokens.yaml"
    entry = succeed("security", "token", name, "--out", str(file))
    listed.write_text((listed.read_text() if listed.exists() else "tokens:\n") + entry)
    return file


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "10.1.2.3:0", "core.example.org:0"])
def test_a_core_that_everybody_could_use_is_not_started(address: str) -> None:
    done = kornel("serve", "--grpc", address)
    assert done.returncode == 2
    assert "other machines could reach this core" in done.stderr
    assert "--tls-cert" in done.stderr
    assert "--security" in done.stderr
    assert "--insecure-anywhere" in done.stderr


def test_it_is_started_when_told_so_plainly(tmp_path: Path) -> None:
    with serving(tmp_path, "--grpc", "0.0.0.0:0", "--insecure-anywhere") as (_, address):
        port = address.rpartition(":")[2]
        assert "SERVING" in succeed("health", "--grpc", f"127.0.0.1:{port}")


def test_half_of_the_measures_is_not_enough(tmp_path: Path) -> None:
    """Encryption without identities, and identities without encryption, are both named as what is missing."""
    succeed("security", "certificate", "core", "--host", "localhost", "--dir", str(tmp_path))
    tls = ("--tls-cert", str(tmp_path / "core.pem"), "--tls-key", str(tmp_path / "core-key.pem"))
    policy = tmp_path / "security.yaml"
    policy.write_text("rules: [{who: [anyone], permissions: [read]}]")
    only_tls = kornel("serve", "--grpc", "0.0.0.0:0", *tls)
    assert only_tls.returncode == 2
    assert "nobody would be asked who they are" in only_tls.stderr
    assert "encrypted" not in only_tls.stderr
    only_policy = kornel("serve", "--grpc", "0.0.0.0:0", "--security", str(policy))
    assert only_policy.returncode == 2
    assert "would not be encrypted" in only_policy.stderr
    assert "who they are" not in only_policy.stderr
    for address in ("127.0.0.1:0", f"unix:{tmp_path}/socket"):
        with serving(tmp_path, "--grpc", address, "--security", str(policy)):
            (tmp_path / "ready").unlink()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tls-cert", "core.pem"], "--tls-cert and --tls-key belong together"),
        (["--tls-client-ca", "ca.pem"], "--tls-client-ca needs --tls-cert"),
        (["--tls-cert", "no.pem", "--tls-key", "no.key"], "No such file"),
        (["--security", "no.yaml"], "no.yaml: No such file"),
    ],
)
def test_options_that_cannot_be_used(arguments: list[str], said: str) -> None:
    done = kornel("serve", "--grpc", "127.0.0.1:0", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_site_from_nothing(tmp_path: Path) -> None:
    """As docs/security.md has it: authority, certificates, tokens, a core for other machines, a shim, an operator."""
    folder = str(tmp_path)
    succeed("security", "certificate", "core", "--host", "localhost", "--host", "127.0.0.1", "--dir", folder)
    succeed("security", "certificate", "shim", "--dir", folder)
    ops, shim_token = make_token(tmp_path, "ops"), make_token(tmp_path, "shim")
    policy = tmp_path / "security.yaml"
    policy.write_text(POLICY)
    assert "2 rules" in succeed("security", "check", str(policy))
    tls = ["--tls-cert", f"{folder}/core.pem", "--tls-key", f"{folder}/core-key.pem", "--security", str(policy)]
    ca = tmp_path / "ca.pem"
    with serving(tmp_path, "--grpc", "0.0.0.0:0", *tls) as (_, address):
        here = f"127.0.0.1:{address.rpartition(':')[2]}"
        assert "SERVING" in succeed("--ca", str(ca), "health", "--grpc", here)
        refused = invoke("--ca", str(ca), "status", "--grpc", here)
        assert refused.exit_code == 1
        assert f"the core at {here} does not know the caller" in refused.stderr
        assert invoke("status", "--grpc", here).exit_code == 1, "plain text"
        succeed("--ca", str(ca), "--token-file", str(ops), "status", "--grpc", here)
        async with ShimClient(here, "rm-1", credentials=Credentials(ca=ca, token_file=shim_token)) as client:
            await client.register(config=CONFIG)
            await client.create_nodes([create("n-1")])
        async with ShimClient(here, "rm-2", credentials=Credentials(ca=ca, token_file=shim_token)) as client:
            with pytest.raises(RegistrationRefused, match="PERMISSION_DENIED"):
                await client.register()
        succeed("status", "--grpc", here, KORNEL_CA=str(ca), KORNEL_TOKEN_FILE=str(ops))
    (tmp_path / "ready").unlink()
    with serving(tmp_path, *tls, "--tls-client-ca", str(ca)) as (_, here):
        pair = Credentials(ca=ca, certificate=tmp_path / "shim.pem", key=tmp_path / "shim-key.pem")
        async with ShimClient(here, "rm-1", credentials=pair) as client:
            await client.register(config=CONFIG)
            await client.create_nodes([create("n-1")])
        shown = ["--ca", str(ca), "--cert", f"{folder}/shim.pem", "--key", f"{folder}/shim-key.pem"]
        assert "was not granted" in invoke(*shown, "status", "--grpc", here).stderr
        succeed(*shown, "--token-file", str(ops), "status", "--grpc", here)


def test_secrets_are_written_for_their_owner_only_and_never_over_others(tmp_path: Path) -> None:
    succeed("security", "certificate", "core", "--host", "localhost", "--dir", str(tmp_path))
    token = make_token(tmp_path, "ops")
    for secret in (tmp_path / "ca-key.pem", tmp_path / "core-key.pem", token):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    before = token.read_text()
    assert invoke("security", "token", "ops", "--out", str(token)).exit_code == 2
    assert invoke("security", "certificate", "core", "--dir", str(tmp_path)).exit_code == 2
    assert invoke("security", "certificate", "../sly", "--dir", str(tmp_path)).exit_code == 2
    assert token.read_text() == before
    assert before not in (tmp_path / "tokens.yaml").read_text()


def test_check_tells_what_is_wrong_and_where(tmp_path: Path) -> None:
    policy = tmp_path / "security.yaml"
    policy.write_text("rules:\n  - who: [ann]\n    permissions: [write]\n")
    done = invoke("security", "check", str(policy))
    assert done.exit_code == 2
    assert "line 2" in done.stderr
    assert "line 3" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--token-file", "t"], "plain text"),
        (["--cert", "c.pem"], "belong together"),
        (["--ca", "missing.pem"], "No such file"),
    ],
)
def test_connections_that_cannot_be_made(arguments: list[str], said: str) -> None:
    """A token does not leave this machine in plain text."""
    done = kornel(*arguments, "status", "--grpc", "core.example.org:50051")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


async def test_shim_client_does_not_send_tokens_in_plain_text(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    client = ShimClient("core.example.org:50051", "rm-1", credentials=Credentials(token_file=token))
    with pytest.raises(ValueError, match="plain text"):
        await client.connect()
