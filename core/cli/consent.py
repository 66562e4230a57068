"""Asking before something is lost that only a shim can bring back."""

from __future__ import annotations

import sys

import typer

from kornel.core.cli.options import EXIT_BAD_INPUT, EXIT_FAILED
from kornel.core.cli.terminal import ask_consent, print_error


def ask_before_unregistering(rm_id: str) -> None:
    """Returns if whoever sits at the terminal agrees. Exits 1 when the answer is no, 2 where nobody can be asked."""
    loss = f"{rm_id} and all its nodes, applications and asks will be forgotten, and its streams end"
    if not sys.stdin.isatty():
        print_error(f"{loss}; nobody can be asked here, so give --yes")
        raise typer.Exit(EXIT_BAD_INPUT)
    if not ask_consent(f"{loss}. Go on?"):
        print_error("nothing was done")
        raise typer.Exit(EXIT_FAILED)
