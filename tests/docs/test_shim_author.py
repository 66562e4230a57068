"""The page for authors of shims: its programs run as they are printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.test_command import environment, serving
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "shim-author.md").read_text(encoding="utf-8")
EXAMPLE, PREEMPTING = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PRINTED = re.search(r"\$ python preempting.py .*?\n(.*?)```", PAGE, re.DOTALL)


def test_the_first_program_is_the_example() -> None:
    """That one is run by the tests of the conformance kit."""
    assert (ROOT / "shim_client" / "example.py").read_text(encoding="utf-8") == EXAMPLE


def test_the_second_program_prints_what_the_page_says(tmp_path: Path) -> None:
    program = tmp_path / "preempting.py"
    program.write_text(PREEMPTING, encoding="utf-8")
    with serving(tmp_path) as (_, address):
        done = subprocess.run(
            [sys.executable, program, address],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert PRINTED is not None
    said, printed = done.stdout.splitlines(), PRINTED[1].splitlines()
    # Two containers that are stopped at once may end in either order, and the first leaves room for an ask.
    assert sorted(said) == sorted(printed)
    assert said[:4] == printed[:4]
    assert said[-1].startswith("prod")
