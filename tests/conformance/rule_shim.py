"""A shim whose tasks have rules: ``python -m tests.conformance.rule_shim WAY --core ADDRESS``.

On two nodes run a *guard*, which stands no *web* beside it, two webs, which have no rule of their own, and two other
tasks. The answers about guards and webs depend on each other. WAY is what it does wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from contextlib import suppress

from kornel.shim_client import (
    Allocated,
    ApplicationAccepted,
    Ask,
    CallbackHandler,
    Judgement,
    PredicatesQuestion,
    Released,
    ResyncRequired,
    ShimClient,
    resource,
)
from kornel.shim_client.callbacks import CallbackAttachment, _PlacementsInPlace
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2

NODES = [
    si.NodeInfo(nodeID=name, action=si.NodeInfo.CREATE, schedulableResource=resource({"vcore": 9000}))
    for name in ("node-1", "node-2")
]
APP = si.AddApplicationRequest(applicationID="app", queueName="root.a")
TASKS = ("guard-1", "web-1", "web-2", "other-1", "other-2")
BESIDE = {"guard": "web", "web": "guard"}
WAYS = (
    "nothing",
    "acknowledges",
    "assumes",
    "judges_at_once",
    "overlooks_rules_of_others",
    "calls_nothing_dependent",
    "never_answers",
)


class Rules(CallbackHandler):
    """Judges by what runs where."""

    def __init__(self, way: str) -> None:
        self.nodes: dict[str, str] = {}
        """The node of each task in place."""
        self._way = way

    async def predicates(self, question: PredicatesQuestion) -> Judgement:
        if self._way == "never_answers":
            await asyncio.Event().wait()
        kind = question.key.partition("-")[0]
        has_rule = kind in BESIDE and not (kind == "web" and self._way == "overlooks_rules_of_others")
        there = {node for key, node in self.nodes.items() if key.startswith(BESIDE.get(kind, "nothing"))}
        refused = dict.fromkeys(there & set(question.node_ids) if has_rule else (), "they do not go together")
        assumes = self._way == "assumes" and question.dependent
        if assumes and (allowed := [node for node in question.node_ids if node not in refused]):
            self.nodes[question.key] = allowed[0]
        return Judgement(refused, has_rule and self._way != "calls_nothing_dependent", in_place=assumes)

    def not_placed(self, partition: str, key: str) -> None:
        self.nodes.pop(key, None)


def make_allocation(key: str, node: str) -> si.Allocation:
    return si.Allocation(
        allocationKey=key, applicationID="app", nodeID=node, resourcePerAlloc=resource({"vcore": 1000})
    )


async def run(core: str, way: str) -> None:
    rules = Rules(way)
    async with ShimClient(core, "rules") as client:
        callbacks: CallbackAttachment | None = None
        while True:
            with suppress(ResyncRequired):
                await client.register()
                callbacks = callbacks or await client.attach_callbacks(rules)
                await client.create_nodes(NODES)
                [answer] = await client.add_applications([APP])
                if isinstance(answer, ApplicationAccepted):
                    await client.report_allocations(make_allocation(key, node) for key, node in rules.nodes.items())
                    waiting = [key for key in TASKS if key not in rules.nodes]
                    await client.submit_asks(Ask(key, "app", {"vcore": 1000}) for key in waiting)
                async for update in client.updates():
                    match update:
                        case Allocated(key=key, message=message):
                            rules.nodes[key] = message.nodeID
                            callbacks.acknowledge([key])
                        case Released(key=key, termination=termination):
                            rules.nodes.pop(key, None)
                            if update.wants_confirmation:
                                await client.release([client.release_of("app", key, termination)])


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--core", required=True)
    options = parser.parse_args()
    if options.way == "judges_at_once":

        async def wait_for(self: _PlacementsInPlace, key: str, longest_s: float) -> None:
            return

        _PlacementsInPlace.wait_for = wait_for  # type: ignore[method-assign]
    if options.way == "acknowledges":
        subscribe = CallbackAttachment._make_subscription

        def older(self: CallbackAttachment) -> callback_pb2.Subscription:
            said = subscribe(self)
            said.awaits_placements = False
            return said

        CallbackAttachment._make_subscription = older  # type: ignore[method-assign]
    shim = asyncio.create_task(run(options.core, options.way))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, shim.cancel)
    with suppress(asyncio.CancelledError):
        await shim


if __name__ == "__main__":
    asyncio.run(main())
