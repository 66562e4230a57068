"""The documentation as a site: it builds strictly, shows every call and route, and needs no other host."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, Page, sync_playwright

from docs.site import asks_page, commands_reference, grpc_reference, reasons_page, rest_reference, shim_client_reference
from kornel import shim_client
from kornel.core.config.keys import declared, properties
from kornel.core.domain.preemption_kinds import KINDS
from tests.browsers import find_browser
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# Blocks of text with arrows in them that are wider than the column, so that a part is not seen until somebody scrolls.
CUT_DIAGRAMS = """() => [...document.querySelectorAll("pre > code")]
  .filter((code) => /[▼►]/.test(code.textContent) && code.scrollWidth > code.clientWidth)
  .map((code) => code.textContent)"""

# Identifiers in tables that take more than one line although nothing in them allows a break.
BROKEN_WORDS = """() => [...document.querySelectorAll("td code")]
  .filter((code) => !/[\\s-]/.test(code.textContent) && code.getClientRects().length > 1)
  .map((code) => code.textContent)"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = find_browser()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a browser without a network."""
    opened = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True).new_page()
    opened.set_default_timeout(PATIENCE_S * 1_000)
    yield opened
    opened.context.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "found"),
    [("natural_factor", "preemption"), ("user-limit-factor", "from-yarn"), ("starving", "preemption")],
)
def test_the_search_works_from_files(site: Path, page: Page, words: str, found: str) -> None:
    """Somebody who has the folder and no server finds a page by its words, hyphenated or with another ending."""
    page.goto((site / "index.html").as_uri())
    page.locator(".md-search__input").click()
    page.keyboard.type(words)
    page.locator(f'.md-search-result__item a[href*="{found}.html"]').first.wait_for(state="attached")


@pytest.mark.long
def test_identifiers_in_tables_are_not_broken(site: Path, page: Page) -> None:
    """At the width of a small notebook, on the pages with the longest names."""
    for name in ("configuration-reference", "preemption", "metrics", "from-yarn", "reference/commands"):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate(BROKEN_WORDS) == [], name


@pytest.mark.long
def test_no_code_shows_the_backslash_of_a_pipe(site: Path) -> None:
    assert "<code>--log-format json|console</code>" in (site / "reference/commands.html").read_text()
    escaped = [
        page.name for page in site.rglob("*.html") if re.search(r"<code>[^<]*\\\|[^<]*</code>", page.read_text())
    ]
    assert escaped == []


@pytest.mark.long
def test_diagrams_fit_the_page(site: Path, page: Page) -> None:
    """Whatever is drawn with lines is seen whole; what the site cannot draw is not shown as source."""
    drawn = [path for path in site.rglob("*.html") if re.search("[▼►]", path.read_text())]
    assert {"architecture.html", "shim-author.html", "gang-scheduling.html"} <= {path.name for path in drawn}
    for path in drawn:
        page.goto(path.as_uri())
        assert page.evaluate(CUT_DIAGRAMS) == [], path.name
    assert not [path.name for path in site.rglob("*.html") if "stateDiagram" in path.read_text()]


