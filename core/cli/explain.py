"""``kornel explain`` and ``kornel what-if``: why work waits, and what would happen if something changed."""

from __future__ import annotations

from typing import Annotated

import typer

from kornel.core.cli.options import (
    DEFAULT_ADDRESS,
    DEFAULT_TIMEOUT_S,
    EXIT_BAD_INPUT,
    Address,
    AsJson,
    Partition,
    Timeout,
    report_failure,
)
from kornel.core.cli.terminal import echo_json, echo_text, print_error
from kornel.core.cli.text.explain import render_explanation, render_forecast
from kornel.core.client import calls as client
from kornel.core.client import explain as explain_client
from kornel.core.config.quantities import parse_quantity
from kornel.v1 import explain_pb2 as pb

what_if_app = typer.Typer(help="Ask what would happen if something changed. Changes nothing.", no_args_is_help=True)

_AMOUNT = "Amount of each ask, as in queues.yaml."


def explain(
    name: Annotated[str, typer.Argument(metavar="KEY|APPLICATION", help="Ask, allocation or application.")],
    grpc: Address = DEFAULT_ADDRESS,
    partition: Partition = "",
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show everything that keeps work from running, or who took its room. Exits 1 for an unknown name."""
    try:
        found = explain_client.explain(grpc, name, partition, timeout)
    except client.CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(found)
    else:
        echo_text(render_explanation(found))


@what_if_app.command("ask")
def ask(
    queue: Annotated[str, typer.Option(help="Leaf queue of a new application, full path.")] = "",
    application: Annotated[str, typer.Option("--app", help="Ask for a live application instead of a new one.")] = "",
    vcore: Annotated[str, typer.Option(help=_AMOUNT)] = "",
    memory: Annotated[str, typer.Option(help=_AMOUNT)] = "",
    resource: Annotated[
        list[str] | None,
        typer.Option("--resource", metavar="TYPE=QUANTITY", help="Amount of another type; repeatable."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many equal asks.")] = 1,
    priority: Annotated[int, typer.Option(help="Priority of each.")] = 0,
    node: Annotated[str, typer.Option(help="Node each must run on.")] = "",
    user: Annotated[str, typer.Option(help="Owner of the new application.")] = "",
    group: Annotated[list[str] | None, typer.Option("--group", help="Group of the owner; repeatable.")] = None,
    never_preempts: Annotated[bool, typer.Option("--never-preempts", help="The asks may not preempt.")] = False,
    grpc: Address = DEFAULT_ADDRESS,
    partition: Partition = "",
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show where new asks would be placed, and which allocations would be preempted for them."""
    named = [f"{name}={text}" for name, text in (("vcore", vcore), ("memory", memory)) if text]
    supposed = pb.SupposedAsk(
        queue=queue,
        application_id=application,
        resources=dict(_parse_amount(text) for text in [*named, *(resource or [])]),
        count=count,
        priority=priority,
        required_node=node,
        never_preempts=never_preempts,
        user=user,
        groups=group or [],
    )
    _show_forecast(grpc, pb.WhatIfRequest(partition=partition, ask=supposed), timeout, as_json=as_json)


@what_if_app.command("node-lost")
def node_lost(
    node: Annotated[str, typer.Argument(metavar="NODE", help="ID of the node.")],
    grpc: Address = DEFAULT_ADDRESS,
    partition: Partition = "",
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show where the work of a node would go if the node were lost."""
    supposed = pb.SupposedNodeLoss(node_id=node)
    _show_forecast(grpc, pb.WhatIfRequest(partition=partition, node_lost=supposed), timeout, as_json=as_json)


@what_if_app.command("quota")
def quota(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Full path.")],
    terms: Annotated[
        list[str],
        typer.Argument(metavar="TERM...", help="max.TYPE=QUANTITY, guaranteed.TYPE=QUANTITY or max.TYPE=unlimited."),
    ],
    grpc: Address = DEFAULT_ADDRESS,
    partition: Partition = "",
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show what would run, and what would be preempted, if a queue had other limits."""
    supposed = pb.SupposedQuota(queue=queue)
    for term in terms:
        kind, dot, rest = term.partition(".")
        if not dot or kind not in ("max", "guaranteed"):
            raise _bad_option(f"{term!r} is neither max.TYPE=QUANTITY nor guaranteed.TYPE=QUANTITY")
        if kind == "max" and rest.endswith("=unlimited"):
            supposed.unlimited.append(rest.removesuffix("=unlimited"))
            continue
        name, amount = _parse_amount(rest)
        (supposed.max if kind == "max" else supposed.guaranteed)[name] = amount
    _show_forecast(grpc, pb.WhatIfRequest(partition=partition, quota=supposed), timeout, as_json=as_json)


@what_if_app.command("priority")
def priority(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Ask or allocation.")],
    number: Annotated[int, typer.Argument(metavar="PRIORITY", help="Its new priority.")],
    grpc: Address = DEFAULT_ADDRESS,
    partition: Partition = "",
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show what would change if an ask or allocation had another priority."""
    supposed = pb.SupposedPriority(key=key, priority=number)
    _show_forecast(grpc, pb.WhatIfRequest(partition=partition, priority=supposed), timeout, as_json=as_json)


def _show_forecast(address: str, request: pb.WhatIfRequest, timeout_s: float, *, as_json: bool) -> None:
    try:
        found = explain_client.what_if(address, request, timeout_s)
    except client.CoreUnreachable as error:
        raise report_failure(error) from error
    if as_json:
        echo_json(found)
    else:
        echo_text(render_forecast(found))


def _parse_amount(text: str) -> tuple[str, int]:
    name, equals, quantity = text.partition("=")
    if not name or not equals:
        raise _bad_option(f"{text!r} is not TYPE=QUANTITY, for instance vcore=2 or memory=4Gi")
    try:
        return name, parse_quantity(name, quantity)
    except ValueError as error:
        raise _bad_option(f"{text}: {error}") from error


def _bad_option(message: str) -> typer.Exit:
    print_error(message)
    return typer.Exit(EXIT_BAD_INPUT)
