"""The page of a core that asks who is there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from kornel.core.security.static_tokens import digest_of, new_token
from tests.e2e.security.site import Authority, secured
from tests.e2e.web.browser import visit

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]


RULES = '[{who: ["token:reader"], permissions: [read]}, {who: ["token:shim"], permissions: [configure]}]'


@asynccontextmanager
async def guarded_page(folder: Path, **tokens: str) -> AsyncIterator[str]:
    """Address of the page of a core that knows these tokens by name; over HTTPS."""
    stored = json.dumps({"tokens": [{"name": name, "sha256": digest_of(known)} for name, known in tokens.items()]})
    (folder / "tokens.yaml").write_text(stored)
    authority = Authority(folder)
    server = authority.issue("core", file="server")
    policy = f"tokens: tokens.yaml\nrules: {RULES}\n"
    async with secured(folder, ca=authority.file, server=server, policy=policy, rest_address="127.0.0.1:0") as site:
        yield f"https://{site.server.rest_address}/"


async def test_a_token_opens_the_page_and_stays_in_its_tab(browser: Browser, tmp_path: Path) -> None:
    """Over HTTPS: asked for, refused if wrong, sent from then on, kept no longer than the tab, forgotten on demand."""
    token, other = new_token(), new_token()
    async with (
        guarded_page(tmp_path, reader=token, shim=other) as url,
        visit(browser, url, ignore_https_errors=True) as shown,
    ):
        field = shown.page.get_by_label("Bearer token")
        await expect(field).to_be_focused()
        await shown.picture("token-light")
        await field.fill("not this one")
        await shown.page.get_by_role("button", name="Use token").click()
        await expect(shown.page.get_by_role("alert")).to_contain_text("The core does not accept this token")
        await expect(field).to_be_focused()
        await shown.picture("token-wrong-light")
        await field.fill(other)
        await shown.page.get_by_role("button", name="Use token").click()
        await expect(shown.page.locator("#notice")).to_contain_text("You may not see this")
        await shown.page.get_by_role("button", name="Access token").click()
        await field.fill(token)
        await shown.page.get_by_role("button", name="Use token").click()
        await expect(shown.page.locator("#connection")).to_have_text("Live")
        assert await shown.ask("Object.values(sessionStorage)") == [token]
        assert token not in str(await shown.ask("[Object.values(localStorage), document.cookie, location.href]"))
        await shown.page.reload()
        await expect(shown.page.locator("#connection")).to_have_text("Live")
        await shown.page.get_by_role("button", name="Access token").click()
        await shown.page.get_by_role("button", name="Forget").click()
        await expect(shown.page.locator("#connection")).to_have_text("Token needed")
        assert await shown.ask("sessionStorage.length") == 0


async def test_a_token_is_given_with_the_keyboard_alone(browser: Browser, tmp_path: Path) -> None:
    """Asked for at once; Escape puts it off and it stays away; the key in the header has it back; Enter gives it."""
    token = new_token()
    async with guarded_page(tmp_path, reader=token) as url, visit(browser, url, ignore_https_errors=True) as shown:
        page, keys = shown.page, shown.page.keyboard
        field = page.get_by_label("Bearer token")
        await expect(field).to_be_focused()
        await keys.press("Tab")
        await expect(page.get_by_role("button", name="Cancel")).to_be_focused()
        await keys.press("Escape")
        await expect(field).to_be_hidden()
        async with page.expect_response(lambda answer: answer.status == 401):
            pass
        await expect(field).to_be_hidden()
        await expect(page.locator("#notice")).to_contain_text("wants to know who you are")
        button = page.get_by_role("button", name="Access token")
        await button.focus()
        await keys.press("Enter")
        await expect(field).to_be_focused()
        await keys.type(f" {token} ")
        async with page.expect_request(lambda request: "/ws/v1/" in request.url) as asked:
            await keys.press("Enter")
        assert (await asked.value).headers["authorization"] == f"Bearer {token}"
        await expect(page.locator("#connection")).to_have_text("Live")
        await expect(button).to_be_focused()
        shows: dict[str, str | None] = {}
        page.on("request", lambda request: shows.update({request.url: request.headers.get("authorization")}))
        await shown.view("events")
        async with page.expect_response(lambda answer: "/events/batch" in answer.url and answer.ok):
            pass
        assert {shown for url, shown in shows.items() if "/ws/" in url} == {f"Bearer {token}"}, shows
