"""What the page changes: configurations and drained nodes; who may, and who is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from kornel.core.security.static_tokens import new_token
from tests.e2e.harness import CONFIG
from tests.e2e.rest.shim import PREFIX, P, rest_cluster
from tests.e2e.web.browser import visit
from tests.e2e.web.test_token import guarded_page

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]


async def test_a_configuration_is_edited_previewed_applied_and_rolled_back(browser: Browser) -> None:
    async with rest_cluster() as cluster, visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
        await cluster.register()
        await cluster.node("n1", vcore=10)
        await cluster.submit("app", queue="root.a")
        await cluster.ask("k", "app", vcore=6)
        page = shown.page
        await shown.view("configuration")
        text = page.get_by_label("Queue configuration, YAML")
        await expect(text).to_have_value(CONFIG)
        await text.fill(CONFIG.replace("name: a", "nam: a"))
        await expect(page.locator(".gutter [data-severity=error]")).not_to_have_count(0)
        await page.get_by_role("list", name="Problems").get_by_role("button").first.click()
        await expect(text).to_be_focused()
        await shown.picture("configuration-marks-light")
        wanted = CONFIG + "          - name: b\n"
        await text.fill(wanted)
        await expect(page.get_by_text("No errors were found.")).to_be_visible()
        await page.get_by_role("button", name="Preview").click()
        await expect(page.get_by_text("1 queue would change; no queue would lose anything.")).to_be_visible()
        await page.get_by_role("button", name="Apply").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("You will be recorded as anonymous@127.0.0.1.")
        await shown.picture("configuration-apply-light")
        await dialog.get_by_role("button", name="Cancel").click()
        assert (await cluster.http.get(f"{P}/queue/root.b")).status_code == 404
        await page.get_by_role("button", name="Apply").click()
        await dialog.get_by_role("button", name="Apply").click()
        await expect(page.get_by_text("Version 2 is in force.")).to_be_visible()
        assert (await cluster.get(f"{P}/queue/root.b"))["queuename"] == "root.b"
        versions = page.get_by_role("grid", name="Versions")
        await expect(versions.get_by_role("row")).to_have_count(2)
        await expect(versions.get_by_role("row").filter(has_text="Update")).to_contain_text("anonymous@127.0.0.1")
        await versions.get_by_role("row").filter(has_text="Registration").click()
        await expect(page.locator(".diff")).to_contain_text("+           - name: b")
        await shown.picture("configuration-diff-light")
        await page.get_by_role("button", name="Roll back to this version").click()
        await dialog.get_by_role("button", name="Roll back to this version").click()
        await expect(page.locator("#holds")).to_contain_text("rolled back to version 1 by anonymous@127.0.0.1")
        await page.reload()
        await expect(page.get_by_role("heading", name="Version 1 and")).to_be_visible()
        shown.check()


async def test_a_preview_sums_up_who_would_leave(browser: Browser) -> None:
    """By queue, user and application, before everybody who would leave is named; the same of a what-if."""
    child = "{name: p, properties: {quota.preemption.delay: 1s}, queues: [{name: a}, {name: b}]}"
    in_force = (
        "partitions: [{name: default, preemption: {quotapreemptionenabled: true},"
        f" queues: [{{name: root, submitacl: '*', queues: [{child}]}}]}}]"
    )
    after = in_force.replace("name: p,", "name: p, resources: {max: {vcore: 1m}},")
    async with rest_cluster() as cluster, visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
        await cluster.register(in_force)
        await cluster.node("n1", vcore=10)
        for name, user in {"a": "ann", "b": "bob"}.items():
            await cluster.submit(name, queue=f"root.p.{name}", user=user)
            await cluster.ask(f"{name}-1", name, vcore=2)
        page = shown.page
        await shown.view("configuration")
        await expect(page.get_by_label("Queue configuration, YAML")).to_have_value(in_force)
        await page.get_by_label("Queue configuration, YAML").fill(after)
        await page.get_by_role("button", name="Preview").click()
        sums = page.locator("section", has_text="By queue, user and application").last
        for text in ("root.p.a", "root.p.b", "ann", "bob", "Would leave"):
            await expect(sums).to_contain_text(text)
        named = page.locator("section", has_text="Which allocations would leave, and when").last
        for text in ("2 allocations", "a-1", "b-1", "ann", "bob"):
            await expect(named).to_contain_text(text)
        await shown.picture("configuration-sums-light")
        await shown.open_address("what-if?suppose=limits&queue=root.p&max=vcore%3D1m&asked=yes")
        await expect(page.locator("section", has_text="By queue, user and application").last).to_contain_text(
            "root.p.b"
        )
        shown.check()


async def test_hidden_secrets_are_told_of_and_not_applied(browser: Browser) -> None:
    async with rest_cluster() as cluster, visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
        await cluster.register(CONFIG.replace("name: a\n", "name: a\n            properties: {my.password: hunter2}\n"))
        page = shown.page
        await shown.view("configuration")
        await expect(page.get_by_text("version 1 is in force. Its secrets are shown as [hidden]")).to_be_visible()
        await expect(page.get_by_role("list", name="Problems")).to_contain_text("[hidden] stands where a secret was")
        await page.get_by_role("button", name="Preview").click()
        await expect(page.get_by_text("The text cannot be used: see the marks beside it.")).to_be_visible()
        await expect(page.get_by_role("button", name="Apply")).to_have_count(0)
        await page.get_by_role("grid", name="Versions").get_by_role("row").first.click()
        await expect(page.get_by_text("differences between them cannot be seen")).to_be_visible()


async def test_a_node_is_drained_and_undrained(browser: Browser) -> None:
    async with rest_cluster() as cluster, visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
        await cluster.register()
        await cluster.node("n1", vcore=1)
        page = shown.page
        await page.goto(f"{shown.url}#/nodes?as=list&details=node:n1")
        await page.get_by_role("button", name="Drain", exact=True).click()
        await expect(page.get_by_role("dialog")).to_contain_text("You will be recorded as anonymous@127.0.0.1.")
        await page.get_by_role("dialog").get_by_role("button", name="Drain", exact=True).click()
        await expect(page.locator("#panel")).to_contain_text("anonymous@127.0.0.1, since")
        await expect(page.locator("#holds")).to_contain_text("1 node drained by operators: n1")
        await page.get_by_label("State", exact=True).select_option("drained")
        await expect(page.get_by_role("grid", name="Nodes").get_by_role("row")).to_contain_text("Drained")
        await shown.picture("node-drained-light")
        await page.get_by_role("button", name="Undrain").click()
        await page.get_by_role("dialog").get_by_role("button", name="Undrain").click()
        await expect(page.locator("#holds")).to_be_hidden()
        assert (await cluster.get(f"{P}/node/n1"))["schedulable"] is True
        shown.check()


async def test_who_may_only_read_is_told_so_before(browser: Browser, tmp_path: Path) -> None:
    token = new_token()
    async with guarded_page(tmp_path, reader=token) as url, visit(browser, url, ignore_https_errors=True) as shown:
        page = shown.page
        await page.get_by_label("Bearer token").fill(token)
        await page.get_by_role("button", name="Use token").click()
        await expect(page.locator("#connection")).to_have_text("Live")
        caller = await shown.ask(
            "fetch('/ws/v1/caller', {headers: {Authorization: `Bearer ${sessionStorage['kornel.token']}`}})"
            ".then((answer) => answer.json())"
        )
        assert (caller["name"], caller["permissions"]) == ("token:reader", ["read"])


async def test_what_if_answers_on_the_page(browser: Browser) -> None:
    """A form, an address, an answer: who would be placed, who would wait, in the reader's units."""
    async with rest_cluster() as cluster, visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
        await cluster.register()
        await cluster.node("n1", vcore=4_000, memory=2**33)
        page = shown.page
        await shown.view("what-if")
        await page.get_by_label("Queue").fill("root.a")
        await page.get_by_label("Each asks for").fill("vcore=3, memory=1Gi")
        await page.get_by_label("How many").fill("2")
        await page.get_by_role("button", name="What would happen?").click()
        said = "1 ask would be placed at once, no allocation would have to leave, 1 ask would wait."
        await expect(page.get_by_text(said)).to_be_visible()
        await shown.picture("what-if-light")
        await page.reload()
        await expect(page.get_by_text(said)).to_be_visible()
        await page.get_by_label("Each asks for").fill("vcore=many")
        await page.get_by_role("button", name="What would happen?").click()
        await expect(page.get_by_text('"many" is not a quantity of vcore')).to_be_visible()
        assert (await cluster.get(f"{PREFIX}/partitions"))[0]["applications"]["total"] == 0
        shown.check()


async def test_where_an_application_would_go(browser: Browser) -> None:
    async with rest_cluster() as cluster, visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
        await cluster.register()
        page = shown.page
        await shown.view("users")
        await page.get_by_label("User", exact=True).fill("ann")
        await page.get_by_label("Queue it names").fill("root.a")
        await page.get_by_role("button", name="Where would it be placed?").click()
        await expect(page.get_by_text("To root.a.")).to_be_visible()
        await shown.picture("placement-light")
        shown.check()
