"""What is read again when a text differs little from the last one, and what never is."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from kornel.core.config.loader import load
from kornel.core.config.model import Configuration
from kornel.core.config.rereading import ConfigurationReader
from kornel.core.config.text.problems import ConfigError, Problem
from tests.unit.config.reading import find, only

TEXT = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: '*'
        queues:
          - name: a
            queues:
              - name: x
                maxapplications: 4
              - name: y
                properties: {of.my.own: '1'}  # given again with its place
              - name: Z
                limits:
                  - limit: |+
                      kept

                    users: [ann]
                    maxapplications: 2
          - name: b
            queues:
            - name: x
            - name: y
          - name: c
"""
NOTHING = -1


def outcome(read: Callable[[str], Configuration], text: str) -> Configuration | tuple[Problem, ...]:
    """What *text* says, or what is wrong with it."""
    try:
        return read(text)
    except ConfigError as error:
        return error.problems


@pytest.mark.parametrize(
    ("old", "new", "spared"),
    [
        ("maxapplications: 4", "maxapplications: 5", ["a.y", "a.Z", "b", "c"]),
        ("'*'", "'ann'", ["a", "b", "c"]),
        ("default", "gpu", ["a", "b", "c"]),
        ("          - name: b\n", "          - name: b\n            parent: true\n", ["a", "b.x", "b.y", "c"]),
        ("          - name: b\n", "          - name: new\n          - name: b\n", ["a.x", "a.y", "b", "c"]),
        ("      - name: root\n", "      # said twice\n      - name: root\n", ["a", "b", "c"]),
        ("          - name: c\n", "", ["a", "b.x"]),
        ("partitions:\n", "partitions:\n" + 3 * "\n", ["a", "b", "c"]),
        ("    queues:\n", "    limits: [{users: [ann], maxapplications: 9}]\n    queues:\n", ["a", "b", "c"]),
    ],
)
def test_only_what_changed_is_read_again(old: str, new: str, spared: list[str]) -> None:
    """Queues in lines that stay, up to and with the line that ends them, are taken over."""
    reader = ConfigurationReader()
    before = reader.load(TEXT)
    text = TEXT.replace(old, new, 1)
    after = reader.load(text)
    assert after == load(text)
    assert reader.spared == len(spared)
    for path in (path.lower() for path in spared):
        assert find(only(after).root, path) is find(only(before).root, path)


def test_several_lines_may_change() -> None:
    """Far apart as well, while there are as many as before."""
    reader = ConfigurationReader()
    reader.load(TEXT)
    text = TEXT.replace("maxapplications: 4", "maxapplications: 5").replace("name: c", "name: d")
    assert reader.load(text) == load(text)
    assert reader.spared == len(["a.y", "a.Z", "b.x"])


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("maxapplications: 4", "maxapplications: &four 4"),
        TEXT.replace("maxapplications: 4", "maxapplications: !!int 4"),
        TEXT.replace("'*'", "!!str '*'"),
        TEXT.replace("'*'", "*nowhere"),
        TEXT.replace("maxapplications: 4", "<<: {maxapplications: 4}"),
        "%YAML 1.1\n---\n" + TEXT,
        TEXT.replace("\n", "\r\n"),
        TEXT.replace("'*'", "'\u2028*'"),
        TEXT.replace("  - name: default", "  - name: 'default"),
        TEXT + "...\n---\nmore: 1\n",
        TEXT.replace("    queues:\n      - name: root\n        submitacl: '*'\n        queues:\n", "    queues:\n"),
        TEXT.replace("      - name: root", "      - name: root\n        resources: {max: {vcore: 1}}"),
    ],
)
def test_unusual_and_bad_texts_are_read_in_full(text: str) -> None:
    """References between places, other line ends, and whatever is wrong: as if nothing had been read before."""
    reader = ConfigurationReader()
    reader.load(TEXT)
    assert outcome(reader.load, text) == outcome(load, text)
    assert reader.spared == NOTHING


def test_a_bad_text_changes_nothing_of_what_is_known() -> None:
    """The next good one is compared with the last good one, and warnings have their places."""
    reader = ConfigurationReader()
    reader.load(TEXT)
    for bad in (TEXT.replace("name: c", "name: b"), "\n\n" + TEXT.replace("name: root", "rename: root")):
        with pytest.raises(ConfigError):
            reader.load(bad)
    text = "\n" + TEXT
    assert reader.load(text).warnings == load(text).warnings
    assert reader.spared == len(["a", "b", "c"])


def test_warnings_move_with_their_queues() -> None:
    """Line and index are those of the new text, for warnings of one key and of the tree alike."""
    reader = ConfigurationReader()
    first = reader.load(TEXT).warnings
    text = TEXT.replace("              - name: x\n", "              - name: new\n              - name: x\n")
    second = reader.load(text).warnings
    assert len(first) == len(second) == 2
    assert [problem.line + 1 for problem in first] == [problem.line for problem in second]
    moved = [
        problem.path.replace("[2].limits", "[3].limits").replace("[1].properties", "[2].properties")
        for problem in first
    ]
    assert moved == [problem.path for problem in second]


def test_the_same_text_is_the_same_configuration() -> None:
    """It need not even be compared."""
    reader = ConfigurationReader()
    assert reader.load(TEXT) is reader.load(TEXT)


def test_nothing_waits_for_the_garbage_collector() -> None:
    """What was read before dies with its last owner: large trees are kept out of the collector's sight."""
    gc.collect()
    gc.disable()
    try:
        reader = ConfigurationReader()
        for text in (TEXT, TEXT.replace("'*'", "'ann'"), TEXT.replace("name: c", "name: b"), "a: b"):
            outcome(reader.load, text)
        del reader, text
        assert gc.collect() == 0
    finally:
        gc.enable()
