"""Commands ``kornel explain`` and ``kornel what-if``: show why work waits, and what would happen after a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import time_ns
from types import MappingProxyType
from typing import Annotated, Any

import typer

from kornel.cli.asking import PartitionCore, asks_core
from kornel.cli.client.failures import CoreUnreachable
from kornel.cli.commands.past_work import render_past
from kornel.cli.options import refuse_input
from kornel.cli.suggestions import report_unknown, suggest_applications, suggest_nodes
from kornel.cli.terminal import show_text
from kornel.cli.text.explain import render_explanation, render_forecast
from kornel.shared.quantities import parse_quantity
from kornel.v1 import explain_pb2 as pb
from kornel.v1.explain_pb2_grpc import ExplainServiceStub

what_if_app = typer.Typer(help="Ask what would happen if something changed. Changes nothing.", no_args_is_help=True)

_AMOUNT = "Amount of each ask, as in queues.yaml."


@dataclass(frozen=True)
class _Wanted:
    """Options about equal asks: their amounts, their devices and their owner."""

    queue: Annotated[
        str,
        typer.Option(
            help="Leaf queue of the new application, full path. By default what the placement rules find for --user."
        ),
    ] = ""
    vcore: Annotated[str, typer.Option(help=_AMOUNT)] = ""
    memory: Annotated[str, typer.Option(help=_AMOUNT)] = ""
    resource: Annotated[
        list[str] | None,
        typer.Option("--resource", metavar="TYPE=QUANTITY", help="Amount of another type; repeatable."),
    ] = None
    devices: Annotated[
        str,
        typer.Option(
            metavar="WANTED", help="Devices of each ask: 2 whole ones, a part such as 0.25, or memory of one: 16Gi."
        ),
    ] = ""
    linked: Annotated[
        bool, typer.Option("--linked", help="The devices of an ask have to be linked with each other.")
    ] = False
    device_type: Annotated[
        list[str] | None, typer.Option("--device-type", metavar="TYPE", help="Type of the devices; repeatable.")
    ] = None
    priority: Annotated[int, typer.Option(help="Priority of each ask.")] = 0
    user: Annotated[str, typer.Option(help="Owner of the new application.")] = ""
    group: Annotated[list[str] | None, typer.Option("--group", help="Group of the owner; repeatable.")] = None
    never_preempts: Annotated[bool, typer.Option("--never-preempts", help="The asks may not preempt.")] = False

    def suppose(self, tags: Mapping[str, str] = MappingProxyType({}), **more: Any) -> pb.SupposedAsk:
        """Returns these asks, with *tags* and the other fields in *more*. Exits for a bad amount."""
        named = [f"{name}={text}" for name, text in (("vcore", self.vcore), ("memory", self.memory)) if text]
        return pb.SupposedAsk(
            queue=self.queue,
            resources=dict(map(parse_amount, [*named, *(self.resource or [])])),
            priority=self.priority,
            never_preempts=self.never_preempts,
            user=self.user,
            groups=self.group or [],
            tags={**tags, **_write_wants(self.devices, self.device_type or [], linked=self.linked)},
            **more,
        )


@asks_core()
def explain(
    name: Annotated[
        str, typer.Argument(metavar="[KEY|APPLICATION|NODE]", help="Ask, allocation, application, or node.")
    ] = "",
    node: Annotated[
        str,
        typer.Option(
            "--node",
            metavar="NODE",
            help="Explain why the ask is not on this node; without a name: why the node has room that is not used.",
        ),
    ] = "",
    *,
    core: PartitionCore,
) -> None:
    """Show everything that keeps work from running, or who took its room.

    With --node, show what keeps the ask off that node. For a node alone, show what keeps waiting asks off it. For work
    that has ended, show what the history has about it.

    Exits 1 for an unknown name, 2 without a name or a node.
    """
    if not name and not node:
        raise refuse_input("give the ask, allocation, application or node to explain")
    try:
        found = _explain_name(core, name, node)
    except CoreUnreachable as error:
        if not error.unknown:
            raise
        past = "" if node or core.as_json else render_past(core, name)
        if not past:
            raise report_unknown(error, name or node, _known_names(core)) from error
        show_text(past)
        return
    core.show(found, lambda: render_explanation(found, time_ns()))


def _explain_name(core: PartitionCore, name: str, node: str) -> pb.ExplainResponse:
    """Returns the explanation of the work called *name* or, if there is none, of the node called *name*."""
    method = ExplainServiceStub(core.channel).Explain
    try:
        return core.call(method, pb.ExplainRequest(partition=core.partition, name=name, node_id=node))
    except CoreUnreachable as error:
        if node or not error.unknown:
            raise
        try:
            return core.call(method, pb.ExplainRequest(partition=core.partition, node_id=name))
        except CoreUnreachable:
            raise error from None


def _known_names(core: PartitionCore) -> list[str]:
    return [*suggest_applications(core), *suggest_nodes(core)]


def _write_wants(devices: str, types: Sequence[str], *, linked: bool) -> dict[str, str]:
    """Returns the tags of an ask for *devices*: a number, a part of one, or an amount of memory. The core judges
    them."""
    if not (devices or types or linked):
        return {}
    part = "." in devices
    whole = devices.isdecimal() and len(devices) < 4
    amount = "count" if whole else "fraction" if part else "memory"
    said = {amount: devices, "link": "same" if linked else "", "type": ",".join(types)}
    return {f"kornel.gpu.{name}": value for name, value in said.items() if value}


@what_if_app.command()
@asks_core()
def ask(
    application: Annotated[str, typer.Option("--app", help="Ask for a live application instead of a new one.")] = "",
    count: Annotated[int, typer.Option(min=1, help="Number of equal asks.")] = 1,
    node: Annotated[str, typer.Option(help="Node on which each ask must run.")] = "",
    *,
    wanted: _Wanted,
    core: PartitionCore,
) -> None:
    """Show where new asks would be placed, and which allocations would be preempted for them."""
    supposed = wanted.suppose(application_id=application, count=count, required_node=node)
    _show_forecast(core, pb.WhatIfRequest(ask=supposed))


@what_if_app.command("gang")
@asks_core()
def gang(
    members: Annotated[int, typer.Argument(min=1, metavar="MEMBERS", help="Number of equal members.")],
    required: Annotated[str, typer.Option(metavar="LEVEL", help="All members in one domain, such as rack.")] = "",
    preferred: Annotated[str, typer.Option(metavar="LEVEL", help="Members in as few domains as possible.")] = "",
    spread: Annotated[str, typer.Option(metavar="LEVEL", help="Members spread over the domains.")] = "",
    slice_size: Annotated[int, typer.Option(min=0, help="Members that run together in one domain; 0: all.")] = 0,
    *,
    wanted: _Wanted,
    core: PartitionCore,
) -> None:
    """Show where a Hard gang would be placed as a whole, what would be preempted for it, or why it would wait.

    Each member is an ask.
    """
    wishes = {"required": required, "preferred": preferred, "spread": spread, "sliceSize": str(slice_size or "")}
    tags = {f"kornel.topology.{name}": value for name, value in wishes.items() if value}
    _show_forecast(core, pb.WhatIfRequest(ask=wanted.suppose(tags, count=members, gang=True)))


@what_if_app.command("node-lost")
@asks_core()
def node_lost(
    node: Annotated[str, typer.Argument(metavar="NODE", help="ID of the node.")],
    *,
    core: PartitionCore,
) -> None:
    """Show where the work of a node would be placed if the node were lost."""
    supposed = pb.SupposedNodeLoss(node_id=node)
    _show_forecast(core, pb.WhatIfRequest(node_lost=supposed))


@what_if_app.command()
@asks_core()
def quota(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Full path.")],
    terms: Annotated[
        list[str],
        typer.Argument(metavar="TERM...", help="max.TYPE=QUANTITY, guaranteed.TYPE=QUANTITY or max.TYPE=unlimited."),
    ],
    *,
    core: PartitionCore,
) -> None:
    """Show what would run, and what would be preempted, if the limits of a queue changed."""
    supposed = pb.SupposedQuota(queue=queue)
    for term in terms:
        kind, dot, rest = term.partition(".")
        if not dot or kind not in ("max", "guaranteed"):
            raise refuse_input(f"{term!r} is neither max.TYPE=QUANTITY nor guaranteed.TYPE=QUANTITY")
        if kind == "max" and rest.endswith("=unlimited"):
            supposed.unlimited.append(rest.removesuffix("=unlimited"))
            continue
        name, amount = parse_amount(rest)
        (supposed.max if kind == "max" else supposed.guaranteed)[name] = amount
    _show_forecast(core, pb.WhatIfRequest(quota=supposed))


@what_if_app.command()
@asks_core()
def priority(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Ask or allocation.")],
    number: Annotated[int, typer.Argument(metavar="PRIORITY", help="Its new priority.")],
    *,
    core: PartitionCore,
) -> None:
    """Show what would happen if the priority of an ask or allocation changed."""
    supposed = pb.SupposedPriority(key=key, priority=number)
    _show_forecast(core, pb.WhatIfRequest(priority=supposed))


def _show_forecast(core: PartitionCore, request: pb.WhatIfRequest) -> None:
    request.partition = core.partition
    found = core.call(ExplainServiceStub(core.channel).WhatIf, request)
    core.show(found, lambda: render_forecast(found, time_ns()))


def parse_amount(text: str) -> tuple[str, int]:
    """Returns the type and the amount in base units of *text*, such as ``vcore=2``. Exits if it is wrong."""
    name, equals, quantity = text.partition("=")
    if not name or not equals:
        raise refuse_input(f"{text!r} is not TYPE=QUANTITY, for instance vcore=2 or memory=4Gi")
    try:
        return name, parse_quantity(name, quantity)
    except ValueError as error:
        raise refuse_input(f"{text}: {error}") from error
