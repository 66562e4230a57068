"""Docstrings and names read as ``docs/style.md`` asks: the figures of each package stay below its bounds.

``python -m tests.architecture.test_style`` prints the figures, and with a package (``core/rest``) what counts
against it. A bound is the worst that a package may be; it is lowered when the package gets better, never raised.

The last column is a budget: the lines of Python that a room of core, ``cli`` or ``shared`` may have. It is the figure
of the day, rounded up to the next fifty. Whoever takes lines out lowers it, without asking; it rises only in a commit
that says what left core for it, or why users need what came. Lines that move from one room to another take their budget
along.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tests.architecture.trees import list_nodes, parse_source

ROOT = Path(__file__).resolve().parents[2]


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NEVER_FIRST = words(
    "whether what who whom whose which where why how those that they them it its he she him others also such"
)
"""Words with which no sentence begins that states something: its subject or its verb would stand in the line above."""

CLAUSE_FIRST = words(
    "of as by for from in on at to with without until since after before because if then when while once unless instead"
    " except under beyond behind between among through into and or but so than though"
)
"""Words with which a sentence may begin if the main clause follows behind a comma: "After a break it ..." has none."""

NOUN_FIRST = words(
    "the a an all every each no one two three some several most many any another both nothing everything something"
    " nobody everybody somebody"
)
"""Words with which the docstring of a function does not begin: a function's begins with its verb."""

TERMS = words(
    # Verbs that the language, its library or a protocol gives to everybody who opens, fills or runs something.
    "open close start stop run main wait read write append pop push get set put add remove discard clear copy items"
    " keys values update flush connect register unregister send receive encode decode parse render dump load handle"
    # The field's.
    " admits allocate bind claim reserve unreserve release preempt schedule audit drain resize explain validate commit"
    " rollback apply cycle submit withdraw scale adapt"
    # Subcommands, which are named after what is typed.
    " serve status queues nodes applications asks users top events watch config history preemptions reservations bench"
    " version scenarios trace demo generate check preview show diff ask quota priority health apps configs certificate"
    " token completion info verify prune replay"
)
"""Functions of one word that say enough."""

METAPHORS = re.compile(
    r"\b(court(s|ed|ing)?|doom(s|ed)?|told|let(s|ting)? in|voices?|orphan(s|ed)?|graveyard|heirs?)\b", re.IGNORECASE
)
"""Pictures for mechanisms that have a term (docs/glossary.md)."""


@dataclass
class Figures:
    """What was counted in one package, and what counts against it."""

    docstrings: int = 0
    functions: int = 0
    public: int = 0
    dangling: list[str] = field(default_factory=list)
    nouns: list[str] = field(default_factory=list)
    undocumented: list[str] = field(default_factory=list)
    one_word: list[str] = field(default_factory=list)
    metaphors: list[str] = field(default_factory=list)
    lines: int = 0

    def shares(self) -> dict[str, float]:
        """Returns each figure in percent of what it was counted among; metaphors as a number."""
        return {
            "dangling": 100 * len(self.dangling) / max(self.docstrings, 1),
            "nouns": 100 * len(self.nouns) / max(self.functions, 1),
            "undocumented": 100 * len(self.undocumented) / max(self.public, 1),
            "one_word": 100 * len(self.one_word) / max(self.functions, 1),
            "metaphors": len(self.metaphors),
        }


@dataclass(frozen=True)
class Bounds:
    """The most that a package may have: shares in percent, metaphors as a number, and a room of core its lines."""

    dangling: float
    nouns: float
    undocumented: float
    one_word: float
    metaphors: int
    lines: int | None = None


HOUSE = ("core", "cli", "shared")
"""The folders whose rooms have a budget of lines: the core, the commands and what they share."""

