"""Plays every scenario file below this directory and compares what the core answers, line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.scenarios.language import fold, load, parse, render
from tests.scenarios.stage import Stage, Unsound

HERE: Final = Path(__file__).parent
FILES: Final = sorted(HERE.rglob("*.txt"))
CASES: Final = [
    pytest.param(path, number, id=f"{path.relative_to(HERE).with_suffix('')}: {scenario.title}")
    for path in FILES
    for number, scenario in enumerate(load(path))
]


def list_files(*brief: str) -> list[object]:
    """Returns parameters for all files, of which all but those called *brief* are played in long runs only."""
    named = {str(path.relative_to(HERE).with_suffix("")): path for path in FILES}
    assert named.keys() >= {*brief}
    return [pytest.param(path, id=name, marks=[pytest.mark.long] * (name not in brief)) for name, path in named.items()]


@pytest.mark.parametrize(("path", "number"), CASES)
def test_scenario(path: Path, number: int, request: pytest.FixtureRequest) -> None:
    """The core answers every step as written, with sound books and no broken law after each."""
    scenarios = load(path)
    stage = Stage()
    for block in scenarios[number].blocks:
        try:
            answers = stage.play(block.inputs)
        except Exception as error:
            error.add_note(f"in the step that ends at {path.name}:{block.line}")
            raise
        if request.config.getoption("--rewrite", default=False):
            block.expected = block.expected if answers == block.answers else fold(answers)
        else:
            assert answers == block.answers, f"{path.name}:{block.line}"
    if request.config.getoption("--rewrite", default=False):
        path.write_text(render(scenarios), encoding="utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_header_says_what_the_file_proves(path: Path) -> None:
    """Every scenario file opens with a comment and survives being read and written unchanged."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert render(parse(text)) == text


def test_unsound_books_end_a_scenario() -> None:
    """A step after which the books do not add up fails, whatever was answered."""
    stage = Stage()
    stage.play(["node n1", "app app1", "ask k", "cycle"])
    state = stage.state
    state.root.used[0] += 1
    with pytest.raises(Unsound, match="used is booked as"):
        stage.play(["cycle"])
