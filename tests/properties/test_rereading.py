"""Reading a text again, of which most is known, comes to exactly what reading it for the first time does."""

from __future__ import annotations

import os
from typing import Final

import pytest
import yaml
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kornel.core.config.loader import load
from kornel.core.config.model import Configuration
from kornel.core.config.rereading import ConfigurationReader
from kornel.core.config.text import yaml_reader
from kornel.core.config.text.problems import ConfigError, Problem
from tests.examples import scale_examples

EXAMPLES: Final = int(os.environ.get("KORNEL_REREADING_EXAMPLES", "150"))

SETTINGS: Final = (
    "maxapplications: 9",
    "submitacl: 'ann,bob ops'",
    "adminacl: 'no/name,ann'",
    "resources: {max: {vcore: 8}, guaranteed: {vcore: 0}}",
    "resources:\n  max:\n    cpu: 3\n    memory: 500M  # half",
    "resources: {max: {gpu: 0}}",
    "properties: {what.is.this: '1', application.sort.policy: fair}",
    "properties:\n  priority.offset: 5\n  quota.preemption.delay: 30",
    "properties:\n  preemption.delay: soon",
    "childtemplate: {maxapplications: 2, properties: {preemption.delay: 10s}}",
    "limits:\n- limit: |+\n    kept\n\n    # no comment\n\n  users: [ann]\n  maxapplications: 2",
    "limits:\n  - limit: >-\n     folded\n     text\n    users:\n      - '*'\n    maxresources: {vcore: 4}",
    "limits: [{limit: \"over\n lines\n- not an item\", users: [bob, '*'],\n maxapplications: 2}]",
    "# a remark",
    "parent: true",
    "",
)
LINES: Final = (
    "",
    "# more",
    "  - name: a",
    "- name: b",
    "    - name: new",
    "      queues:",
    "        queues:",
    "      - name: c",
    "        maxapplications: 4",
    "          maxapplications: 0",
    "        properties: {priority.offset: '7'}",
    "          properties: {unknown: '7'}",
    "        limits: [{users: ['*'], maxapplications: 1}]",
    "      submitacl: '*'",
    "...",
    "---",
    "%YAML 1.1",
    '        "',
    "        '",
    "      - [",
    "      ]",
    "        x: |",
    "          more",
    "\t",
    "      parent: &p true",
    "        parent: *p",
    "        <<: {maxapplications: 3}",
    "        name: !!str x",
    "      - ...",
    '      - "..."',
    "      x: y\r",
    "    placementrules: [{name: user, create: true}]",
)
TOP, LEVELS = 4, 3
HARMLESS: Final = 6
MARKS: Final = "\"'[]{}:,-#|>&*!% \t\nabc9"


@st.composite
def _queue(draw: st.DrawFn, name: str, depth: int, indent: int) -> list[str]:
    pad, dash = " " * indent, draw(st.sampled_from(("- ", "- ", "- ", "-   ", "-\n  ", "- # who\n  ")))
    inner = " " * (indent + len(dash.rpartition("\n")[2]))
    lines = [*f"{pad}{dash.replace(chr(10), chr(10) + pad)}name: {name}".split("\n")]
    kinds = draw(st.lists(st.sampled_from(SETTINGS), max_size=3, unique_by=lambda kind: kind.partition(":")[0]))
    for kind in kinds:
        if indent == TOP and kind.startswith("resources"):
            continue  # Root takes none.
        lines += [inner + line for line in kind.split("\n")]
    if depth == LEVELS or (depth and draw(st.integers(0, 2))):
        below = indent + len(inner) - indent + draw(st.sampled_from((0, 0, 2)))
        if draw(st.integers(0, 9)) == 0:
            lines.append(f"{inner}queues: [{{name: f, maxapplications: 1}}, {{name: g}}]")
        else:
            lines.append(f"{inner}queues:")
            for number in range(draw(st.integers(2, 5))):
                lines += draw(_queue(draw(st.sampled_from(("q", "q", "Q"))) + str(number), depth - 1, below))
                if draw(st.integers(0, 9)) == 0:
                    lines += ["", " " * draw(st.integers(0, 20)) + "# between"]
    return lines


