"""Holds the options with which the command line connects to a core; :mod:`.channels` makes channels from them.

This module does not import gRPC, so that a command without a connection does not wait for that.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEFAULT_TIMEOUT_S: Final = 5.0
DUMP_TIMEOUT_S: Final = 60.0


class ConnectionNotPossible(ValueError):
    """The files or options for the connection cannot be used. The text never quotes a secret."""


@dataclass(frozen=True, slots=True)
class Connection:
    """The files and names to connect with. All empty: plain text, and no identity.

    ca           PEM file of the CA that signed the core's certificate; with it, or with a certificate, TLS is used
    certificate  PEM file, with ``key``: shown to the core
    token_file   bearer token; never sent in plain text to another machine
    server_name  the name in the core's certificate; empty: it is the host of the address
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token_file: Path | None = None
    server_name: str = ""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConnectionNotPossible("--cert and --key belong together: one of them is missing")


CONNECTION: Final[ContextVar[Connection]] = ContextVar("connection")
