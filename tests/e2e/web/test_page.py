"""The page in a browser, over a core that a simulated cluster keeps busy."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Route, expect

from kornel.core.service.machine.clock import SECOND_NS
from kornel.v1 import admin_pb2, admin_pb2_grpc, configuration_pb2, configuration_pb2_grpc
from tests.e2e.harness import CONFIG
from tests.e2e.rest.shim import rest_cluster
from tests.e2e.web.browser import VIEWS, Visit, visit
from tests.waiting import until

# A browser, a core and a cluster share the machine with other tests.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

SCENARIOS = Path(__file__).parents[3] / "shim_mock" / "scenarios"
DARKNESS = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).every((part) => part < 64)"


async def select_first_node(shown: Visit) -> None:
    """Select it on the map by keyboard, once the map has it: a key pressed earlier selects nothing."""
    await expect(shown.page.locator(".tools .count")).to_have_text(re.compile(r"^\d+ node"))
    await shown.page.locator(".node-map").focus()
    await shown.page.keyboard.press("ArrowRight")
    await expect(shown.page.locator("#node-active")).not_to_be_empty()


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_every_view_shows_what_there_is(browser: Browser, demo: str, theme: str) -> None:
    """In the theme of the system; nothing is complained of, nobody else is asked, and nothing jumps."""
    seen = {
        "overview": ".capacity-row >> text=32 of 32 cores",
        "queues": "[role=treeitem] >> text=batch",
        "applications": "[role=row] >> text=root.prod",
        "nodes": ".bands",
        "waiting": "text=Free, but nothing that waits fits",
        "users": "[role=row] >> text=shim-mock",
        "preemption": "[role=row] >> nth=5",
        "history": ".u-wrap >> nth=2",
        "events": "[role=row] >> nth=5",
        "configuration": "text=No errors were found.",
        "what-if": "text=Fill in the change to suppose.",
    }
    assert set(seen) == set(VIEWS)
    async with visit(browser, demo, theme=theme) as shown:
        assert await shown.ask(DARKNESS) is (theme == "dark")
        for name in VIEWS:
            await shown.view(name)
            await shown.page.locator(seen[name]).first.wait_for()
            await expect(shown.page.locator("#connection")).to_have_text("Live")
            await shown.picture(f"{name}-{theme}")
        shown.check()
        assert await shown.ask("window.shifts") < 0.1


async def test_the_switch_of_the_theme_is_remembered(browser: Browser, demo: str) -> None:
    async with visit(browser, demo) as shown:
        await shown.page.get_by_role("button", name="Switch to dark theme").click()
        assert await shown.ask(DARKNESS)
        await shown.page.reload()
        assert await shown.ask(DARKNESS)
        await shown.page.get_by_role("button", name="Switch to light theme").click()
        assert not await shown.ask(DARKNESS)
        shown.check()


async def test_a_preemption_says_who_for_whom_and_by_which_law(browser: Browser, demo: str) -> None:
    """From the timeline to the decision, and from one of its victims to the explanation."""
    async with visit(browser, demo) as shown:
        await shown.view("preemption")
        row = shown.page.get_by_role("grid", name="Decisions to preempt").get_by_role("row").first
        for text in ("Guarantee", "2 allocations", "nightly in root.batch", "shop-server", "law 4", "Preempted"):
            await expect(row).to_contain_text(text)
        assert "8 decisions" in (await shown.page.locator(".timeline canvas").get_attribute("aria-label") or "")
        await row.get_by_text("Preempted").click()
        panel = shown.page.locator("#panel")
        await expect(panel).to_contain_text("needs 2 cores, 4 GiB")
        await shown.picture("decision-light")
        await panel.get_by_role("link", name="nightly-worker").first.click()
        await expect(panel).to_contain_text("Release asked for")
        await expect(panel).to_contain_text("law 4: the asking queue is below its guarantee")
        await expect(panel).to_contain_text("root.prod")
        await shown.picture("victim-light")
        shown.check()


async def test_a_pending_ask_is_explained(browser: Browser, demo: str) -> None:
    async with visit(browser, demo, theme="dark") as shown:
        await shown.view("applications")
        grid = shown.page.get_by_role("grid", name="Applications")
        await grid.get_by_role("link", name="nightly").click()
        why = shown.page.get_by_role("region", name="Why it waits")
        panel = shown.page.locator("#panel")
        # The oldest one holds a node by age after two seconds and is explained apart from then on.
        await expect(why).to_contain_text(re.compile(r"\d+ equal asks of 1 core, 2 GiB"))
        for text in ("Node full", "1 core short", "its preemption policy"):
            await expect(why).to_contain_text(text)
        application = shown.page.url

        async def explain_one() -> bool:
            """Looks at one of the equal asks, which may have been placed by now where the machine is busy: a page whose
            answers take long asks every half a minute."""
            await shown.page.goto(application)
            await shown.page.reload()
            equals = why.locator("details.group").last
            if not await equals.evaluate("group => group.open"):
                await equals.locator("summary").click()
            await equals.get_by_role("link", name="nightly-worker").click()
            await expect(panel.get_by_role("heading", level=2)).to_contain_text("nightly-worker")
            await expect(panel).to_contain_text(re.compile("Place in line|Allocated"))
            return await panel.get_by_text("Place in line").count() > 0

        await until(explain_one, "an ask that still waits to be explained")
        await shown.picture("explanation-dark")
        shown.check()


async def test_applications_are_filtered(browser: Browser, demo: str) -> None:
    async with visit(browser, demo) as shown:
        await shown.view("applications")
        rows = shown.page.get_by_role("grid", name="Applications").get_by_role("row")
        await expect(rows).to_have_count(2)
        await shown.page.get_by_label("Filter applications by any text").fill("ROOT.PRO")
        await expect(rows).to_have_count(1)
        await expect(shown.page.get_by_text("1 application", exact=True)).to_be_visible()
        await shown.page.reload()
        await expect(shown.page.get_by_label("Filter applications by any text")).to_have_value("ROOT.PRO")
        await expect(rows).to_have_count(1)
        await shown.page.get_by_label("Filter applications by any text").fill("nobody")
        await expect(shown.page.get_by_text('No application has "nobody" in it.')).to_be_visible()
        shown.check()


async def test_the_queue_tree_by_keyboard(browser: Browser, demo: str) -> None:
    """Arrows move, open and close; Enter shows details; Escape closes them and gives the focus back."""
    async with visit(browser, demo) as shown:
        await shown.view("queues")
        tree, keys = shown.page.get_by_role("tree", name="Queues"), shown.page.keyboard
        await expect(shown.page.get_by_role("treeitem")).to_have_count(3)
        await shown.page.get_by_role("button", name="Collapse all").focus()
        for _ in ("CSV", "Queue", "CPU", "Memory", "Apps", "the tree"):
            await keys.press("Tab")
        await expect(tree).to_be_focused()
        root = shown.page.get_by_role("treeitem", name="root")
        await keys.press("ArrowDown")
        await expect(root).to_have_attribute("aria-selected", "true")
        assert await tree.get_attribute("aria-activedescendant") == await root.get_attribute("id")
        await keys.press("ArrowLeft")
        await expect(root).to_have_attribute("aria-expanded", "false")
        await expect(shown.page.get_by_role("treeitem")).to_have_count(1)
        await keys.press("ArrowRight")
        await keys.press("ArrowRight")
        batch = shown.page.get_by_role("treeitem", name="batch")
        await expect(batch).to_have_attribute("aria-selected", "true")
        assert "16 cores used of 8 cores guaranteed" in (await batch.get_attribute("aria-label") or "")
        await keys.press("Enter")
        await expect(shown.page.locator("#panel")).to_contain_text("root.batch")
        await expect(shown.page.locator("#panel")).to_be_focused()
        await keys.press("Escape")
        await expect(tree).to_be_focused()
        await keys.press("ArrowLeft")
        await expect(root).to_have_attribute("aria-selected", "true")
        shown.check()


async def test_the_node_map_and_the_rest_by_keyboard(browser: Browser, demo: str) -> None:
    async with visit(browser, demo) as shown:
        await shown.view("nodes")
        cells = shown.page.get_by_role("listbox", name="Nodes by utilisation")
        await select_first_node(shown)
        await shown.page.keyboard.press("ArrowRight")
        await expect(shown.page.locator("#node-active")).to_have_text("node-1: CPU 100 %, Memory 100 %")
        await shown.picture("node-focused-light")
        await shown.page.keyboard.press("Enter")
        await expect(shown.page.locator("#panel")).to_contain_text("4 allocations")
        await shown.page.keyboard.press("Escape")
        await expect(cells).to_be_focused()
        await shown.page.keyboard.press("/")
        await expect(shown.page.get_by_label("Search by part of a name")).to_be_focused()
        await shown.page.keyboard.type("HOP-SERVER-7")
        await shown.page.keyboard.press("Enter")
        found = shown.page.get_by_role("grid", name="What was found")
        await expect(found.get_by_role("row")).to_have_count(1)
        await found.focus()
        await shown.page.keyboard.press("ArrowDown")
        await shown.page.keyboard.press("Enter")
        await expect(shown.page.locator("#panel")).to_contain_text("Allocated")
        shown.check()


async def test_everything_that_can_be_used_has_a_name(browser: Browser, demo: str) -> None:
    nameless = """[...document.querySelectorAll("button, input, select, a, [tabindex='0'], canvas:not([aria-hidden])")]
        .filter((one) => one.checkVisibility())
        .filter((one) => !(one.getAttribute("aria-label") || one.labels?.length || one.textContent.trim()))
        .map((one) => one.outerHTML)"""
    async with visit(browser, demo) as shown:
        for name in VIEWS:
            await shown.view(name)
            assert await shown.ask(nameless) == [], name


async def test_a_lost_core_is_said_and_found_again(browser: Browser, demo: str) -> None:
    async with visit(browser, demo) as shown:
        await expect(shown.page.locator("#connection")).to_have_text("Live")
        await expect(shown.page.locator(".capacity-row").first).to_contain_text("32 of 32 cores")
        await shown.page.context.set_offline(True)
        await expect(shown.page.locator("#connection")).to_have_text("Reconnecting")
        await expect(shown.page.locator("#notice")).to_be_visible()
        await expect(shown.page.locator(".capacity-row").first).to_contain_text("32 of 32 cores")
        await shown.page.context.set_offline(False)
        await expect(shown.page.locator("#connection")).to_have_text("Live")
        await expect(shown.page.locator("#notice")).to_be_hidden()


async def test_names_of_others_stay_text(browser: Browser) -> None:
    """A queue, an application or a node may be called as if it were markup."""
    markup = "<img src=x onerror=alert(1)>"
    async with rest_cluster() as cluster, visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
        await cluster.register()
        await cluster.node(markup, vcore=1)
        await cluster.submit(markup, queue="root.a")
        await shown.view("applications")
        await shown.page.get_by_role("link", name=markup).click()
        await expect(shown.page.get_by_role("heading", level=1)).to_have_text(markup)
        await shown.page.goto(f"{shown.url}#/search?text=%3Cimg")
        await expect(shown.page.get_by_role("row")).to_have_count(2)
        await shown.view("nodes")
        await select_first_node(shown)
        await shown.page.keyboard.press("Enter")
        await expect(shown.page.locator("#panel-title")).to_contain_text(markup)
        assert await shown.page.locator("img").count() == 0
        shown.check()


async def test_what_holds_is_said_on_every_view(browser: Browser) -> None:
    """A rollback, a node that an operator drained, and a manager that is gone; and nothing else."""
    async with rest_cluster() as cluster, visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
        holds = shown.page.locator("#holds")
        core = cluster.core
        await cluster.register()
        await cluster.node("n1", vcore=1)
        await cluster.configure(CONFIG + "          - name: b\n")
        await expect(shown.page.locator("#connection")).to_have_text("Live")
        await expect(holds).to_be_hidden()
        configurations = configuration_pb2_grpc.ConfigurationServiceStub(core.channel)
        admin = admin_pb2_grpc.AdminServiceStub(core.channel)
        await configurations.RollbackConfiguration(configuration_pb2.RollbackConfigurationRequest(version=1))
        await admin.DrainNode(admin_pb2.DrainNodeRequest(node_id="n1"))
        for name in VIEWS:
            await shown.view(name)
            await expect(holds).to_contain_text("rolled back to version 1 by anonymous@127.0.0.1 at 2023-11-1")
            await expect(holds).to_contain_text("1 node drained by operators: n1 (by anonymous@127.0.0.1)")
        await shown.view("nodes")
        await select_first_node(shown)
        await shown.page.keyboard.press("Enter")
        await expect(shown.page.locator("#panel-body")).to_contain_text("anonymous@127.0.0.1, since 2023-11-1")
        await cluster.submit("app", queue="root.a")
        await cluster.ask("k", "app", vcore=100_000)
        for stream in (cluster.nodes, cluster.applications, cluster.allocations):
            stream.call.cancel()
        await until(lambda: core.metrics.live_streams == 0, "the streams to end")
        core.clock.advance(10 * SECOND_NS)
        await expect(holds).to_contain_text("rm-1 is gone: it has had no open stream since 2023-11-1")
        await shown.picture("holds-light")
        await shown.page.goto(f"{shown.url}#/overview?explain=k")
        await expect(shown.page.locator(".blocker").first).to_contain_text("no stream of resource manager rm-1 open")
        await configurations.RollbackConfiguration(configuration_pb2.RollbackConfigurationRequest(undo=True))
        await admin.UndrainNode(admin_pb2.UndrainNodeRequest(node_id="n1"))
        await expect(holds.locator("li")).to_have_count(1)
        shown.check()


async def test_an_empty_core_shows_that_it_is_empty(browser: Browser) -> None:
    empty = {"configuration": "no resource manager is registered", "history": "History"}
    async with rest_cluster() as cluster, visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
        for name in VIEWS:
            await shown.view(name)
            if name in empty:
                await expect(shown.page.locator("#main")).to_contain_text(empty[name])
            else:
                await expect(shown.page.locator(".blank:visible, .none:visible")).to_have_count(1)
            shown.check()


@pytest.mark.long
async def test_a_large_cluster_stays_light(browser: Browser, demo: str) -> None:
    """5,000 nodes, 1,000 queues and 20,000 allocations: few elements, a small heap, no moment without reaction."""
    queues = [
        queue(f"root.dept-{at:02}", [queue(f"root.dept-{at:02}.team-{team:02}") for team in range(49)])
        for at in range(20)
    ]
    nodes = [
        {
            "nodeID": f"node-{at:04}",
            "schedulable": at % 97 != 0,
            "isReserved": at % 53 == 0,
            "capacity": {"vcore": 16_000, "memory": 64 * 2**30},
            "allocated": {"vcore": at * 7 % 17 * 1000, "memory": at * 5 % 65 * 2**30},
        }
        for at in range(5_000)
    ]
    allocations = [
        {
            "allocationKey": f"task-{at:05}",
            "applicationId": "large",
            "nodeId": f"node-{at % 5_000:04}",
            "priority": str(at % 7),
            "allocationTime": 1_700_000_000_000_000_000 + at * 10**9,
            "resource": {"vcore": 1_000, "memory": 2**30},
        }
        for at in range(20_000)
    ]
    application = {
        "applicationID": "large",
        "queueName": "root.dept-00",
        "applicationState": "Running",
        "user": "ann",
        "allocations": allocations,
    }
    answers = {
        "**/partition/default/application/large?*": application,
        "**/explain?key=large": {"application": {"pendingAsks": 0, "groupCount": 0}},
        "**/partition/default/queues": queue("root", queues),
        "**/partition/default/nodes?*": nodes,
    }
    slow = "new PerformanceObserver((list) => { for (const one of list.getEntries()) window.slow.push(one.duration); })"
    async with visit(browser, demo) as shown:
        for path, answer in answers.items():
            await shown.page.route(path, partial(answer_with, answer))
        await shown.ask(f"window.slow = []; {slow}.observe({{ type: 'longtask' }})")
        await shown.view("queues")
        await expect(shown.page.get_by_text("1,001 queues")).to_be_visible()
        await shown.page.get_by_role("button", name="Expand all").click()
        tree = shown.page.get_by_role("tree")
        await tree.focus()
        await shown.page.keyboard.press("End")
        await expect(shown.page.locator("[role=treeitem][aria-selected=true]")).to_contain_text("team-48")
        assert await shown.page.locator(".row").count() < 60
        await shown.picture("queues-large-light")
        await shown.view("nodes")
        await expect(shown.page.get_by_text("5,000 nodes, 52 closed")).to_be_visible()
        await shown.picture("nodes-large-light")
        await shown.page.get_by_role("button", name="Switch to dark theme").click()
        await shown.picture("nodes-large-dark")
        assert await shown.ask("Math.max(0, ...window.slow)") < 500
        await shown.page.goto(f"{shown.url}#/application?id=large")
        table = shown.page.get_by_role("grid", name="Allocations")
        await expect(shown.page.get_by_text("20,000 allocations")).to_be_visible()
        await shown.page.get_by_label("Sort by Node").first.click()
        await expect(table.get_by_text("node-0000").first).to_be_visible()
        await shown.page.get_by_label("Filter allocations by any text").fill("task-19999")
        await expect(shown.page.get_by_text("1 of 20,000 allocations")).to_be_visible()
        await shown.picture("application-large-dark")
        assert await shown.heap_bytes() <= 20 * 2**20
        assert await shown.ask("document.querySelectorAll('*').length") < 900
        shown.check()


async def answer_with(document: Any, route: Route) -> None:
    await route.fulfill(json=document)


def queue(path: str, children: list[Any] | None = None) -> dict[str, Any]:
    """A queue as REST shows it."""
    amounts = {"vcore": 10_000, "memory": 2**34}
    document = {
        "queuename": path,
        "status": "Active",
        "parent": path.rpartition(".")[0],
        "isLeaf": children is None,
        "guaranteedResource": amounts,
        "allocatedResource": {name: amount * len(path) // 15 for name, amount in amounts.items()},
        "maxResource": {name: amount * 4 for name, amount in amounts.items()},
    }
    return document if children is None else {**document, "children": children}