@st.composite
def _texts(draw: st.DrawFn) -> str:
    lines = ["partitions:"]
    for name in ("default", "second")[: draw(st.sampled_from((1, 1, 1, 2)))]:
        lines += [f"  - name: {name}", "    queues:"]
        tops = draw(st.sampled_from((("root",), ("root",), ("x", "y"))))
        for top in tops:
            lines += draw(_queue(top, LEVELS, TOP))
    return "\n".join(lines) + draw(st.sampled_from(("\n", "\n", "\n", "", "\n\n# end")))


@st.composite
def _edited(draw: st.DrawFn, text: str) -> str:
    lines = text.split("\n")
    kind = draw(st.integers(0, 12))
    # Changes that leave the text good are too rare in lines of any kind.
    wanted = "name: " if kind > HARMLESS else ""
    at = draw(st.sampled_from([number for number, line in enumerate(lines) if wanted in line] or [0]))
    few = draw(st.integers(1, 4))
    match kind:
        case 0:
            del lines[at : at + few]
        case 1:
            lines[at:at] = [draw(st.sampled_from(LINES))]
        case 2:
            to = draw(st.integers(0, len(lines)))
            lines[to:to] = lines[at : at + few]
        case 3:
            lines[at : at + few] = [" " * draw(st.integers(1, 2)) + line for line in lines[at : at + few]]
        case 4:
            cut = draw(st.integers(1, 2))
            lines[at : at + few] = [line[cut:] for line in lines[at : at + few]]
        case 5:
            place = draw(st.integers(0, len(lines[at])))
            lines[at] = lines[at][:place] + draw(st.sampled_from(MARKS)) + lines[at][place:]
        case 6:
            lines[at:at] = [""] * few
        case 7 | 8:
            lines[at] = lines[at].replace("name: q", f"name: r{few}")
        case 9 | 10:
            inner = " " * lines[at].index("name: ")
            lines[at + 1 : at + 1] = [inner + line for line in draw(st.sampled_from(SETTINGS)).split("\n")]
        case 11:
            dash = " " * (lines[at].index("name: ") - 2) + "- "
            lines[at:at] = [f"{dash}name: new{few}", draw(st.sampled_from(("", "  # new", " " * len(dash) + "x: y")))]
        case _:
            lines[at:at] = [" " * draw(st.integers(0, 20)) + "# remark"] * few
    return "\n".join(lines)


def _outcome(reader: ConfigurationReader | None, text: str) -> Configuration | tuple[Problem, ...]:
    try:
        return load(text) if reader is None else reader.load(text)
    except ConfigError as error:
        return error.problems


@pytest.mark.parametrize("parser", ["CSafeLoader", "SafeLoader"])
def test_reading_again_is_reading(parser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was changed, well or badly, and in however many steps: the same values, the same problems and places."""
    if not hasattr(yaml, parser):
        pytest.skip("built without libyaml")
    monkeypatch.setattr(yaml_reader, "_LOADER", getattr(yaml, parser))

    @settings(max_examples=scale_examples(EXAMPLES if parser == "CSafeLoader" else EXAMPLES // 3), deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        text = data.draw(_texts(), "text")
        reader = ConfigurationReader()
        assert _outcome(reader, text) == _outcome(None, text)
        for _ in range(data.draw(st.integers(1, 5), "steps")):
            edited = data.draw(_edited(text), "edited")
            outcome = _outcome(reader, edited)
            event(f"{'good' if isinstance(outcome, Configuration) else 'bad'}, spared {min(reader.spared, 3)}")
            assert outcome == _outcome(None, edited)
            if isinstance(outcome, Configuration) or data.draw(st.booleans(), "go on from there"):
                text = edited

    check()
