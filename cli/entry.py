"""Starts the ``kornel`` command: it answers ``version`` and a plain ``health`` itself, because they must be fast, and
leaves the rest to :mod:`.app`."""

from __future__ import annotations

import sys

import kornel

# Type checkers assume that this name is true. Importing typing itself would cost the health check a fifth of its time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

VERSION: Final = (["version"], ["--version"])
HEALTH_OPTIONS: Final = {
    "--core": "KORNEL_ADDRESS",
    "--grpc": "KORNEL_ADDRESS",
    "--ca": "KORNEL_CA",
    "--cert": "KORNEL_CERT",
    "--key": "KORNEL_KEY",
    "--server-name": "KORNEL_SERVER_NAME",
}
"""The options that the quick health check understands, each with its environment variable."""
LONGEST_PROBE_S: Final = 2.0
"""The time after which a slow core is asked again by the full command, with the caller's own time limit."""


def main() -> None:
    """Run ``kornel``. The version and the health check do not import what other commands need."""
    if sys.argv[1:] in VERSION:
        print(f"kornel {kornel.__version__}")
        return
    if "health" in sys.argv and answer_health_check(sys.argv[1:]):
        return
    import os  # noqa: PLC0415

    # gRPC reads them when it is imported. Otherwise it writes lines of its own to standard error when a core ends, and
    # starts threads in the copies of a core that answer questions.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"
    from kornel.cli.app import run_app  # noqa: PLC0415

    run_app()


def answer_health_check(arguments: Sequence[str]) -> bool:
    """Print whether the core serves, and exit 1 if not, for a ``kornel health`` with options only about the connection.

    Returns whether it did; any other command, and any other answer of the core, is left to the full command.
    """
    import os  # noqa: PLC0415

    options = read_health_options(arguments, os.environ)
    if options is None:
        return False
    from kornel.cli.client.health_probe import TlsFiles, probe_health  # noqa: PLC0415

    tls = TlsFiles(
        *(options.get(name, "") for name in ("KORNEL_CA", "KORNEL_CERT", "KORNEL_KEY", "KORNEL_SERVER_NAME"))
    )
    said = probe_health(options.get("KORNEL_ADDRESS") or "127.0.0.1:50051", tls, LONGEST_PROBE_S)
    if said:
        print(said)
    if said == "NOT_SERVING":
        sys.exit(1)
    return bool(said)


def read_health_options(arguments: Sequence[str], environ: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the options of a plain ``kornel health`` by the names of their environment variables. Returns ``None`` if
    *arguments* are of another command, or need the full command, which can send a token and report wrong options."""
    found = {name: environ[name] for name in HEALTH_OPTIONS.values() if environ.get(name)}
    if environ.get("KORNEL_TOKEN_FILE"):
        return None
    named = False
    rest = list(arguments)
    while rest:
        option, has_value, value = rest.pop(0).partition("=")
        if option == "health" and not has_value and not named:
            named = True
        elif option in HEALTH_OPTIONS and (has_value or rest):
            found[HEALTH_OPTIONS[option]] = value if has_value else rest.pop(0)
        else:
            return None
    if not named or ("KORNEL_CERT" in found) != ("KORNEL_KEY" in found):
        return None
    return found