BOUNDS = {
    "core": Bounds(0, 0, 0, 0, 0, 50),
    "core/archive": Bounds(0, 0, 0, 10, 0, 3_548),
    "core/commands": Bounds(0, 0, 0, 3, 0, 665),
    "core/config": Bounds(0, 0, 0, 14, 0, 3_540),
    "core/domain": Bounds(0, 0, 0, 3, 0, 2_651),
    "core/engine": Bounds(0, 0, 0, 3.5, 0, 6_973),
    "core/journal": Bounds(0, 0, 0, 4, 0, 5_869),
    "core/laws": Bounds(0, 0, 0, 5, 0, 740),
    "core/metrics": Bounds(0, 0, 0, 6, 0, 1_902),
    "core/model": Bounds(0, 0, 0, 2, 0, 4_588),
    "core/policies": Bounds(0, 0, 0, 3, 0, 2_735),
    "core/preemption": Bounds(0, 0, 0, 3.1, 0, 18_083),
    "core/process": Bounds(0, 0, 0, 5, 0, 2_042),
    "core/rest": Bounds(0, 0, 0, 12, 0, 4_699),
    "core/security": Bounds(0, 0, 0, 9, 0, 2_217),
    "core/service": Bounds(0, 0, 0, 10, 0, 12_045),
    "core/snapshot": Bounds(0, 0, 0, 5, 0, 1_493),
    "core/state": Bounds(0, 0, 0, 3.5, 0, 8_629),
    "core/telling": Bounds(0, 0, 0, 6, 0, 9_653),
    "core/tracing": Bounds(0, 0, 0, 13, 0, 300),
    "core/web": Bounds(0, 0, 0, 0, 0, 150),
    "cli": Bounds(0, 0, 0, 4, 0, 6_177),
    "shared": Bounds(0, 0, 0, 0, 0, 318),
    "shim_client": Bounds(0, 0, 0, 12, 0),
    "shim_mock": Bounds(0, 0, 0, 10, 0),
    "shim_local": Bounds(0, 0, 0, 3, 0),
    "conformance": Bounds(0, 0, 4, 7, 0),
    "simulate": Bounds(0, 0, 0, 8, 0),
}
ELSEWHERE = Bounds(30, 60, 30, 80, 60)
"""For folders of core that have no bounds of their own yet."""


def is_dangling(text: str) -> bool:
    """Tells whether *text* begins as if something stood before it."""
    sentence = re.split(r"(?<=[.:;])\s", " ".join(text.split()), maxsplit=1)[0]
    found = re.match(r"[A-Za-z]+", sentence)
    word = found[0].lower() if found else ""
    if word in NEVER_FIRST:
        return True
    _, comma, rest = sentence.partition(", ")
    return word in CLAUSE_FIRST and not (comma and len(rest.split()) >= 3)


def begins_with_noun(text: str) -> bool:
    """Tells whether *text*, of a function, begins with an article or a parameter instead of a verb."""
    found = re.match(r"[A-Za-z]+|[*(`]", text.strip())
    word = found[0].lower() if found else ""
    return word in NOUN_FIRST or word in {"*", "(", "`"}


def is_one_word(name: str) -> bool:
    """Tells whether a function is called by one word that is no term; a leading underscore does not count."""
    bare = name.strip("_")
    return "_" not in bare and bare.lower() not in TERMS


Function = ast.FunctionDef | ast.AsyncFunctionDef


def decorators_of(node: Function) -> set[str]:
    """Returns the last names of what decorates *node*."""
    decorators = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
    return {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in decorators}


def is_given(node: Function) -> bool:
    """Tells whether a protocol chose the name: a dunder, an override, or a case, which its number names."""
    return node.name.startswith("__") or bool(decorators_of(node) & {"override", "case"})


def is_property(node: Function) -> bool:
    """Tells whether *node* is read like a field, so that it is named like one."""
    return bool(decorators_of(node) & {"property", "cached_property", "setter"})


def documented(body: list[ast.stmt], owner: str = "", public: bool = True) -> Iterator[tuple[str, ast.stmt, bool, str]]:
    """Yields each class and function below *body*: its name, its node, whether it is public, its docstring or ""."""
    for node in body:
        if isinstance(node, ast.ClassDef | Function):
            shown = public and not node.name.startswith("_")
            yield owner + node.name, node, shown, ast.get_docstring(node) or ""
            yield from documented(node.body, f"{owner}{node.name}.", shown and isinstance(node, ast.ClassDef))


