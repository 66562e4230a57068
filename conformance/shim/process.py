"""The shim's program: started, watched, and ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

ADDRESS_VARIABLE: Final = "KORNEL_ADDRESS"
ADDRESS_PLACEHOLDER: Final = "{address}"
LAST_WORDS: Final = 300
"""The most characters of the shim's output that a finding quotes."""


class CommandFailed(Exception):
    """The command cannot be started at all."""


class ShimProcess:
    """A running shim. Everything that it prints goes to *log*."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    async def start(
        cls, command: Sequence[str], address: str, log: Path, variables: Mapping[str, str] = MappingProxyType({})
    ) -> ShimProcess:
        """Start *command* with the core at *address* and with *variables* added to the environment. Raises
        CommandFailed."""
        words = [word.replace(ADDRESS_PLACEHOLDER, address) for word in command]
        with log.open("ab") as output:
            try:
                process = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, **variables, ADDRESS_VARIABLE: address},
                    start_new_session=True,
                )
            except OSError as error:
                raise CommandFailed(f"cannot start {words[0]}: {error}") from None
        return cls(process, log)

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; ``None`` while the shim runs."""
        return self._process.returncode

    @property
    def end(self) -> str:
        """Returns how the process ended."""
        status = self.status
        how = f"signal {-status}" if status is not None and status < 0 else f"status {status}"
        return f"it ended with {how}"

    @property
    def last_words(self) -> str:
        """Returns the last line of the output that has a letter or a digit, or an empty text."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        words = next((line.strip() for line in reversed(lines) if any(map(str.isalnum, line))), "")
        return words[:LAST_WORDS]

    def ask_to_end(self) -> None:
        """Send SIGTERM."""
        if self.status is None:
            self._process.terminate()

    async def ends_within(self, within_s: float) -> bool:
        """Tells whether the process ends within *within_s*."""
        try:
            await asyncio.wait_for(self._process.wait(), within_s)
        except TimeoutError:
            return False
        return True

    async def kill_group(self) -> None:
        """Kill the process and its children at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
