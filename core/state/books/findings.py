"""The findings that an audit of the books can report."""

from __future__ import annotations

from typing import NamedTuple


class Broken(NamedTuple):
    """An invariant that does not hold. *rule* names it (``I4``), *where* the record, *detail* the numbers."""

    rule: str
    where: str
    detail: str