def attributes(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the docstrings that stand below a constant or a field, with their lines."""
    for node in list_nodes(path):
        body = getattr(node, "body", None)
        for before, after in pairwise(body) if isinstance(body, list) else ():
            if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
                value = after.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield after.lineno, value.value


def count(path: Path, figures: Figures) -> None:
    """Adds what *path* holds to *figures*."""
    tree = parse_source(path)
    where = path.relative_to(ROOT)
    figures.lines += len(path.read_text(encoding="utf-8").splitlines())
    texts = [(1, ast.get_docstring(tree) or ""), *attributes(path)]
    for name, node, public, text in documented(tree.body):
        place = f"{where}:{node.lineno}: {name}"
        texts.append((node.lineno, text))
        figures.public += public
        if public and not text and not (isinstance(node, Function) and is_given(node)):
            figures.undocumented.append(place)
        if METAPHORS.search(name.rpartition(".")[2].replace("_", " ")):
            figures.metaphors.append(place)
        if isinstance(node, Function) and not is_given(node):
            figures.functions += 1
            if is_one_word(node.name) and not is_property(node):
                figures.one_word.append(place)
            if text and not is_property(node) and begins_with_noun(text):
                figures.nouns.append(f"{place}: {text.splitlines()[0]}")
    for line, text in texts:
        if text:
            figures.docstrings += 1
            if is_dangling(text):
                figures.dangling.append(f"{where}:{line}: {text.strip().splitlines()[0]}")
            figures.metaphors += [f"{where}:{line}: {found[0]}" for found in METAPHORS.finditer(text)]


@cache
def measure() -> dict[str, Figures]:
    """Returns the figures of each package, folders of core by themselves."""
    packages: dict[str, Figures] = defaultdict(Figures)
    for package in (*HOUSE, "shim_client", "shim_mock", "shim_local", "conformance", "simulate"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).parts
            count(path, packages["/".join(parts[:2]) if package == "core" and len(parts) > 2 else package])
    return dict(packages)


PACKAGES = (
    *(*HOUSE, "shim_client", "shim_mock", "shim_local", "conformance", "simulate"),
    *(f"core/{path.name}" for path in sorted((ROOT / "core").iterdir()) if path.is_dir() and any(path.rglob("*.py"))),
)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_gets_no_worse(package: str) -> None:
    """No share is above its bound; what counts against the package is printed."""
    figures, bounds = measure()[package], BOUNDS.get(package, ELSEWHERE)
    for name, share in figures.shares().items():
        assert share <= getattr(bounds, name), f"{name}: {share:.1f}\n" + "\n".join(getattr(figures, name))


@pytest.mark.parametrize("package", [package for package in PACKAGES if package.split("/")[0] in HOUSE])
def test_a_room_stays_within_its_budget(package: str) -> None:
    """What comes into a room of core pays by what leaves it, or says why users need it."""
    budget = BOUNDS.get(package, ELSEWHERE).lines
    assert budget is not None, f"{package} has no budget of lines"
    assert measure()[package].lines <= budget


def test_bounds_belong_to_packages() -> None:
    """A package that is gone takes its bounds along."""
    assert set(PACKAGES) == set(measure())
    assert set(BOUNDS) <= set(PACKAGES)


@pytest.mark.parametrize(
    ("text", "dangling"),
    [
        ("Whether it is closed.", True),
        ("Those that wait.", True),
        ("Of two nodes the one with more room.", True),
        ("As :meth:`updates`, one at a time.", False),
        ("By node, what is claimed there.", False),
        ("When the core restarts, the stream is opened again.", False),
        ("When the core restarts.", True),
        ("Returns whether it is closed.", False),
        ("The room of a node.", False),
        ("*leaf* is removed.", False),
    ],
)
def test_dangling_words_are_found(text: str, dangling: bool) -> None:
    assert is_dangling(text) is dangling


def test_terms_of_one_word_are_allowed() -> None:
    assert not is_one_word("close")
    assert not is_one_word("_close")
    assert not is_one_word("park_group")
    assert is_one_word("forget")


def main() -> None:
    """Prints the figures of all packages, or all that counts against those named on the command line."""
    for package, figures in measure().items():
        if package in sys.argv[1:]:
            for name in figures.shares():
                print(f"{package}: {name}", *getattr(figures, name), sep="\n  ")
        else:
            shares = (f"{name} {share:5.1f}" for name, share in figures.shares().items())
            print(f"{package:18}", *shares, f"lines {figures.lines:6,}")
    functions = sum(each.functions for each in measure().values())
    docstrings = sum(each.docstrings for each in measure().values())
    print(f"one-word names: {100 * sum(len(each.one_word) for each in measure().values()) / functions:.1f} %")
    print(f"docstrings that dangle: {100 * sum(len(each.dangling) for each in measure().values()) / docstrings:.1f} %")


if __name__ == "__main__":
    main()
