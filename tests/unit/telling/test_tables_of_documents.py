"""One table makes a document and its schema, and shows every field of a record or says at once that it cannot."""

from __future__ import annotations

from typing import NamedTuple

import jsonschema_rs
import pytest

from kornel.core.telling.encoding.documents import (
    DOCUMENTS,
    Document,
    always,
    apart,
    if_any,
    if_set,
    listed,
    nested,
    nested_itself,
)
from kornel.core.telling.encoding.records import ITSELF, PlanError, made
from kornel.core.telling.encoding.values import COUNT, FLAG, PRIORITY, TEXT, TEXTS, WHOLE


class Leaf(NamedTuple):
    name: str
    size: int = 0


class Tree(NamedTuple):
    name: str
    priority: int = 0
    depth: int | None = None
    words: tuple[str, ...] = ()
    leaf: Leaf | None = None
    below: tuple[Tree, ...] = ()
    above: Tree | None = None


LEAF = Document("", Leaf, {"leafName": if_any(TEXT, "name"), "leafSize": if_any(COUNT, "size")})
HEAD = Document("", Tree, {"title": always(TEXT, made(str.upper, "name"))}, partial=True)
TREE = Document(
    "Tree",
    Tree,
    lambda tree: {
        "treeName": always(TEXT, "name"),
        "head": always(nested(HEAD), ITSELF),
        "words": if_any(TEXTS, "words"),
        "priority": always(PRIORITY, "priority", promised=False),
        "depth": if_set(WHOLE, "depth"),
        "leaf": if_any(nested(LEAF), "leaf"),
        "below": if_any(listed(tree), "below"),
        "above": if_any(nested_itself(tree), "above"),
        "more": apart(FLAG),
    },
    description="Grows.",
)
del DOCUMENTS["Tree"]  # It is not among the documents of REST, which other tests list.


def test_a_document_has_its_fields_in_the_order_of_the_table() -> None:
    found = TREE.write(Tree("oak", -2, 0, ("a",), Leaf("l", 3), (Tree("ash"),), Tree("elm")))
    ash = {"treeName": "ash", "head": {"title": "ASH"}, "priority": "0"}
    assert list(found.items()) == [
        ("treeName", "oak"),
        ("head", {"title": "OAK"}),
        ("words", ["a"]),
        ("priority", "-2"),
        ("depth", 0),
        ("leaf", {"leafName": "l", "leafSize": 3}),
        ("below", [ash]),
        ("above", {"treeName": "elm", "head": {"title": "ELM"}, "priority": "0"}),
    ]


def test_what_is_empty_or_unset_is_left_out() -> None:
    assert list(TREE.write(Tree("ash"))) == ["treeName", "head", "priority"]
    assert "leaf" not in TREE.write(Tree("ash", leaf=Leaf(""))), "nothing is left of it"


def test_some_fields_may_be_left_out_of_all() -> None:
    found = TREE.writing_without("head", "words")(Tree("oak", words=("a",)))
    assert found == {"treeName": "oak", "priority": "0"}


def test_the_schema_says_the_same() -> None:
    assert TREE.schema["required"] == ["treeName", "head"]
    assert TREE.schema["description"] == "Grows."
    assert TREE.schema["properties"]["below"] == {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}
    assert list(TREE.schema["properties"]["leaf"]["properties"]) == ["leafName", "leafSize"]
    schema = {"$ref": "#/components/schemas/Tree", "components": {"schemas": {"Tree": TREE.schema}}}
    validator = jsonschema_rs.validator_for(schema)
    whole = TREE.write(Tree("oak", -2, 0, ("a",), Leaf("l", 3), (Tree("ash"),), Tree("elm")))
    assert validator.is_valid(whole)
    assert not validator.is_valid({**whole, "depth": "deep"})
    assert not validator.is_valid({"treeName": "oak"})


def test_a_field_that_goes_nowhere_is_refused() -> None:
    with pytest.raises(PlanError, match="Leaf as JSON: nowhere goes size"):
        Document("", Leaf, {"name": always(TEXT, "name")})
    Document("", Leaf, {"name": always(TEXT, "name")}, left_out=("size",))


def test_what_is_listed_wrongly_is_refused() -> None:
    for source, left_out, said in (
        ("colour", ("size", "name"), "Leaf: there is no colour"),
        ("name", ("size", "colour"), "there is no colour"),
        ("name", ("size", "name"), "listed as left out, but shown, is name"),
    ):
        with pytest.raises(PlanError, match=said):
            Document("", Leaf, {"name": always(TEXT, source)}, left_out=left_out)
