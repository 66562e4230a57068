"""Helpers for demonstrations that show several steps one by one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol, TypeVar

from kornel.shim_client import ApplicationRejected, ShimClient, ShimClientError
from kornel.shim_mock.demo import page_address, running_core, wait_for_interrupt
from kornel.si.v1 import si_pb2 as si

STEP_S: Final = 60.0
LOOK_S: Final = 0.1

T = TypeVar("T")


class StoryFailed(Exception):
    """A step of a demonstration did not have the expected result."""


class StorySite(Protocol):
    """The simulated cluster of a demonstration."""

    async def handle_updates(self) -> None:
        """Carry out the core's decisions until cancelled."""


S = TypeVar("S", bound=StorySite)


async def tell_story(
    say: Callable[[str], None],
    log: Path,
    *,
    config: str,
    make_site: Callable[[ShimClient], S],
    show_steps: Callable[[S, str, Callable[[str], None]], Awaitable[None]],
    keep: bool,
) -> None:
    """Start a core with the configuration *config*, and call *show_steps* with a simulated cluster, the core's address
    and *say*.

    With *keep*, core and cluster go on afterwards until this process is interrupted.
    """
    async with running_core(log) as address:
        page = page_address(log)
        say(f"A core serves at {address}, its web page at {page or 'no address'}.")
        async with ShimClient(address, "shim-mock") as client:
            await client.register(config=config)
            site = make_site(client)
            async with updates_handled(site.handle_updates):
                await show_steps(site, address, say)
                if keep:
                    say(f"\nThe core still runs at {address}, its page at {page or 'no address'}: Ctrl-C stops it.")
                    await wait_for_interrupt()


@asynccontextmanager
async def updates_handled(handle: Callable[[], Coroutine[None, None, None]]) -> AsyncIterator[None]:
    """Make *handle* carry out the core's decisions during the block. Its errors are raised here."""
    try:
        async with asyncio.TaskGroup() as tasks:
            handling = tasks.create_task(handle())
            yield
            handling.cancel()
    except* (StoryFailed, ShimClientError) as failures:
        raise StoryFailed(str(failures.exceptions[0])) from None


async def add_application(client: ShimClient, application: si.AddApplicationRequest) -> None:
    """Add *application*, which belongs to the user of the demonstrations."""
    application.ugi.CopyFrom(si.UserGroupInformation(user="demo", groups=["demo"]))
    (answer,) = await client.add_applications([application])
    if isinstance(answer, ApplicationRejected):
        raise StoryFailed(f"application {application.applicationID} was refused: {answer.reason}")


async def wait_until(changed: asyncio.Event, condition: Callable[[], bool], describe: Callable[[], str]) -> None:
    """Wait until *condition* is true, which may be so whenever *changed* is set. *describe* says what was wrong if that
    takes too long."""
    try:
        async with asyncio.timeout(STEP_S):
            while not condition():
                changed.clear()
                await changed.wait()
    except TimeoutError:
        raise StoryFailed(describe()) from None


async def poll_until(ask: Callable[[], Awaitable[T]], accept: Callable[[T], bool], what: str) -> T:
    """Calls *ask* repeatedly, and returns its first answer that *accept* is true for. *what* says what is awaited."""
    try:
        async with asyncio.timeout(STEP_S):
            while not accept(answer := await ask()):  # noqa: ASYNC110 - another program's state
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise StoryFailed(f"waited {STEP_S:g} s for {what}") from None
    return answer


async def ask_until(ask: Callable[[], Awaitable[str]], wanted: str) -> str:
    """Calls *ask* repeatedly, and returns its first answer that contains *wanted*."""
    return await poll_until(ask, lambda answer: wanted in answer, repr(wanted))


async def run_kornel(address: str, *arguments: str) -> str:
    """Returns the output of the command line, as an operator would see it."""
    output = await run_program(f"kornel {' '.join(arguments)}", "kornel", *arguments, "--grpc", address)
    return "\n".join(f"   {line}".rstrip() for line in output.rstrip().splitlines())


async def run_program(name: str, module: str, *arguments: str) -> str:
    """Runs *module* with *arguments* as a program in a session of its own, and returns its output. An error names it
    *name*."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", module, *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    output, problem = await asyncio.wait_for(process.communicate(), STEP_S)
    if process.returncode:
        raise StoryFailed(f"{name}: {problem.decode().strip()}")
    return output.decode()
