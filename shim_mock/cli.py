"""The ``kornel-shim-mock`` command. It plays scenarios and traces against a core, or runs the whole demo with a core
that it starts."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import grpc
import typer
from rich.console import Console
from rich.markup import escape

from kornel.cli.terminal import VisibleGroup
from kornel.shared.visible import write_visibly
from kornel.shim_client import CoreUnreachable, Credentials, CredentialsUnusable, RegistrationRefused, ShimClientError
from kornel.shim_client.command_line import Ca, Cert, Key, ServerName, TokenFile, Version, credentials_of
from kornel.shim_client.credentials import NO_CREDENTIALS
from kornel.shim_mock.database import DatabaseFailed, find_programs
from kornel.shim_mock.demo import CoreFailed, page_address, running_core, wait_for_interrupt
from kornel.shim_mock.documents import InputError
from kornel.shim_mock.failover import demonstrate_failover
from kornel.shim_mock.gangs import demonstrate_gangs
from kornel.shim_mock.generate import generate_trace
from kornel.shim_mock.gpus import demonstrate_devices
from kornel.shim_mock.picture import draw_run
from kornel.shim_mock.report import LiveLine, print_report
from kornel.shim_mock.run import RunResult, run_scenario
from kornel.shim_mock.scenario import Scenario, load_scenario
from kornel.shim_mock.stories import StoryFailed
from kornel.shim_mock.swap import demonstrate_swap
from kornel.shim_mock.topology import demonstrate_topology
from kornel.shim_mock.trace import Inflation, load_trace, trace_scenario

DEFAULT_CORE: Final = "127.0.0.1:50051"
CONNECT_S = 10.0
RECONNECT_S: Final = 60.0
EXIT_EXPECTATION: Final = 1
EXIT_INPUT: Final = 2
EXIT_CORE: Final = 3
STRANGER: Final = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


class DemoKind(StrEnum):
    """The parts of the demo that can be shown alone: kinds of preemption, which are named like their scenarios, and
    stories."""

    GUARANTEE = "guarantee"
    REQUIRED_NODE = "required-node"
    QUOTA = "quota"
    MONITOR = "monitor"
    PRIORITY = "priority"
    WITHIN = "within"
    SWAP = "swap"
    """Shims that take over from each other; it shows no preemption."""
    TOPOLOGY = "topology"
    """Gangs that want their members in one rack, or apart; it shows no preemption."""

    DEVICES = "devices"
    """Tasks that want GPUs: whole, linked or in part."""
    GANG = "gang"
    """Gangs that start, wait, preempt and are preempted as a whole."""
    FAILOVER = "failover"
    """A core that is killed in the middle of a preemption, and another one that takes over."""


STORIES: Final = frozenset({DemoKind.SWAP, DemoKind.TOPOLOGY, DemoKind.DEVICES, DemoKind.GANG, DemoKind.FAILOVER})
"""The kinds that have no scenario, but explain their own steps one by one."""


app = typer.Typer(
    cls=VisibleGroup,
    name="kornel-shim-mock",
    help="A simulated cluster behind a shim: plays scenarios and traces against a core and judges what the core does."
    "\n\nExit status: 0 every expectation met, 1 one was not, 2 bad input, 3 the core cannot be used.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Core = Annotated[
    str,
    typer.Option(
        "--core",
        metavar="ADDR",
        help="Where the core listens: host:port or unix:path; of several that share a journal, all, with commas.",
    ),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder for the picture of the run.")]
Reconnect = Annotated[
    bool,
    typer.Option(
        "--reconnect/--no-reconnect",
        help=f"Wait up to {RECONNECT_S:g} s for a core that went away, and report everything again to one that was"
        " started again; or end with status 3.",
    ),
]
Speed = Annotated[float | None, typer.Option("--speed", min=0.001, max=1e6, help="Simulated seconds per real second.")]
Latency = Annotated[
    int,
    typer.Option("--latency-guarantee", min=1, max=85, help="Guarantee of the latency queue, in % of the cluster."),
]
Factor = Annotated[
    float | None,
    typer.Option("--factor", min=0.01, max=1000, help="How often the over-quota work is repeated; by default to fill."),
]


@app.callback()
def connect(
    context: typer.Context,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = "",
    _version: Version = False,
) -> None:
    """Read the credentials for the cores of ``run`` and ``trace``; the core of ``demo`` needs none."""
    context.obj = credentials_of(ca, cert, key, token_file, server_name)


@app.command()
def run(
    context: typer.Context,
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a built-in one.")
    ],
    core: Core = DEFAULT_CORE,
    speed: Speed = None,
    out: Out = None,
    reconnect: Reconnect = True,
) -> None:
    """Play a scenario against a running core."""

    async def play(console: Console) -> bool:
        loaded = load_scenario(_scenario_path(scenario))
        if speed is not None:
            loaded = dataclasses.replace(loaded, speed=speed)
        return await _play_and_report(console, loaded, core, context.obj, out, reconnect=reconnect)

    _exit_with(play)


@app.command()
def scenarios() -> None:
    """List the built-in scenarios."""
    console = Console(highlight=False)
    for path in sorted(_builtin_folder().glob("*.yaml")):
        console.print(f"[bold]{path.stem}[/]: {load_scenario(path).description}")


@app.command()
def trace(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with the node list and the pod list.")],
    core: Core = DEFAULT_CORE,
    latency_guarantee: Latency = 40,
    factor: Factor = None,
    out: Out = None,
    reconnect: Reconnect = True,
) -> None:
    """Play a trace, inflated until queues compete, against a running core."""

    async def play(console: Console) -> bool:
        inflation = Inflation(latency_percent=latency_guarantee, factor=factor)
        loaded = trace_scenario(load_trace(folder), inflation, name=folder.name or "trace")
        return await _play_and_report(console, loaded, core, context.obj, out, reconnect=reconnect)

    _exit_with(play)


@app.command()
def demo(
    kind: Annotated[
        DemoKind | None,
        typer.Option(
            "--kind",
            help="Show one kind of preemption on a few nodes, shims that take over, gangs in racks, tasks on"
            " GPUs, or a core that is killed.",
        ),
    ] = None,
    trace_folder: Annotated[
        Path | None, typer.Option("--trace", metavar="DIR", help="Folder with a trace; by default a small made-up one.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for picture and core log.")] = Path(
        "build/demo"
    ),
    latency_guarantee: Latency = 40,
    factor: Factor = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the made-up trace.")] = 1,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave core and cluster running, until Ctrl-C, to look around in them.")
    ] = False,
) -> None:
    """Start a core, fill its cluster with over-quota work, and see latency work take its guarantee back."""
    if kind is not None and trace_folder is not None:
        raise typer.BadParameter("give either --kind or --trace, not both", param_hint="--kind")

    async def play(console: Console) -> bool:
        if kind in STORIES:
            return await _tell_story(console, kind, out / "core.log", keep=keep)
        if kind is not None:
            loaded = load_scenario(_builtin_folder() / f"{kind}.yaml")
            console.print(escape(_write_lines(loaded.description, further="")), highlight=False)
        else:
            inflation = Inflation(latency_percent=latency_guarantee, factor=factor)
            loaded = _demo_scenario(trace_folder, inflation, seed)
        log = out / "core.log"
        async with running_core(log) as address:
            console.print(f"core at {address}, log in {log}", soft_wrap=True, highlight=False)
            page = page_address(log)
            if page:
                console.print(f"web page at {page}", soft_wrap=True, highlight=False)
            where = f"core and cluster go on at {address}, the page at {page or 'no address'}: Ctrl-C stops them"
            return await _play_and_report(console, loaded, address, NO_CREDENTIALS, out, keep=where if keep else "")

    _exit_with(play)


async def _tell_story(console: Console, kind: DemoKind, log: Path, *, keep: bool) -> bool:
    """Show one of the :data:`STORIES`. Returns whether all its steps succeeded."""

    def say(text: str) -> None:
        console.print(escape(_write_lines(text, further="")), soft_wrap=True, highlight=False)

    try:
        if kind is DemoKind.SWAP:
            await demonstrate_swap(say, log)
        elif kind is DemoKind.FAILOVER:
            await demonstrate_failover(say, log, programs=find_programs())
        elif kind is DemoKind.GANG:
            await demonstrate_gangs(say, log, keep=keep)
        elif kind is DemoKind.DEVICES:
            await demonstrate_devices(say, log, keep=keep)
        else:
            await demonstrate_topology(say, log, keep=keep)
    except (StoryFailed, DatabaseFailed) as error:
        console.print(f"failed: {escape(write_visibly(str(error)))}", soft_wrap=True, highlight=False)
        return False
    return True


@app.command()
def generate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write into.")],
    nodes: Annotated[int, typer.Option(min=1, max=100_000)] = 60,
    pods: Annotated[int, typer.Option(min=1, max=1_000_000)] = 600,
    seed: Annotated[int, typer.Option(min=0)] = 1,
) -> None:
    """Write a made-up trace in the format that the trace command reads."""
    generate_trace(folder, nodes=nodes, pods=pods, seed=seed)


def main() -> None:
    """Run the command."""
    app()


def _write_lines(text: object, further: str = "  ") -> str:
    """Returns *text* of several lines, written visibly, with *further* before all lines but the first."""
    return f"\n{further}".join(map(write_visibly, str(text).split("\n")))


def _demo_scenario(folder: Path | None, inflation: Inflation, seed: int) -> Scenario:
    if folder is not None:
        return trace_scenario(load_trace(folder), inflation, name=f"demo on {folder.name}")
    with tempfile.TemporaryDirectory(prefix="kornel-trace-") as scratch:
        generate_trace(Path(scratch), seed=seed)
        return trace_scenario(load_trace(Path(scratch)), inflation, name="demo on a made-up trace")


async def _play_and_report(
    console: Console,
    scenario: Scenario,
    core: str,
    credentials: Credentials,
    out: Path | None,
    *,
    reconnect: bool = False,
    keep: str = "",
) -> bool:
    """Play *scenario* and report the result. With *keep*, say this, and let the cluster go on until Ctrl-C."""
    with ExitStack() as stack:
        line = stack.enter_context(LiveLine(console, scenario.name))

        async def report(result: RunResult) -> None:
            stack.close()
            picture = _write_picture(result, out) if out is not None else None
            print_report(console, result, picture=picture)
            if keep:
                console.print(keep, soft_wrap=True, highlight=False)
                moving = asyncio.create_task(result.cluster.keep_moving())
                await wait_for_interrupt()
                moving.cancel()

        result = await run_scenario(
            scenario,
            core,
            credentials=credentials,
            connect_s=CONNECT_S,
            reconnect_s=RECONNECT_S if reconnect else 0.0,
            progress=line.update,
            afterwards=report,
        )
    return result.passed


def _write_picture(result: RunResult, out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    scenario = result.cluster.scenario
    picture = out / "utilisation.svg"
    picture.write_text(draw_run(result.cluster.accounts, scenario.capacity, title=scenario.name), encoding="utf-8")
    return picture


def _builtin_folder() -> Path:
    return Path(str(files("kornel.shim_mock") / "scenarios"))


def _scenario_path(text: str) -> Path:
    """Returns the path *text*, or the path of the built-in scenario with this name if there is no such file."""
    path = Path(text)
    builtin = _builtin_folder() / f"{text}.yaml"
    return builtin if not path.is_file() and path.name == text and builtin.exists() else path


async def _until_terminated(playing: Coroutine[None, None, bool]) -> bool:
    """Await *playing*. SIGTERM cancels it, so that it can unregister from the core in an orderly way."""
    task = asyncio.ensure_future(playing)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def _exit_with(play: Callable[[Console], Coroutine[None, None, bool]]) -> None:
    """Run *play*, and exit with the status that stands for its result."""
    console, errors = Console(), Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    try:
        passed = asyncio.run(_until_terminated(play(console)))
    except (InputError, CredentialsUnusable) as error:
        errors.print(_write_lines(error))
        raise typer.Exit(EXIT_INPUT) from error
    except RegistrationRefused as error:
        if error.code in STRANGER:
            errors.print(f"the core does not admit this shim ({error.code.name}): {_write_lines(error.reason)}")
            raise typer.Exit(EXIT_CORE) from error
        errors.print(f"the core refused the queue configuration: {_write_lines(error.reason)}")
        raise typer.Exit(EXIT_INPUT) from error
    except CoreUnreachable as error:
        errors.print(f"{_write_lines(error)}; start one with: kornel serve")
        raise typer.Exit(EXIT_CORE) from error
    except (ShimClientError, CoreFailed) as error:
        errors.print(_write_lines(error))
        raise typer.Exit(EXIT_CORE) from error
    except KeyboardInterrupt:
        errors.print("interrupted")
        raise typer.Exit(130) from None
    except asyncio.CancelledError:
        errors.print("terminated")
        raise typer.Exit(143) from None
    raise typer.Exit(0 if passed else EXIT_EXPECTATION)
