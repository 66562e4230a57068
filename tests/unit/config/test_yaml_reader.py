"""Strict YAML: what is refused, where it is found, and the bounds a hostile text meets (config.md 1.1)."""

from __future__ import annotations

import pytest
import yaml

from kornel.core.config.loader import load
from kornel.core.config.text import yaml_reader
from kornel.core.config.text.problems import MOST_ERRORS, ConfigError
from tests.unit.config.reading import errors, find, only

BASE = "partitions:\n  - queues:\n      - name: root\n"


@pytest.fixture(params=["CSafeLoader", "SafeLoader"], autouse=True)
def _each_parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here holds for both parsers of PyYAML."""
    if not hasattr(yaml, request.param):
        pytest.skip("built without libyaml")
    monkeypatch.setattr(yaml_reader, "_LOADER", getattr(yaml, request.param))


def test_problem_has_place_path_and_expectation() -> None:
    """A problem says where, which key, what is there and what should be."""
    (problem,) = errors(BASE + "        submitACL: '*'\n")
    assert (problem.line, problem.column, problem.path) == (4, 9, "partitions[0].queues[0].submitACL")
    assert "'submitACL'" in problem.message
    assert problem.expected == "'submitacl'"
    assert str(problem).startswith("line 4, column 9: partitions[0].queues[0].submitACL: unknown key")


def test_all_problems_are_reported_together() -> None:
    """One reading finds every error, in the order of the text."""
    text = BASE + "        maxapplications: -1\n        parent: 'true'\n    foo: 1\nbar: 2\n"
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert [problem.line for problem in caught.value.problems] == [4, 5, 6, 7]
    assert "4 errors" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("partitions: []\npartitions: []\n", 2, "given twice"),
        (BASE + "        properties: {a: 1, a: 2}\n", 4, "given twice"),
        (BASE + "        limits:\n          - users: bob\n", 5, "'bob' found"),
        (BASE + "    nodesortpolicy: fair\n", 4, "'fair' found"),
        (BASE + "        properties: {a: {b: c}}\n", 4, "a mapping found"),
        (BASE + "        queues: {a: b}\n", 4, "a mapping found"),
        (BASE + "        ? [a]\n        : b\n", 4, "a key cannot be"),
        (BASE + "---\na: b\n", 4, "second document"),
        (BASE + "        submitacl: *\n", 4, "not valid YAML"),
        (BASE + "\tparent: true\n", 4, "not valid YAML"),
        (BASE + "        submitacl: 'x\n", 0, "not valid YAML"),
        (BASE + "        submitacl: *nowhere\n", 4, "no anchor"),
        (BASE + "        properties: &a {b: *a}\n", 4, "contains itself"),
        (BASE + "        properties: !python/object:os.system {}\n", 4, "tag"),
        (BASE + "        parent: \x00\n", 4, "U+0000"),
        (BASE + "        parent: \ud800\n", 4, "U+D800"),
        ("- a\n", 1, "a list found"),
        ("text", 1, "'text' found"),
    ],
)
def test_refused(text: str, line: int, said: str) -> None:
    """What is no strict YAML of this schema is refused at its line."""
    found = errors(text)
    assert any(said in problem.message for problem in found), found
    assert line in (0, *[problem.line for problem in found])


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("properties: {my.password: '[hidden]'}", 35),
        ("properties: {my.password: [hidden]}", 35),
        ("properties: {url: 'ldap://[hidden]@host'}", 27),
        ("properties: {a: 'password=[hidden]'}", 25),
        ("properties: {'krn [hidden]': x}", 22),
        ("properties: {my.password: |-\n          [hidden]\n        }", 0),
    ],
)
def test_marks_of_hidden_secrets_do_not_come_into_force(line: str, column: int) -> None:
    """Else they would replace the secrets. The place is told, so that the secret can be put there."""
    found = errors(f"{BASE}        {line}\n")
    if column:
        marked = [problem for problem in found if "[hidden] stands where a secret was" in problem.message]
        assert [(problem.line, problem.column) for problem in marked] == [(4, column)]


def test_hidden_is_a_name_like_any_other() -> None:
    """A list with a group of that name, and a mark in a comment, are no marks."""
    text = f"{BASE}        # password: [hidden]\n        limits: [{{groups: [hidden], maxapplications: 1}}]\n"
    assert load(text).partitions[0].root.limits[0].groups == ("hidden",)


def test_texts_stay_as_they_are_written() -> None:
    """No text is taken for a number, a bool or a time; a null is empty text."""
    text = BASE + "        properties: {a: 010, b: 1e3, c: yes, d: 1:30, e: 1_000, f: ~, g: '~', h: null, i: }\n"
    assert dict(only(load(text)).root.properties) == {
        "a": "010", "b": "1e3", "c": "yes", "d": "1:30", "e": "1_000", "f": "", "g": "~", "h": "", "i": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("written", "value"),
    [(word, True) for word in ("true", "True", "TRUE", "yes", "on", "y", "Y", "ON")]
    + [(word, False) for word in ("false", "False", "FALSE", "no", "off", "n", "~", "")],
)
def test_t11_bool(written: str, value: bool) -> None:
    """The plain words for yes and no are bools, a null is no."""
    text = BASE + f"        queues:\n          - name: a\n            parent: {written}\n"
    assert find(only(load(text)).root, "a").parent is value


@pytest.mark.parametrize("written", ["'true'", '"yes"', "tRUE", "1", "0", "maybe", "[]", "!!str true"])
def test_t11_no_bool(written: str) -> None:
    """Quoted or other text is no bool."""
    (problem,) = errors(BASE + f"        parent: {written}\n")
    assert problem.path == "partitions[0].queues[0].parent"


@pytest.mark.parametrize(("written", "value"), [("0", 0), ("7", 7), ("~", 0), ("18446744073709551615", 2**64 - 1)])
def test_t11_unsigned(written: str, value: int) -> None:
    """Plain digits up to 2^64-1 are a count, a null is 0."""
    assert only(load(BASE + f"        maxapplications: {written}\n")).root.max_applications == value


@pytest.mark.parametrize(
    "written", ["-1", "'10'", "10.5", "10.0", "ten", "010", "0x10", "1_000", "1e3", "18446744073709551616", "{}"]
)
def test_t11_no_unsigned(written: str) -> None:
    """Negative, quoted, textual, fractional and ambiguous numbers are refused (B4)."""
    (problem,) = errors(BASE + f"        maxapplications: {written}\n")
    assert problem.path == "partitions[0].queues[0].maxapplications"


def test_anchors_aliases_and_merge_keys() -> None:
    """An alias repeats a value; ``<<`` adds what the mapping does not set itself, the first source winning."""
    text = """\
