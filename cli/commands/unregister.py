"""Command ``kornel unregister``: removes a resource manager, after asking for consent."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kornel.cli.asking import CalledCore, asks_core
from kornel.cli.options import refuse_input, report_failure
from kornel.cli.terminal import ask_consent
from kornel.v1.manager_pb2 import UnregisterResourceManagerRequest
from kornel.v1.manager_pb2_grpc import ManagerServiceStub


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
    unregister_manager(core, rm_id)


def unregister_manager(core: CalledCore, rm_id: str, timeout_s: float | None = None) -> None:
    """Remove the resource manager *rm_id* from the core. Raises ``CoreUnreachable``."""
    request = UnregisterResourceManagerRequest(rm_id=rm_id)
    core.call(ManagerServiceStub(core.channel).UnregisterResourceManager, request, timeout_s)


def ask_before_unregistering(rm_id: str) -> None:
    """Returns if the user at the terminal agrees. Exits 1 when the answer is no, 2 where there is no terminal to ask
    at."""
    loss = f"{rm_id} and all its nodes, applications and asks will be forgotten, and its streams end"
    if not sys.stdin.isatty():
        raise refuse_input(f"{loss}; nobody can be asked here, so give --yes")
    if not ask_consent(f"{loss}. Go on?"):
        raise report_failure("nothing was done")
