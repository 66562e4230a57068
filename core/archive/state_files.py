"""Finds the file in the state directory that belongs to one core of this user: each core has its own, named after its
address.

The core at the usual port has the plain name (``history.db``); any other one has its port or socket in the name
(``history-50052.db``). A file from the time when all cores shared the plain name belongs to the first core that starts,
whose name is then written to a file beside it (``history.db.core``).
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

USUAL_PORT: Final = "50051"
_ANY_PORT: Final = "0"
_SOCKET: Final = "unix:"
_HERE: Final = frozenset({"", "localhost", "127.0.0.1", "0.0.0.0", "::1", "::"})
_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]", re.ASCII)
_LONGEST_NAME: Final = 40


def find_own_place(directory: Path, stem: str, suffix: str, address: str) -> Path:
    """Returns the path of the core at *address*: *stem* and *suffix* alone, or with the core's name in between.

    An empty address stands for the only core. Claims the plain name if it suits this core and no core has it yet.
    """
    plain = directory / f"{stem}{suffix}"
    if not address:
        return plain
    name = name_core(address)
    own = directory / f"{stem}-{name}{suffix}"
    if name == _ANY_PORT or own.exists():
        return own
    if name == USUAL_PORT or plain.exists() or _owner_file(plain).exists():
        return plain if _claim_place(plain, name) == name else own
    return own


def name_core(address: str) -> str:
    """Returns the name of the core that serves at *address*, as a part of a file name."""
    if address.startswith(_SOCKET):
        path = Path(address.removeprefix(_SOCKET)).absolute()
        digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
        return f"{_replace_odd(path.name)}-{digest}"
    host, _, port = address.rpartition(":")
    host = host.strip("[]").lower()
    return port if host in _HERE else f"{_replace_odd(host)}-{port}"


def _replace_odd(text: str) -> str:
    return _OTHER.sub("-", text)[:_LONGEST_NAME]


def _owner_file(place: Path) -> Path:
    return place.with_name(f"{place.name}.core")


def _claim_place(place: Path, name: str) -> str:
    """Returns the name of the core to which *place* belongs; if it belonged to none, it belongs to *name* from now
    on."""
    owner = _owner_file(place)
    # If nothing can be written there, there is no history either, and the core reports that.
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), owner.open("x", encoding="utf-8") as claimed:
            claimed.write(name)
        # If it is empty, another core has just made the file and is about to write its name.
        return owner.read_text(encoding="utf-8").strip() or "?"
    return name
