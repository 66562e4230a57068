"""The ``kornel-local`` command."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Final

import typer

from kornel.cli.terminal import VisibleGroup
from kornel.shared.visible import write_visibly
from kornel.shim_client.command_line import Ca, Cert, Key, ServerName, TokenFile, Version, credentials_of
from kornel.shim_local.amounts import BadAmount, parse_bytes, parse_cores, parse_duration
from kornel.shim_local.background import (
    LOG,
    SOCKET,
    NotStarted,
    check_folder,
    describe_server,
    read_state,
    start_server,
    wait_until,
)
from kornel.shim_local.client import NoServer, RequestRefused, ServerConnection
from kornel.shim_local.following import follow_array, follow_log
from kornel.shim_local.jobs.spec import DEFAULT_GRACE_S, DEFAULT_KILL_S, DEFAULT_LOG_BYTES, BadSpec
from kornel.shim_local.machine.launcher import program_environment
from kornel.shim_local.machine.processes import is_alive, start_ticks
from kornel.shim_local.script_options import BadScript
from kornel.shim_local.submission import STATE_VARIABLE, find_state_folder, make_spec, read_script_options
from kornel.shim_local.tables import format_jobs

EXIT_FAILED: Final = 1
EXIT_INPUT: Final = 2
EXIT_NO_SERVER: Final = 3
DOWN_S: Final = 40.0

app = typer.Typer(
    cls=VisibleGroup,
    name="kornel-local",
    help="A batch system for one machine or a few: submit commands, and have them run when there is room."
    "\n\nExit status: 0 well, 1 a job or request failed, 2 bad input, 3 no server runs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def choose_state(
    context: typer.Context,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            envvar=STATE_VARIABLE,
            metavar="DIR",
            help="Where jobs, logs and sockets are; by default kornel-local in the state directory of the user.",
        ),
    ] = None,
    _version: Version = False,
) -> None:
    """Read the option with the state directory, which every command needs."""
    context.obj = find_state_folder(state)


@app.command("up")
def start_up(
    context: typer.Context,
    foreground: Annotated[bool, typer.Option("--foreground", help="Do not return; log to standard error.")] = False,
    core: Annotated[
        str, typer.Option("--core", envvar="KORNEL_LOCAL_CORE", metavar="ADDR", help="Use a core that runs already.")
    ] = "",
    page: Annotated[
        bool, typer.Option("--page", help="Serve the core's web page, to every user of this machine.")
    ] = False,
    rm_id: Annotated[
        str, typer.Option("--rm-id", metavar="NAME", help="Name under which the core knows this server.")
    ] = ("kornel-local"),
    queues: Annotated[
        Path | None, typer.Option("--queues", metavar="FILE", help="Queue configuration instead of the built-in one.")
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Name of this machine; by default its own.")] = "",
    vcore: Annotated[str, typer.Option("--vcore", metavar="CORES", help="Cores to offer; by default all.")] = "",
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory to offer; by default all.")] = "",
    gpu: Annotated[int, typer.Option("--gpu", min=-1, help="GPUs to offer; -1: those that nvidia-smi lists.")] = -1,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Let agents of other machines connect here.")
    ] = "",
    join: Annotated[
        str, typer.Option("--join", metavar="HOST:PORT", help="Offer this machine to the server there.")
    ] = "",
    shared_token: Annotated[
        Path | None, typer.Option("--agent-token", metavar="FILE", help="Secret that agents and server share.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate for --listen, as PEM.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Key of --tls-cert.")] = None,
    join_ca: Annotated[
        Path | None, typer.Option("--join-ca", metavar="FILE", help="CA of the server's certificate, for --join.")
    ] = None,
    insecure_anywhere: Annotated[
        bool, typer.Option("--insecure-anywhere", help="Listen for other machines without TLS.")
    ] = False,
    keep: Annotated[str, typer.Option("--keep", metavar="TIME", help="How long ended jobs are kept.")] = "30d",
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    token_file: TokenFile = None,
    server_name: ServerName = "",
) -> None:
    """Start a server and the agent of this machine, and a core unless one is given; or join a server elsewhere."""
    folder: Path = context.obj
    with _report_errors():
        amounts = (
            parse_cores(vcore) if vcore else None,
            parse_bytes(memory) if memory else None,
            gpu if gpu >= 0 else None,
        )
        keep_s = parse_duration(keep)
        check_folder(folder)
    if join and listen:
        raise _make_exit("give either --join or --listen: a machine that joins is no server")
    credentials = credentials_of(ca, cert, key, token_file, server_name) if core else None
    if not foreground:
        with _report_errors():
            _print_lines(start_server(folder, sys.argv[1:]))
        return
    from kornel.shim_local.program import run_program  # noqa: PLC0415 - commands do without gRPC
    from kornel.shim_local.server.settings import Settings  # noqa: PLC0415

    from kornel.shim_local.machine.capacity import find_capacity  # noqa: PLC0415 # isort: skip

    settings = Settings(
        folder,
        name or socket.gethostname(),
        find_capacity(*amounts),
        core=core,
        page=page,
        rm_id=rm_id,
        queues=queues,
        listen=listen,
        join=join,
        token_file=shared_token,
        tls_cert=tls_cert,
        tls_key=tls_key,
        ca=join_ca,
        insecure_anywhere=insecure_anywhere,
        credentials=credentials,
        keep_s=keep_s,
    )
    raise typer.Exit(run_program(settings))


@app.command("down")
def take_down(
    context: typer.Context,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel all jobs before.")] = False,
    keep_core: Annotated[bool, typer.Option("--keep-core", help="Leave the core running.")] = False,
) -> None:
    """Stop the server, or the agent of a machine that has joined one. Running jobs go on, and the next ``up`` takes
    them over."""
    if not keep_core and not cancel and _stop_kept_core(context.obj):
        _print_line("down: the core that was kept has ended")
        return
    with _report_errors(), _connect(context) as server:
        if cancel:
            jobs = server.request({"do": "ps"})["jobs"]
            names = [str(job["id"]) for job in jobs]
            server.request({"do": "cancel", "names": names})
            if names:
                server.request({"do": "wait", "names": names})
        pid = int(read_state(server)["pid"])
        ticks = start_ticks(pid)
        running = server.request({"do": "down", "core": not keep_core})["running"]
        if not wait_until(lambda: not is_alive(pid, ticks), DOWN_S):
            raise RequestRefused(f"the server does not end; see {context.obj / LOG}")
    if running:
        _print_line(f"{running} tasks go on running; kornel-local up takes them over again")
    else:
        _print_line("down")


@app.command("submit", context_settings={"allow_interspersed_args": False})
def submit(
    context: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND...", help="What to run.")] = None,
    queue: Annotated[
        str,
        typer.Option("--queue", "-q", help="Queue to run in; by default batch, or default where --queues was given."),
    ] = "",
    vcore: Annotated[str, typer.Option("--vcore", metavar="CORES", help="Cores, such as 2 or 500m.")] = "1",
    memory: Annotated[str, typer.Option("--memory", "--mem", metavar="SIZE", help="Memory, such as 4Gi.")] = "0",
    gpu: Annotated[float, typer.Option("--gpu", min=0, metavar="GPUS", help="GPUs: 2, or a part of one: 0.5.")] = 0,
    priority: Annotated[int, typer.Option("--priority", help="Higher goes first within the queue.")] = 0,
    array: Annotated[
        str, typer.Option("--array", metavar="INDEXES", help="One task per index: 1-100 or 1,5; 1-100%4: 4 at a time.")
    ] = "",
    at_least: Annotated[
        int, typer.Option("--at-least", min=0, metavar="N", help="Start so many tasks of an array together, or none.")
    ] = 0,
    after: Annotated[list[str] | None, typer.Option("--after", metavar="JOB", help="Run once this is done.")] = None,
    after_any: Annotated[
        list[str] | None, typer.Option("--after-any", metavar="JOB", help="Run once this has ended, well or not.")
    ] = None,
    time_limit: Annotated[
        str, typer.Option("--time", metavar="TIME", help="Stop it after this time, such as 2h.")
    ] = "",
    grace: Annotated[
        str, typer.Option("--grace", metavar="TIME", help="Time from SIGUSR1 to SIGTERM when preempted.")
    ] = f"{DEFAULT_GRACE_S:g}s",
    kill_after: Annotated[
        str, typer.Option("--kill-after", metavar="TIME", help="Time from SIGTERM to SIGKILL.")
    ] = f"{DEFAULT_KILL_S:g}s",
    name: Annotated[str, typer.Option("--name", help="Name to show; by default that of the program.")] = "",
    directory: Annotated[
        Path | None, typer.Option("--directory", "-C", metavar="DIR", help="Where to run; by default here.")
    ] = None,
    retries: Annotated[int, typer.Option("--retries", min=0, help="Times to start it again after it failed.")] = 0,
    requeue: Annotated[
        bool, typer.Option("--requeue/--no-requeue", help="Run it again when it was preempted or lost.")
    ] = True,
    preemptible: Annotated[
        bool, typer.Option("--preemptible/--no-preemptible", help="Let others with a guarantee take its room.")
    ] = True,
    log_limit: Annotated[str, typer.Option("--log-limit", metavar="SIZE", help="Most that its log may hold.")] = (
        f"{DEFAULT_LOG_BYTES // 2**20}Mi"
    ),
    env: Annotated[list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="Set a variable.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end, as the command wait does.")] = False,
) -> None:
    """Submit a command to be run when there is room for it.

    Lines ``#KORNEL --vcore 2`` at the beginning of a script are read as options; those of the command line win.
    """
    if not command:
        raise _make_exit("there is no command to run; write it behind --")
    with _report_errors():
        options = read_script_options(context, command)
        spec = make_spec(context.obj, command, options)
        with _connect(context) as server:
            answer = server.request({"do": "submit", "spec": spec.to_json()})
            _print_line(str(answer["job"]))
            if answer["note"]:
                typer.echo(write_visibly(f"kornel-local: {answer['note']}"), err=True)
            if wait:
                _finish_wait(server, [str(answer["job"])])


@app.command("ps")
def list_jobs(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Show jobs that have ended, too.")] = False,
    tasks: Annotated[bool, typer.Option("--tasks", "-t", help="Show each task of an array.")] = False,
    json_wanted: AsJson = False,
) -> None:
    """List jobs that wait or run; with --all the last thousand jobs."""
    with _report_errors(), _connect(context) as server:
        jobs = server.request({"do": "ps", "recent": 1000 if everything else 0, "tasks": tasks})["jobs"]
    if json_wanted:
        typer.echo(as_json(jobs))
    else:
        _print_lines(format_jobs(jobs, time.time()) if jobs else ["nothing waits or runs"])


@app.command("show")
def show_job(context: typer.Context, job: Annotated[str, typer.Argument(help="A job, or a task of an array.")]) -> None:
    """Show everything that is known about a job, as JSON."""
    with _report_errors(), _connect(context) as server:
        typer.echo(as_json(server.request({"do": "show", "name": job})))


@app.command("why")
def explain_job(
    context: typer.Context, job: Annotated[str, typer.Argument(help="A job, or a task of an array.")]
) -> None:
    """Ask the core what keeps a job from running. The answer is that of ``kornel explain``."""
    with _report_errors(), _connect(context) as server:
        tasks = server.request({"do": "show", "name": job})["tasks"]
        status = server.request({"do": "status"})
    waiting = [task for task in tasks if task["state"] == "queued" and not task["paused"]]
    if not waiting:
        first = next((task for task in tasks if task["paused"]), tasks[0])
        state = f"paused: {first['reason']}" if first["paused"] else first["state"]
        _print_line(f"{job} does not wait for room: it is {state}")
        return
    key = str(waiting[0]["key"])
    explained = subprocess.run(
        # The name is the full one, because another manager of the core may have a partition with the same short name.
        [
            *(sys.executable, "-P", "-m", "kornel", "--core", str(status["core"]), "explain"),
            *("--partition", str(status["partition"]), key),
        ],
        env=program_environment(),
        check=False,
    )
    raise typer.Exit(explained.returncode)


@app.command("logs")
def show_logs(
    context: typer.Context,
    job: Annotated[str, typer.Argument(help="A job, or a task of an array as 17.3.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    attempt: Annotated[int, typer.Option("--attempt", min=0, help="Which attempt; 0: the last.")] = 0,
) -> None:
    """Print what a job wrote. Each line of an array has its task in front."""
    with _report_errors(), _connect(context) as server:
        first = server.request({"do": "logs", "name": job, "offset": 0, "attempt": attempt})
        if "tasks" in first:
            for line in follow_array(server, job, attempt, follow=follow):
                _write_bytes(line)
        else:
            for data in follow_log(server, job, attempt, follow=follow):
                _write_bytes(data)


@app.command("cancel")
def cancel_jobs(
    context: typer.Context, jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Jobs or tasks.")]
) -> None:
    """Cancel jobs, or single tasks of an array: SIGTERM, and after --kill-after SIGKILL."""
    with _report_errors(), _connect(context) as server:
        number = server.request({"do": "cancel", "names": jobs})["cancelled"]
    _print_line(f"{number} tasks are cancelled" if number != 1 else "1 task is cancelled")


@app.command("hold")
def hold_jobs(context: typer.Context, jobs: Annotated[list[str], typer.Argument(metavar="JOB...")]) -> None:
    """Start none of the tasks that wait until the job is released. Those that run go on."""
    with _report_errors(), _connect(context) as server:
        number = server.request({"do": "hold", "names": jobs})["held"]
    _print_line(f"{number} jobs are held" if number != 1 else "1 job is held")


@app.command("release")
def release_jobs(context: typer.Context, jobs: Annotated[list[str], typer.Argument(metavar="JOB...")]) -> None:
    """Let jobs that are held start."""
    with _report_errors(), _connect(context) as server:
        number = server.request({"do": "release", "names": jobs})["released"]
    _print_line(f"{number} jobs are released" if number != 1 else "1 job is released")


@app.command("change")
def change_jobs(
    context: typer.Context,
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...")],
    priority: Annotated[int | None, typer.Option("--priority", help="Higher goes first within the queue.")] = None,
    vcore: Annotated[str, typer.Option("--vcore", metavar="CORES", help="Cores, such as 2 or 500m.")] = "",
    memory: Annotated[str, typer.Option("--memory", "--mem", metavar="SIZE", help="Memory, such as 4Gi.")] = "",
    gpu: Annotated[float | None, typer.Option("--gpu", min=0, metavar="GPUS", help="GPUs: 2, or a part: 0.5.")] = None,
    time_limit: Annotated[str, typer.Option("--time", metavar="TIME", help="Stop it after this time.")] = "",
) -> None:
    """Change what jobs that wait ask for. They keep their age, and so their place in line."""
    with _report_errors(), _connect(context) as server:
        values = {
            "priority": priority,
            "vcore": parse_cores(vcore) if vcore else None,
            "memory": parse_bytes(memory) if memory else None,
            "gpu": gpu,
            "time_s": parse_duration(time_limit) if time_limit else None,
        }
        given = {name: value for name, value in values.items() if value is not None}
        if not given:
            raise BadSpec("there is nothing to change: give --priority, --vcore, --memory, --gpu or --time")
        number = server.request({"do": "change", "names": jobs, "values": given})["changed"]
    _print_line(f"{number} jobs are changed" if number != 1 else "1 job is changed")


@app.command("scale")
def scale_job(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="An array.")],
    size: Annotated[int, typer.Argument(metavar="N", min=0, help="How many of its tasks are to wait or run.")],
) -> None:
    """Add tasks to an array, or stop its latest ones with the notice of a preemption."""
    with _report_errors(), _connect(context) as server:
        server.request({"do": "scale", "name": job, "size": size})
    _print_line(f"{size} tasks of job {job} wait or run" if size != 1 else f"1 task of job {job} waits or runs")


@app.command("wait")
def wait(
    context: typer.Context, jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Jobs or tasks.")]
) -> None:
    """Wait until jobs have ended. Exits as the job did; for several tasks with 1 if one did not end well."""
    with _report_errors(), _connect(context) as server:
        _finish_wait(server, jobs)


@app.command("top")
def top(
    context: typer.Context,
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Seconds between updates.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once.")] = False,
    json_wanted: AsJson = False,
) -> None:
    """Show machines, and the jobs on them, again and again."""
    with _report_errors(), suppress(KeyboardInterrupt), _connect(context) as server:
        while True:
            status = server.request({"do": "status"})
            jobs = server.request({"do": "ps"})["jobs"]
            if json_wanted:
                typer.echo(as_json(status | {"jobs": jobs}))
            else:
                if not once and sys.stdout.isatty():
                    sys.stdout.write("\x1b[H\x1b[2J")
                height = shutil.get_terminal_size().lines if sys.stdout.isatty() and not once else 10_000
                _print_lines([*describe_server(status), "", *format_jobs(jobs, time.time())][: height - 1])
            if once:
                return
            time.sleep(interval)


@app.command("forget")
def forget_machine(
    context: typer.Context,
    machine: Annotated[str, typer.Argument(help="Name of the machine.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Give up a machine that is dead: its tasks are started again elsewhere. If it is alive, they may run twice."""
    if not yes and not typer.confirm(write_visibly(f"Is {machine} certainly switched off, or empty?")):
        raise typer.Exit(EXIT_FAILED)
    with _report_errors(), _connect(context) as server:
        number = server.request({"do": "forget", "node": machine})["lost"]
    _print_line(f"{machine} is given up; {number} tasks were lost with it")


