"""``kornel security``: makes certificates and tokens, and checks security files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from kornel.cli.options import refuse_input
from kornel.cli.terminal import echo_line, echo_text
from kornel.cli.text.lines import join_lines
from kornel.core.security.defaults import CERTIFICATE_DAYS
from kornel.core.security.errors import SecurityError
from kornel.shared.readable_amounts import format_count

security_app = typer.Typer(help="Certificates, tokens, and the security file.", no_args_is_help=True)

_LONGEST_DAYS: Final = 3650

Folder = Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where the files are made.")]
Days = Annotated[int, typer.Option("--days", min=1, max=_LONGEST_DAYS, help="Days for which it is valid.")]


@security_app.command("certificate")
def certificate(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the owner, used as common name and file name.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", metavar="HOST", help="For a server: a name or address at which it is reached. Repeatable."
        ),
    ] = None,
    folder: Folder = Path(),
    days: Days = CERTIFICATE_DAYS,
) -> None:
    """Make a certificate and its key, signed by the authority in DIR; the first call makes the authority.

    With --host the certificate is for a server, without it for a client. A site with its own authority should use that
    instead.
    """
    # Imported here, so that the other commands need not import cryptography.
    from kornel.core.security.authority import Authority  # noqa: PLC0415

    try:
        authority = Authority(folder)
        made = authority.issue_certificate(name, host or [], days=days)
    except SecurityError as error:
        raise refuse_input(error) from error
    for path in (authority.certificate_path, *made):
        echo_line(path)


@security_app.command("token")
def token(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the token's owner; the principal is token:NAME.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write the token to; must not exist.")],
) -> None:
    """Make a token. Prints the entry for the file with static tokens; the token cannot be recovered from it."""
    from kornel.core.security.authority import write_secret  # noqa: PLC0415
    from kornel.core.security.static_tokens import digest_of, new_token  # noqa: PLC0415

    made = new_token()
    try:
        write_secret(out, made.encode())
    except OSError as error:
        raise refuse_input(f"{out}: {error.strerror}") from error
    echo_text(join_lines([f"  - name: {name}", f"    sha256: {digest_of(made)}"]))


@security_app.command("check")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Security file to read.")],
) -> None:
    """Check a security file and the file with static tokens that it names. Exits 2 for errors."""
    from kornel.core.security.guard import read_files  # noqa: PLC0415

    try:
        policy = read_files(file)[0]
    except SecurityError as error:
        raise refuse_input(error) from error
    echo_line(f"{file}: {format_count(len(policy.rules), 'rule')}")
