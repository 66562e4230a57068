"""Command ``kornel preempt``: asks those to leave whom a person names."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from kornel.cli.asking import PartitionCore, asks_core
from kornel.cli.commands.explain import parse_amount
from kornel.cli.options import EXIT_FAILED, refuse_input
from kornel.cli.terminal import echo_json, show_text
from kornel.cli.text.lines import join_lines
from kornel.cli.text.tables import format_table, wrap_text
from kornel.shared.readable_amounts import format_count, format_quantities
from kornel.v1 import admin_pb2 as pb
from kornel.v1.admin_pb2_grpc import AdminServiceStub

DONE: Final = ("FULL", "NOTHING_TO_DO")
"""The outcomes after which nothing that was named stays."""


@asks_core()
def preempt(
    allocation: Annotated[str, typer.Argument(metavar="[ALLOCATION]", help="Key of an allocation.")] = "",
    application: Annotated[str, typer.Option(metavar="ID", help="All allocations of an application.")] = "",
    node: Annotated[str, typer.Option(metavar="ID", help="All allocations on a drained node.")] = "",
    queue: Annotated[str, typer.Option(metavar="PATH", help="As many in this queue as free --amount.")] = "",
    amount: Annotated[
        list[str] | None, typer.Option(metavar="NAME=AMOUNT", help="What the queue is to give up: vcore=2.")
    ] = None,
    waive: Annotated[
        list[str] | None,
        typer.Option(metavar="LAW", help="Hold nobody back by guarantee, run-time, gang, required-node or need."),
    ] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it is kept. Needed with --waive.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show who would go.")] = False,
    *,
    core: PartitionCore,
) -> None:
    """End an allocation, an application, what runs on a drained node, or an amount of a queue.

    Those go at once whom no law keeps; what they leave is free for anybody. The records name you and the reason.

    Exits 1 if somebody stays, or the core refuses. With --json: the decision.
    """
    named = {"allocation": allocation, "application_id": application, "node_id": node, "queue": queue}
    given = {name: value for name, value in named.items() if value}
    if len(given) != 1:
        raise refuse_input("give one of: an allocation, --application, --node, --queue")
    if bool(queue) is not bool(amount):
        raise refuse_input("--queue and --amount belong together")
    request = pb.PreemptRequest(
        partition=core.partition,
        amount=dict(map(parse_amount, amount or [])),
        waived=waive or [],
        reason=reason,
        dry_run=dry_run,
        **given,
    )
    answer = core.call(AdminServiceStub(core.channel).Preempt, request)
    if core.as_json:
        echo_json(answer.decision)
    else:
        show_text(_render_answer(answer, dry_run=dry_run))
    if answer.decision.outcome not in DONE:
        raise typer.Exit(EXIT_FAILED)


def _render_answer(answer: pb.PreemptResponse, *, dry_run: bool) -> str:
    decision = answer.decision
    count = format_count(len(decision.victims), "allocation")
    said = f"{count} would be asked to leave" if dry_run else f"{count} asked to leave"
    lines = [f"{decision.outcome}: {said}", *wrap_text(decision.detail)]
    if decision.victims:
        rows = [("allocation", "application", "queue", "node", "resources")]
        for each in decision.victims:
            amounts = format_quantities(each.resources)
            rows.append((each.key, each.application_id, each.queue, each.node_id, amounts))
        lines += format_table(rows)
    return join_lines(lines)
