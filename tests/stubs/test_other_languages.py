"""The page for authors in Java and TypeScript, followed to the letter from an empty folder to the kit's verdict."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.patience import PATIENCE_S

ROOT: Final = Path(__file__).resolve().parents[2]
SECTIONS: Final = (ROOT / "docs" / "other-languages.md").read_text(encoding="utf-8").split("\n## ")
BUILD_S: Final = 900
"""The most that building takes on a busy machine, with the packages that it has to fetch, and the kit after that."""
TOOLS: Final = {
    "Java": {"mvn": "Maven is not installed", "javac": "a JDK is not installed"},
    "TypeScript": {"node": "Node.js is not installed", "npm": "npm is not installed"},
}


@pytest.mark.parametrize("language", TOOLS)
def test_the_shim_of_the_page_conforms(language: str, tmp_path: Path) -> None:
    for program, missing in TOOLS[language].items():
        if shutil.which(program) is None:
            pytest.skip(missing)
    if language == "Java" and (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("the plugins that the page names are those of linux-x86_64")
    [section] = [each for each in SECTIONS if each.startswith(language)]
    for name, text in re.findall(r"`([\w./]+)`:\n\n```\w+\n(.*?)```", section, re.DOTALL):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    [commands] = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    patient = f'kornel-conformance" shim --watch 5 --start {PATIENCE_S:g} --deadline {PATIENCE_S:g}'
    done = subprocess.run(
        ["sh", "-e", "-c", commands.replace('kornel-conformance" shim', patient)],
        cwd=tmp_path,
        env={**os.environ, "KORNEL": str(ROOT), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert re.search(r" 0 fail: conforms$", done.stdout.strip()), done.stdout
    # Classes with names of their own, in the packages of managed mode.
    assert language != "Java" or (tmp_path / "src/main/java/kornel/si/v1/NodeInfo.java").exists()