class _Loaded(HTMLParser):
    """What a browser fetches to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        name = {"script": "src", "img": "src", "iframe": "src", "link": "href"}.get(tag)
        self.found.update(value for key, value in attrs if key == name and value)


@pytest.mark.long
def test_the_site_fetches_nothing_from_other_hosts(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len(list(DOCS.glob("*.md")))
    for page in pages:
        loaded = _Loaded()
        loaded.feed(page.read_text())
        assert not [one for one in loaded.found if re.match(r"(https?:)?//", one)], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", sheet.read_text()), sheet


@pytest.mark.long
def test_the_grpc_reference_has_every_declaration(site: Path) -> None:
    """Each service, method, message and field of the .proto files is there, with its comment where it has one."""
    text = (site / "reference/grpc.html").read_text()
    files = grpc_reference.descriptors()
    assert {file.package for file in files} == {"si.v1", "kornel.v1"}
    for file in files:
        for service in file.service:
            assert f'id="{file.package.replace(".", "-")}-{service.name.lower()}"' in text
            assert not [method.name for method in service.method if f"<strong>{method.name}</strong>" not in text]
        for message in file.message_type:
            assert f'id="{file.package.replace(".", "-")}-{message.name.lower()}"' in text
            assert not [field.name for field in message.field if f"<code>{field.name}</code>" not in text]
    assert "Makes the RM known and builds its partitions and queues." in text


@pytest.mark.long
def test_the_rest_reference_has_every_route_and_schema(site: Path) -> None:
    text = (site / "reference/rest.html").read_text()
    document = rest_reference.document()
    assert len(document["paths"]) > 20
    assert not [path for path in document["paths"] if f"<code>{path}</code>" not in text]
    for name in document["components"]["schemas"]:
        assert f'id="schema-{name.lower()}"' in text


def test_every_command_and_option_is_in_the_reference() -> None:
    text = commands_reference.page()
    for heading in ("kornel serve", "kornel config check", "kornel security certificate", "kornel-shim-mock run"):
        assert re.search(rf"^#+ {heading}$", text, re.MULTILINE)
    for option in ("--rest-address HOST:PORT", "--log-format json\\|console", "--tls-client-ca FILE"):
        assert f"`{option}`" in text


def test_the_page_of_reasons_is_what_the_code_says() -> None:
    """Each word of each set has a meaning, and the page is up to date."""
    text = reasons_page.page()
    assert not re.findall(r"^\| `.*` \|  \|", text, re.MULTILINE)
    assert reasons_page.PAGE.read_text() == text, "write it again: python -m docs.site.reasons_page"


def test_the_page_of_asks_is_what_the_table_says() -> None:
    """Each place and each move has a meaning, and the page is up to date."""
    text = asks_page.page()
    assert not re.findall(r"^\| `.*` \|  \|", text, re.MULTILINE)
    assert asks_page.PAGE.read_text() == text, "write it again: python -m docs.site.asks_page"


def test_the_client_library_is_in_the_reference() -> None:
    """Each public name and each method, with words."""
    text = shim_client_reference.page()
    assert not [name for name in shim_client.__all__ if f"### {name}\n" not in text]
    for name, method in inspect.getmembers(shim_client.ShimClient, inspect.isfunction):
        assert name.startswith("_") or (f"ShimClient.{name}(" in text and method.__doc__), name


def test_links_to_sources_lead_somewhere() -> None:
    """They are links in a checkout; on the site they are text."""
    broken = [
        f"{page.name}: {target}"
        for page in DOCS.glob("*.md")
        for target in re.findall(r"\]\(((?:\.\./)+[^)#\s]+)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_the_key_reference_names_every_key_and_property() -> None:
    """Whatever the reader of queues.yaml takes is on the page."""
    text = (DOCS / "configuration-reference.md").read_text()
    source = Path(declared.__file__).read_text() + (Path(declared.__file__).parent / "governor.py").read_text()
    groups = re.findall(r"(?:mapping\(\(|_KEYS: Final = \(|_SWITCHES: Final = \()([^)]*)\)", source)
    keys = {key for group in groups for key in re.findall(r'"([a-z_]+)"', group)}
    keys |= {key for kind in KINDS for key in (kind.name, *kind.section) if kind.section}
    assert {"placementrules", "maxapplications", "observe_only", "cooldown_ms"} <= keys
    names = {
        value for name, value in vars(properties).items() if name.isupper() and isinstance(value, str) and "." in value
    }
    assert {properties.SORT_POLICY, properties.QUOTA_MISS} <= names
    assert not sorted(word for word in keys | names if f"`{word}`" not in text)


def test_the_runbook_has_every_alert() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    runbook = (DOCS / "operations.md").read_text().split("## Runbook")[1]
    assert alerts == set(re.findall(r"`(Kornel\w+)`", "".join(re.findall(r"^\|[^|]*", runbook, re.MULTILINE))))
