"""The systemd unit."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer.main

from kornel.cli.app import app
from tests.deploy.manifests import serve_options

UNIT = Path(__file__).resolve().parents[2] / "deploy/systemd/kornel.service"


def setting(name: str) -> list[str]:
    text = UNIT.read_text().replace("\\\n", " ")
    return re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)


def test_the_command_has_only_options_that_exist_and_files_that_are_there() -> None:
    [command] = setting("ExecStart")
    words = shlex.split(command)[1:]
    options: list[str] = [words[0]]
    for word in words[1:]:
        if word.startswith("--"):
            options.append(word)
        else:
            options[-1] += f"={word}"
    given = serve_options(options)
    credentials = {one.split(":")[0] for one in setting("LoadCredential")}
    for name in ("--tls-cert", "--tls-key"):
        folder, _, file = str(given[name]).rpartition("/")
        assert folder == "${CREDENTIALS_DIRECTORY}"
        assert file in credentials
    [configuration] = setting("ConfigurationDirectory")
    for name in ("--security", "--config"):
        assert str(given[name]).startswith(f"/etc/{configuration}/")
    assert setting("StateDirectory") == ["kornel"]


def test_two_hosts_share_a_database() -> None:
    """The address of the database stands where root alone reads it, by variables that the core knows."""
    assert setting("Environment") == ["KORNEL_JOURNAL=%S/kornel/journal.db"]
    text = (UNIT.parent / "kornel.service.d/standby.conf").read_text()
    known = {one.envvar for one in typer.main.get_command(app).commands["serve"].params}  # type: ignore[attr-defined]
    named = set(re.findall(r"^#\s+(KORNEL_\w+)=", text, re.MULTILINE))
    assert named == {"KORNEL_JOURNAL", "KORNEL_HISTORY", "KORNEL_ADVERTISE"}
    assert named <= known
    assert re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE) == [
        ("EnvironmentFile", "/etc/kornel/standby.env"),
        ("Restart", "always"),
    ]


def test_reload_is_the_signal_that_the_core_reads_files_on() -> None:
    assert setting("ExecReload") == ["/bin/kill -HUP $MAINPID"]
    assert setting("RestartPreventExitStatus") == ["2"]


def test_the_writer_of_the_history_may_lower_its_priority() -> None:
    """`os.nice` is setpriority, which @resources holds; a later line without ~ lets it in again."""
    filters = setting("SystemCallFilter")
    denied = next(place for place, line in enumerate(filters) if line.startswith("~") and "@resources" in line)
    assert any("setpriority" in line.split() for line in filters[denied + 1 :] if not line.startswith("~"))


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """Every setting is known, and little of the machine is exposed."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    # The program need not be installed where this runs.
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/kornel/bin/kornel", "/bin/true"))
    verified = subprocess.run([analyze, "verify", copy], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    judged = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=20", copy], capture_output=True, text=True, check=False
    )
    assert judged.returncode == 0, judged.stdout[-300:]
