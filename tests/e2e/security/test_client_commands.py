"""The programs of a shim's author against cores that ask who calls, and a scripted core that does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import Result
from typer import Typer
from typer.testing import CliRunner

from kornel.conformance.cli import app as kit
from kornel.shim_client import CoreUnreachable, Credentials, CredentialsUnusable, ShimClient
from kornel.shim_client.credentials import NO_CREDENTIALS
from kornel.shim_mock.cli import app as mock
from tests.e2e.security.test_commands import make_token, succeed
from tests.e2e.test_command import serving
from tests.patience import PATIENCE_S
from tests.prepared import python

ROOT = Path(__file__).parents[3]
POLICY = """
tokens: tokens.yaml
rules:
  - who: ["cn:kit", "token:kit"]
    managers: ["*"]
    permissions: [read, configure, administer, test-clock]
"""
SCENARIO = """
name: small
queues: {partitions: [{name: default, queues: [{name: root, submitacl: "*", queues: [{name: a}]}]}]}
nodes: [{name: node, count: 1, resources: {vcore: 4}}]
applications: [{id: one, queue: root.a, tasks: [{name: worker, count: 2, resources: {vcore: 1}, runtime: 1s}]}]
expectations: [nothing lost, all pods placed within 2m]
duration: 60s
speed: 20
"""
WAITING = ["--deadline", f"{PATIENCE_S:g}"]
START = ["--start", f"{PATIENCE_S:g}"]


@dataclass(frozen=True)
class Files:
    """Of a site: an authority, a core's and a kit's certificate, and the kit's token."""

    folder: Path
    token: Path

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)

    @property
    def certificate(self) -> list[str]:
        """How a client shows the kit's certificate."""
        return ["--ca", self["ca.pem"], "--cert", self["kit.pem"], "--key", self["kit-key.pem"]]

    @property
    def server(self) -> list[str]:
        """How a server shows the core's certificate."""
        return ["--tls-cert", self["core.pem"], "--tls-key", self["core-key.pem"]]

    @property
    def variables(self) -> dict[str, str]:
        """CA and token for a client, as its environment has them."""
        return {"KORNEL_CA": self["ca.pem"], "KORNEL_TOKEN_FILE": str(self.token)}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("site")
    succeed("security", "certificate", "core", "--host", "localhost", "--host", "127.0.0.1", "--dir", str(folder))
    succeed("security", "certificate", "kit", "--dir", str(folder))
    (folder / "security.yaml").write_text(POLICY)
    return Files(folder, make_token(folder, "kit"))


@pytest.fixture
def core(files: Files, tmp_path: Path) -> Iterator[str]:
    """Address of a core that speaks TLS only."""
    with serving(tmp_path, *files.server, "--security", files["security.yaml"]) as (_, address):
        yield address


@pytest.fixture
def mutual_core(files: Files, tmp_path: Path) -> Iterator[str]:
    """The same, which wants a certificate from everybody, and has a test clock."""
    arguments = ["--test-clock", *files.server, "--tls-client-ca", files["ca.pem"]]
    with serving(tmp_path, *arguments, "--security", files["security.yaml"]) as (_, address):
        yield address


def invoke(app: Typer, *arguments: str, **variables: str) -> Result:
    return CliRunner().invoke(app, arguments, env=variables)


def test_the_kit_judges_a_core_that_wants_certificates(files: Files, mutual_core: str) -> None:
    """Cases with one and with two programs, and those that move the clock."""
    few = ["--address", mutual_core, *WAITING, "--case", "1-12", "--group", "takeover"]
    done = invoke(kit, *files.certificate, "core", *few)
    assert done.exit_code == 0, done.output
    assert "0 fail: conforms" in done.output


def test_the_kit_judges_a_core_that_wants_a_token(files: Files, core: str) -> None:
    few = ["--address", core, *WAITING, "--case", "1-6"]
    assert invoke(kit, "--ca", files["ca.pem"], "--token-file", str(files.token), "core", *few).exit_code == 0
    assert invoke(kit, "core", *few, **files.variables).exit_code == 0
    refused = invoke(kit, "--ca", files["ca.pem"], "core", *few)
    assert refused.exit_code == 3
    assert "UNAUTHENTICATED" in refused.stderr