def main() -> None:
    """Run the command."""
    app()


def as_json(value: object) -> str:
    """Returns JSON without characters that a terminal would execute."""
    return json.dumps(value, indent=2)


def _write_lines(lines: list[str]) -> str:
    """Returns *lines* joined, each written visibly."""
    return "\n".join(map(write_visibly, lines))


def _print_line(text: str) -> None:
    typer.echo(write_visibly(text))


def _print_lines(lines: list[str]) -> None:
    typer.echo(_write_lines(lines))


def _write_bytes(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _make_exit(reason: str, status: int = EXIT_INPUT) -> typer.Exit:
    """Prints an error, and returns the ``typer.Exit`` to raise."""
    typer.echo(_write_lines(f"kornel-local: {reason}".splitlines()), err=True)
    return typer.Exit(status)


@contextmanager
def _report_errors() -> Iterator[None]:
    """Prints the errors that a user can correct, and exits with their status."""
    try:
        yield
    except (BadAmount, BadSpec, BadScript) as error:
        raise _make_exit(str(error)) from error
    except NoServer as error:
        raise _make_exit(str(error), EXIT_NO_SERVER) from error
    except (RequestRefused, NotStarted) as error:
        raise _make_exit(str(error), EXIT_FAILED) from error
    except BrokenPipeError as error:
        # The reader of the output has closed it. Python must not complain when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_FAILED) from error


def _stop_kept_core(folder: Path) -> bool:
    """Ends a core that still runs without a server. Returns whether there was one."""
    with suppress(NoServer), ServerConnection(folder / SOCKET):
        return False
    from kornel.shim_local.server.core_process import OwnCore  # noqa: PLC0415 - other commands do without it

    core = OwnCore(folder)
    pid, _ = core.find_process()
    if pid:
        asyncio.run(core.stop())
    return bool(pid)


def _connect(context: typer.Context) -> ServerConnection:
    return ServerConnection(context.obj / SOCKET)


def _finish_wait(server: ServerConnection, names: list[str]) -> None:
    """Waits for jobs, prints how failed ones ended, and exits accordingly."""
    tasks = server.request({"do": "wait", "names": names})["tasks"]
    bad = [task for task in tasks if task["state"] != "done"]
    for task in bad:
        typer.echo(write_visibly(f"{task['task']}: {task['text']}"), err=True)
    if len(tasks) == 1 and bad and (status := bad[0]["status"]):
        raise typer.Exit(status if status > 0 else 128 - status)
    if bad:
        raise typer.Exit(EXIT_FAILED)
