"""The page of a core that asks who is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.async_api import Playwright, expect

from core.security.static_tokens import digest_of, new_token
from tests.e2e.security.site import Authority, secured
from tests.e2e.web.browser import visit

pytestmark = pytest.mark.timeout(120)


async def test_a_token_opens_the_page_and_stays_in_its_tab(playwright: Playwright, tmp_path: Path) -> None:
    """Over HTTPS: asked for, refused if wrong, sent from then on, kept no longer than the tab, forgotten on demand."""
    token, other = new_token(), new_token()
    named = {"reader": token, "shim": other}
    stored = json.dumps({"tokens": [{"name": name, "sha256": digest_of(known)} for name, known in named.items()]})
    (tmp_path / "tokens.yaml").write_text(stored)
    rules = '[{who: ["token:reader"], permissions: [read]}, {who: ["token:shim"], permissions: [configure]}]'
    policy = f"tokens: tokens.yaml\nrules: {rules}\n"
    authority = Authority(tmp_path)
    server = authority.issue("core", file="server")
    async with secured(tmp_path, ca=authority.file, server=server, policy=policy, rest_address="127.0.0.1:0") as site:
        url = f"https://{site.server.rest_address}/"
        async with visit(playwright, url, ignore_https_errors=True) as shown:
            field = shown.page.get_by_label("Bearer token")
            await expect(field).to_be_focused()
            await shown.picture("token-light")
            await field.fill("not this one")
            await shown.page.get_by_role("button", name="Use token").click()
            await expect(field).to_be_focused()
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