def test_the_mock_plays_against_a_core_that_wants_a_token(files: Files, core: str, tmp_path: Path) -> None:
    scenario = tmp_path / "small.yaml"
    scenario.write_text(SCENARIO)
    play = ["run", str(scenario), "--core", core]
    done = invoke(mock, "--ca", files["ca.pem"], "--token-file", str(files.token), *play)
    assert done.exit_code == 0, done.output
    refused = invoke(mock, "--ca", files["ca.pem"], *play)
    assert refused.exit_code == 3
    assert "UNAUTHENTICATED" in refused.stderr


@pytest.mark.parametrize("app", [kit, mock], ids=["kit", "mock"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cert", "c.pem"], "belong together"),
        (["--ca", "missing.pem"], "No such file"),
        (["--token-file", "missing.token"], "plain text"),
    ],
)
def test_credentials_that_cannot_be_used_are_wrong_usage(app: Typer, arguments: list[str], said: str) -> None:
    far = ["core", "--address"] if app is kit else ["run", "guarantee", "--core"]
    done = invoke(app, *arguments, *far, "core.example.org:50051")
    assert done.exit_code == 2
    assert said in done.stderr


@pytest.fixture
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shims are programs of their own and find our packages by this."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


EXAMPLE = ["-m", "kornel.shim_client.example", "--core", "{address}"]
CARELESS = """
import asyncio, os, sys
from kornel.shim_client import example
del os.environ["KORNEL_TOKEN_FILE"]
asyncio.run(example.run(sys.argv[1], "rm-1", 1, 1.0))
"""


@pytest.mark.usefixtures("_in_the_repository")
def test_the_scripted_core_asks_who_the_shim_is(files: Files) -> None:
    """The shim finds what it needs in its environment: certificate, token, or both."""
    few = ["shim", *files.server, *START, *WAITING, "--check", "S1", "--check", "S2"]
    mutual = [*few, "--tls-client-ca", files["ca.pem"]]
    for credentials, checks in (
        (["--ca", files["ca.pem"], "--token-file", str(files.token)], few),
        ([*files.certificate, "--token-file", str(files.token)], mutual),
    ):
        done = invoke(kit, *credentials, *checks, "--", python(), *EXAMPLE)
        assert done.exit_code == 0, done.output
        assert "2 pass" in done.output


@pytest.mark.usefixtures("_in_the_repository")
def test_a_shim_that_shows_no_token_does_not_conform(files: Files) -> None:
    few = ["shim", *files.server, *START, "--check", "S1", "--json"]
    done = invoke(kit, *few, "--", sys.executable, "-c", CARELESS, "{address}", **files.variables)
    assert done.exit_code == 1
    assert "UNAUTHENTICATED" in done.output


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (["--ca"], [], "would speak plain text"),
        ([], ["--tls-cert"], "belong together"),
        ([], ["--tls-client-ca"], "needs --tls-cert"),
    ],
)
def test_doors_that_make_no_sense_are_wrong_usage(files: Files, before: list[str], after: list[str], said: str) -> None:
    values = [files["ca.pem"]]
    done = invoke(kit, *before, *(values if before else []), "shim", *after, *(values if after else []), "--", "true")
    assert done.exit_code == 2
    assert said in done.stderr


async def test_without_credentials_means_so_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core of a demo asks nobody, also where the environment is that of a secured one."""
    monkeypatch.setenv("KORNEL_CA", "missing.pem")
    assert Credentials.from_environment().environment() == {"KORNEL_CA": "missing.pem"}
    with pytest.raises(CredentialsUnusable, match="No such file"):
        await ShimClient("127.0.0.1:1", "rm-1").connect()
    with pytest.raises(CoreUnreachable):
        await ShimClient("127.0.0.1:1", "rm-1", credentials=NO_CREDENTIALS, connect_s=0.1).connect()
