"""Runs the server, or the agent that joins one. If it cannot start, one line gives the reason."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Final

from kornel.shared.visible import write_visibly
from kornel.shim_client import CredentialsUnusable, RegistrationRefused, Superseded
from kornel.shim_local.background import EXIT_BUSY
from kornel.shim_local.jobs.store import StoreUnusable
from kornel.shim_local.machine.agent import AgentBusy
from kornel.shim_local.server.joined import JoinedAgent
from kornel.shim_local.server.server import LocalServer
from kornel.shim_local.server.settings import Settings, SettingsError

EXIT_FAILED: Final = 1
EXIT_INPUT: Final = 2


def run_program(settings: Settings) -> int:
    """Returns the exit status once the program has ended."""
    # Other users must not read jobs, with their environments and logs. Each job gets the umask of its submission.
    os.umask(0o077)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", force=True
    )
    try:
        asyncio.run(_run(settings))
    except (SettingsError, StoreUnusable, CredentialsUnusable) as error:
        return _print_complaint(str(error), EXIT_INPUT)
    except AgentBusy:
        return _print_complaint(f"it is up already in {settings.folder}", EXIT_BUSY)
    except RegistrationRefused as error:
        return _print_complaint(f"the core refused the registration ({error.code.name}): {error.reason}", EXIT_INPUT)
    except Superseded:
        reason = f"another program has registered at the core as {settings.rm_id}; this one ends, and jobs go on"
        return _print_complaint(reason, EXIT_FAILED)
    except OSError as error:
        return _print_complaint(f"{error.filename or settings.folder}: {error.strerror}", EXIT_FAILED)
    return 0


async def _run(settings: Settings) -> None:
    program = JoinedAgent(settings) if settings.join else LocalServer(settings)
    await program.run()


def _print_complaint(reason: str, status: int) -> int:
    sys.stderr.write(f"kornel-local: {write_visibly(reason)}\n")
    return status
