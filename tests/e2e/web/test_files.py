"""The files of the page as HTTP sees them; no browser needed."""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path

import pytest

from tests.e2e.rest.shim import Cluster, rest_cluster

STATIC = files("kornel.core.web") / "static"
FOLDER = Path(str(STATIC))


@pytest.fixture
async def core() -> AsyncIterator[Cluster]:
    async with rest_cluster() as cluster:
        yield cluster


async def test_the_page_is_at_the_root_and_lets_nothing_from_elsewhere_in(core: Cluster) -> None:
    answer = await core.http.get("/")
    assert answer.status_code == 200
    assert answer.text == (STATIC / "index.html").read_text(encoding="utf-8")
    policy = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_everything_that_the_page_names_is_there(core: Cluster) -> None:
    """What is linked, and what modules import, is served with a type that browsers take for what it is."""
    types = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    html = (await core.http.get("/")).text
    wanted = [f"/{name}" for name in re.findall(r'(?:src|href)="([\w/]+\.\w+)"', html)]
    seen: set[str] = set()
    while wanted:
        path = wanted.pop()
        if path in seen:
            continue
        seen.add(path)
        answer = await core.http.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["content-type"].startswith(types[path.rpartition(".")[2]])
        if path.endswith(".js"):
            named = re.findall(r'(?:from |import\()"(\.[\w./]+)"', answer.text)
            wanted += [str(answer.url.join(name).path) for name in named]
    assert {"/app/main.js", "/app/views/nodes.js", "/theme.js", "/style/base.css", "/vendor/uplot/uPlot.esm.js"} <= seen
    modules = {f"/app/{path.relative_to(FOLDER / 'app').as_posix()}" for path in (FOLDER / "app").rglob("*.js")}
    assert modules <= seen, "every module is used"


async def test_a_browser_that_has_a_file_is_not_sent_it_again(core: Cluster) -> None:
    first = await core.http.get("/app/main.js")
    again = await core.http.get("/app/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = await core.http.get("/app/main.js", headers={"If-None-Match": '"other"'})
    assert other.status_code == 200


async def test_files_are_compressed_for_those_who_take_it(core: Cluster) -> None:
    async with core.http.stream("GET", "/style/base.css", headers={"Accept-Encoding": "gzip"}) as answer:
        packed = b"".join([chunk async for chunk in answer.aiter_raw()])
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed) == (STATIC / "style" / "base.css").read_bytes()
    plain = await core.http.get("/style/base.css", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize(
    "path",
    [
        "/static/index.html",
        "/app",
        "/app/",
        "/app/none.js",
        "/%2e%2e/page.py",
        "/app/%2e%2e/%2e%2e/page.py",
        "/page.py",
    ],
)
async def test_nothing_else_is_there(core: Cluster, path: str) -> None:
    answer = await core.http.get(path)
    assert (answer.status_code, answer.text) == (404, "404 page not found")


async def test_files_are_for_reading(core: Cluster) -> None:
    assert (await core.http.head("/")).status_code == 200
    answer = await core.http.post("/", content=b"x")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
