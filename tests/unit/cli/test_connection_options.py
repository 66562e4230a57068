"""Options about the connection stand before the command or after it."""

from __future__ import annotations

import pytest

from kornel.cli.connection_options import move_connection_options


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("queues --ca f", "--ca f queues"),
        ("--ca f queues", "--ca f queues"),
        ("--core a:1 queues root", "queues root --core a:1"),
        ("--core=a:1 queues", "queues --core=a:1"),
        ("history apps --token-file t --core a:1", "--token-file t history apps --core a:1"),
        ("--grpc a:1 history apps --cert=c --key k", "--cert=c --key k history apps --grpc a:1"),
        ("explain -- --ca", "explain -- --ca"),
        ("--core a:1 explain -- --x", "explain --core a:1 -- --x"),
        ("queues --ca", "queues --ca"),
        ("--core a:1 --help", "--core a:1 --help"),
        ("--version", "--version"),
        ("", ""),
    ],
)
def test_each_goes_where_it_is_read(given: str, read: str) -> None:
    assert move_connection_options(given.split()) == read.split()
