"""The rules of REST have every route that the core serves, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from kornel.core.rest.application import all_rows
from kornel.core.rest.serving.rows import PREFIX

PAGE = Path(__file__).parents[2] / "docs" / "spec" / "rest.md"
ROW = re.compile(r"^\| (?P<kind>[RDXP])\d+ \| (?P<paths>[^|]*) \|", re.MULTILINE)
ROUTE = re.compile(r"(?:(GET|POST) )?(/[\w:/.-]*)")
NO_ROUTES = {("GET", "/")}
"""Paths that belong to nobody in the table of rows: the web page has them."""


def documented_routes() -> list[tuple[str, str]]:
    """Method and path of each route in the tables of section 3."""
    text = PAGE.read_text(encoding="utf-8").partition("## 3. Routes")[2].partition("\n## 4.")[0]
    return [
        (method or "GET", (PREFIX if row["kind"] in "RX" else "") + path)
        for row in ROW.finditer(text)
        for method, path in ROUTE.findall(row["paths"])
    ]


def test_the_rules_have_every_route() -> None:
    served = [(row.method, re.sub("{([a-z]+)}", r":\1", row.path)) for row in all_rows()]
    documented = documented_routes()
    assert len(documented) == len(set(documented)), "each route has one row"
    assert set(documented) - NO_ROUTES == set(served)