partitions:
  - queues:
      - name: root
        queues:
          - &a {name: a, resources: {max: &m {vcore: 4, memory: 8}}}
          - {name: b, resources: {max: {vcore: 2, <<: *m}}}
          - {<<: [{name: c, parent: true}, *a]}
          - {name: d, resources: {max: *m}}
"""
    top = only(load(text)).root
    assert dict(find(top, "b").max or {}) == {"vcore": 2000, "memory": 8}
    assert (find(top, "c").parent, dict(find(top, "c").max or {})) == (True, {"vcore": 4000, "memory": 8})
    assert find(top, "d").max == find(top, "a").max


@pytest.mark.parametrize(
    "text", [BASE + "        <<: 5\n", BASE + "        <<: [5]\n", BASE + "        <<: {}\n        <<: {}\n"]
)
def test_bad_merge(text: str) -> None:
    """Only mappings can be merged, and only one merge key stands in a mapping."""
    assert errors(text)[0].line in (4, 5)


def test_billion_laughs_are_cut_short() -> None:
    """Aliases count in full, so a text cannot blow up beyond the bound."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert any("too many entries" in problem.message for problem in errors("\n".join(lines)))


def test_merge_bombs_are_cut_short() -> None:
    """Merging copies entries, which count as well."""
    big = "a: &a {" + ", ".join(f"k{n}: v" for n in range(2000)) + "}\n"
    text = big + "b:\n" + "".join("  - {<<: *a}\n" for _ in range(2000))
    assert any("too many entries" in problem.message for problem in errors(text))


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 5_000, "- " * 5_000, "[" * 5_000 + "]" * 5_000])
def test_absurd_nesting_is_refused(text: str) -> None:
    """Nesting is bounded before anything recurses into it."""
    assert errors(text)


def test_nesting_by_aliases_is_refused() -> None:
    """Depth counts through aliases too."""
    lines = ["a0: &a0 [[[[[[[[x]]]]]]]]"]
    lines += [f"a{n}: &a{n} [[[[[[[[*a{n - 1}]]]]]]]]" for n in range(1, 40)]
    assert any("nested too deeply" in problem.message for problem in errors("\n".join(lines)))


def test_deepest_queue_tree() -> None:
    """Sixty levels of queues are within the bound."""
    text, indent = "partitions:\n- queues:\n", "  "
    for level in range(60):
        text += f"{indent}- name: q{level}\n{indent}  queues:\n"
        indent += "  "
    assert only(load(text)).root.children[0].name == "q0"


def test_too_large() -> None:
    """Text above 4 MiB is refused unread, in bytes and not in characters."""
    for text in ("#" * (4 * 2**20 + 1), "#" + "ü" * (2 * 2**20)):
        (problem,) = errors(text)
        assert "too large" in problem.message


def test_flood_of_errors_ends_the_reading() -> None:
    """After so many errors nobody reads on."""
    found = errors("".join(f"k{n}: v\n" for n in range(10_000)))
    assert len(found) == MOST_ERRORS + 1
    assert "too many errors" in found[-1].message


def test_flood_of_warnings_is_counted() -> None:
    """Past a thousand, warnings are only counted."""
    properties = ", ".join(f"k{n}: v" for n in range(1500))
    found = load(BASE + f"        properties: {{{properties}}}\n").warnings
    assert len(found) == 1001
    assert found[-1].message == "500 more warnings are not shown"
