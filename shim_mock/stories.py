"""Helpers for demonstrations that show several steps one by one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Final

STEP_S: Final = 60.0
LOOK_S: Final = 0.1


class StoryFailed(Exception):
    """A step of a demonstration did not have the expected result."""


@asynccontextmanager
async def updates_handled(handle: Callable[[], Coroutine[None, None, None]]) -> AsyncIterator[None]:
    """Make *handle* carry out the core's decisions during the block. Its errors are raised here."""
    try:
        async with asyncio.TaskGroup() as tasks:
            handling = tasks.create_task(handle())
            yield
            handling.cancel()
    except* StoryFailed as failures:
        raise failures.exceptions[0] from None


async def ask_until(ask: Callable[[], Awaitable[str]], wanted: str) -> str:
    """Calls *ask* repeatedly, and returns its first answer that contains *wanted*."""
    try:
        async with asyncio.timeout(STEP_S):
            while wanted not in (answer := await ask()):  # noqa: ASYNC110 - another program's state
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise StoryFailed(f"waited {STEP_S:g} s for {wanted!r}") from None
    return answer


async def run_kornel(address: str, *arguments: str) -> str:
    """Returns the output of the command line, as an operator would see it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "kornel", *arguments, "--grpc", address,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, problem = await asyncio.wait_for(process.communicate(), STEP_S)
    if process.returncode:
        raise StoryFailed(f"kornel {' '.join(arguments)}: {problem.decode().strip()}")
    return "\n".join(f"   {line}".rstrip() for line in output.decode().rstrip().splitlines())
