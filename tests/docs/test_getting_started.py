"""docs/getting-started.md does what it says: its commands are run as they stand, but for ports and the installation."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.ports import reserve_port

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/getting-started.md"
PORTS = ("50051", "9080", "9099")


def sections() -> dict[str, str]:
    """Shell text by heading."""
    found: dict[str, str] = {}
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        found[heading] = "".join(re.findall(r"^```sh\n(.*?)^```$", body, re.MULTILINE | re.DOTALL))
    return found


@pytest.mark.long
def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    """A newcomer gets a secured core, a cluster and a Prometheus that scrapes the core."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    script = sections()
    del script["Install"]
    whole = shutil.which("prometheus") is not None and shutil.which("promtool") is not None
    if not whole:
        del script["See it in Prometheus"]
        script["Stop it"] = script["Stop it"].replace("kill $prometheus\n", "")
    text = "set -euo pipefail\n" + "".join(f"echo '== {heading}'\n{body}" for heading, body in script.items())
    # Other cores may run on this machine.
    for port in PORTS:
        assert f":{port}" in text or not whole
        text = text.replace(f":{port}", f":{reserve_port()}")
    programs = Path(sys.executable).parent
    variables = {name: value for name, value in os.environ.items() if not name.startswith("KORNEL_")}
    variables |= {
        "HOME": str(tmp_path),
        "KORNEL_SOURCE": str(ROOT),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    printed = tmp_path / "printed"
    with printed.open("w") as output:
        shell = subprocess.Popen(
            ["bash", "-c", text], cwd=tmp_path, env=variables, stdout=output, stderr=output, start_new_session=True
        )
        try:
            status = shell.wait(PATIENCE_S)
        finally:
            # What the page starts in the background must not outlive a failure.
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    said, log = printed.read_text(), tmp_path / "kornel-site/core.log"
    assert status == 0, said + (log.read_text()[-2000:] if log.exists() else "")
    parts = dict(part.partition("\n")[::2] for part in said.split("== ")[1:])
    assert "SERVING" in parts["Start the core"]
    cluster = parts["Give it a cluster"]
    # The victims are told with whom they made room for, and production then holds the guarantee of the page's own file.
    assert re.search(r"guarantee +TRIGGERED +nightly-worker-\d+ .*shop-server-\d+", cluster), cluster
    assert re.search(r"prod +1 .* 16/- g=16", cluster), cluster
    assert '"law_violations": 0' in parts["Stop it"], parts["Stop it"]
    if not whole:
        pytest.skip("all of the page was run but Prometheus: prometheus and promtool are not installed")
