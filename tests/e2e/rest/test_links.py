"""Where the page links to is an option of the core, and nothing but an address of the web is one."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from kornel.cli.app import app
from kornel.core.rest.documents.page_links import BadLink, PageLinks, checked_links
from tests.e2e.rest.shim import PREFIX, rest_cluster

AT = f"{PREFIX}/scheduler/links"


async def test_a_core_without_addresses_has_no_links() -> None:
    async with rest_cluster() as cluster:
        assert await cluster.get(AT) == {}


async def test_the_addresses_that_were_given() -> None:
    docs, grafana = "https://docs.example.org/kornel/", "https://grafana.example.org/d/kornel?orgId=1"
    async with rest_cluster(docs_url=docs, grafana_url=grafana) as cluster:
        assert await cluster.get(AT) == {
            "documentation": "https://docs.example.org/kornel/{page}.html",
            "grafana": "https://grafana.example.org/d/kornel?orgId=1",
        }


def test_an_address_with_a_place_for_the_page_stays() -> None:
    address = "https://git.example.org/kornel/blob/HEAD/docs/{page}.md"
    assert checked_links(address, "") == PageLinks(address, "")


@pytest.mark.parametrize("address", ["javascript:alert(1)", "docs.example.org", "https://", "https://a b", "//x/y"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(BadLink, match="--grafana-url"):
        checked_links("", address)


def test_serve_refuses_what_is_no_address() -> None:
    said = CliRunner().invoke(app, ["serve", "--rest-address", "off", "--history", "off", "--docs-url", "javascript:x"])
    assert said.exit_code == 2
    assert "--docs-url" in said.output
