"""Command-line options for a client's credentials and for the version: the same options and environment variables as
those of ``kornel``.

A program declares them on its root command and makes credentials from their values::

    @app.callback()
    def connect(context: typer.Context, ca: Ca = None, cert: Cert = None, key: Key = None,
                token_file: TokenFile = None, server_name: ServerName = "", _version: Version = False) -> None:
        context.obj = credentials_of(ca, cert, key, token_file, server_name)
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

import kornel
from kornel.shared.visible import write_visibly
from kornel.shim_client.credentials import Credentials, CredentialsUnusable

EXIT_USAGE: Final = 2

Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca", envvar="KORNEL_CA", metavar="FILE", help="PEM file of the CA that signed the core's certificate."
    ),
]
Cert = Annotated[
    Path | None, typer.Option("--cert", envvar="KORNEL_CERT", metavar="FILE", help="Certificate to show the core.")
]
Key = Annotated[Path | None, typer.Option("--key", envvar="KORNEL_KEY", metavar="FILE", help="Private key of --cert.")]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", envvar="KORNEL_TOKEN_FILE", metavar="FILE", help="Bearer token to show the core."),
]
ServerName = Annotated[
    str,
    typer.Option(
        "--server-name",
        envvar="KORNEL_SERVER_NAME",
        metavar="NAME",
        help="Name in the core's certificate, if not the host of its address.",
    ),
]


def _print_version(context: typer.Context, wanted: bool) -> None:
    if wanted:
        typer.echo(write_visibly(f"{context.command.name} {kornel.__version__}"))
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
]


def credentials_of(
    ca: Path | None, cert: Path | None, key: Path | None, token_file: Path | None, server_name: str
) -> Credentials:
    """Returns the credentials that the options describe. Raises :class:`typer.Exit` with status 2 if they contradict
    each other."""
    try:
        return Credentials(ca, cert, key, token_file, server_name)
    except CredentialsUnusable as error:
        raise refuse_credentials(error) from error


def refuse_credentials(error: CredentialsUnusable) -> typer.Exit:
    """Prints the error in the credentials, and returns the ``typer.Exit`` to raise."""
    typer.echo(write_visibly(f"error: {error}"), err=True)
    return typer.Exit(EXIT_USAGE)
