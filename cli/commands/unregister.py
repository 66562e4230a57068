"""Command ``kornel unregister``: removes a resource manager, after asking for consent."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kornel.cli.asking import CalledCore, asks_core
from kornel.cli.client import calls as client
from kornel.cli.options import refuse_input, report_failure
from kornel.cli.terminal import ask_consent


@asks_core()
def unregister(
    rm_id: Annotated[str, typer.Argument(metavar="RM_ID", help="Resource manager to remove.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for consent.")] = False,
    *,
    core: CalledCore,
) -> None:
    """Remove a resource manager and everything it reported from a core. Asks for consent unless --yes is given.

    Exits 1 when the core refuses or the answer is no, 2 where nobody can be asked.
    """
    if not yes:
        ask_before_unregistering(rm_id)
    client.unregister(core.grpc, rm_id, core.timeout)


def ask_before_unregistering(rm_id: str) -> None:
    """Returns if the user at the terminal agrees. Exits 1 when the answer is no, 2 where there is no terminal to ask
    at."""
    loss = f"{rm_id} and all its nodes, applications and asks will be forgotten, and its streams end"
    if not sys.stdin.isatty():
        raise refuse_input(f"{loss}; nobody can be asked here, so give --yes")
    if not ask_consent(f"{loss}. Go on?"):
        raise report_failure("nothing was done")
