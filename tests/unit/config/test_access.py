"""Access lists: the table of config.md 9 with B10, V7, T73."""

from __future__ import annotations

import pytest

from kornel.core.domain.access import AccessList
from tests.unit.config.reading import errors, load_root, partition_text, root, warnings


def read(text: str) -> AccessList:
    return load_root(root(submitacl=text)).submit_acl


@pytest.mark.parametrize("text", ["*", " *", "* ", "* grp", "usr *", " * ", "* *"])
def test_everybody(text: str) -> None:
    """A wildcard in either place lets everybody in."""
    assert read(text).everybody


@pytest.mark.parametrize("text", ["", " ", "  ", "1a", " g/h"])
def test_nobody(text: str) -> None:
    """Nothing, or nothing that could match, lets nobody in."""
    assert read(text).nobody


@pytest.mark.parametrize(
    ("text", "users", "groups"),
    [
        ("a,b", "a b", ""),
        ("a,b g1,g2", "a b", "g1 g2"),
        (" g1", "", "g1"),
        ("a,*", "a", ""),
        ("*,a", "a", ""),
        ("a,,b", "a b", ""),
        ("a,a", "a", ""),
        ("a, b", "a", "b"),
        ("a  g", "a", "g"),
        (" a g ", "a", "g"),
        ("a#1", "a#1", ""),
        (" g.h", "", "g.h"),
        ("system:serviceaccount:ns:sa system:authenticated", "system:serviceaccount:ns:sa", "system:authenticated"),
    ],
)
def test_lists(text: str, users: str, groups: str) -> None:
    """Users, a blank, groups; the names are those that limits take."""
    found = read(text)
    assert (found.users, found.groups) == (tuple(users.split()), tuple(groups.split()))
    assert not found.everybody


@pytest.mark.parametrize("text", ["a b c", "a, b, c", "* a b"])
def test_v7_three_parts(text: str) -> None:
    """More than two parts are refused."""
    (problem,) = errors(partition_text(root(adminacl=text)))
    assert problem.path == "partitions[0].queues[0].adminacl"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1a", "user '1a'"),
        ("a,*", "user '*'"),
        ("a g/h", "group 'g/h'"),
        ("* g", "add nothing"),
        ("a, b", "are groups"),
    ],
)
def test_doubtful_lists_are_warned_of(text: str, said: str) -> None:
    """Entries that do nothing, and a blank that ends the users early, are said."""
    (message,) = warnings(partition_text(root(submitacl=text)))
    assert said in message
