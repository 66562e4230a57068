"""Makes a submission from a command, its options, and the options in its script."""

from __future__ import annotations

import grp
import math
import os
import pwd
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import typer

from kornel.shim_local.amounts import parse_bytes, parse_cores, parse_duration, parse_indexes
from kornel.shim_local.jobs.spec import BadSpec, JobSpec
from kornel.shim_local.jobs.task import split_name
from kornel.shim_local.script_options import BadScript, read_options

LONGEST_NAME: Final = 255
"""The most bytes in the name of a file on Linux."""
STATE_VARIABLE: Final = "KORNEL_LOCAL_STATE"


def find_state_folder(state: Path | None = None) -> Path:
    """Returns the state directory: *state*, or else the one that the environment names, or that of the user."""
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return (state or Path(os.environ.get(STATE_VARIABLE) or base / "kornel-local")).absolute()


def read_script_options(context: typer.Context, command: list[str]) -> dict[str, Any]:
    """Returns the options of ``submit``: those of the command line, and, where it has none, those of the script."""
    options = dict(context.params)
    program = Path(command[0])
    if len(os.fsencode(program.name)) > LONGEST_NAME:
        raise BadScript(f"{program.name[:40]}… cannot be the name of a file: it is too long")
    if "/" not in command[0]:
        found = shutil.which(command[0])
        if found is None and program.is_file():
            raise BadScript(f"{command[0]} is a file here, but not a command; write ./{command[0]}")
        if found is None and len(command) == 1 and len(command[0].split()) > 1:
            raise BadScript(f"{command[0][:40]!r} is not a program; write its words without quotes, or after sh -c")
        program = Path(found) if found is not None else program
    elif program.is_file() and not os.access(program, os.X_OK):
        raise BadScript(f"{command[0]} is not executable; run chmod +x {command[0]}, or submit -- sh {command[0]}")
    words = read_options(program)
    if not words:
        return options
    try:
        script = context.command.make_context("submit", words)
    except typer.TyperException as error:
        raise BadScript(f"{program}: #KORNEL: {error.format_message()}") from None
    if script.params["command"]:
        raise BadScript(f"{program}: #KORNEL: {script.params['command'][0]!r} is not an option")
    for name in options:
        ours, theirs = context.get_parameter_source(name), script.get_parameter_source(name)
        if ours is not None and ours.name != "COMMANDLINE" and theirs is not None and theirs.name == "COMMANDLINE":
            options[name] = script.params[name]
    return options


def make_spec(folder: Path, command: list[str], options: dict[str, Any]) -> JobSpec:
    """Returns the submission that *options* describe. Raises BadAmount or BadSpec."""
    try:
        directory = Path(options["directory"] or Path.cwd()).absolute()
    except OSError as error:
        raise BadSpec(f"the directory that you are in: {error.strerror}") from None
    if not os.path.isdir(directory):  # noqa: PTH112 - does not raise for a name that is too long
        raise BadSpec(f"{directory} is not a directory")
    environment = {name: value for name, value in os.environ.items() if name != STATE_VARIABLE}
    # This permits jobs to submit jobs.
    environment[STATE_VARIABLE] = str(folder)
    for pair in options["env"] or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadSpec(f"--env {pair!r} is not a variable; write NAME=VALUE")
        environment[name] = value
    indexes, percent, most = options["array"].partition("%")
    if percent and not (indexes and most.isascii() and most.isdigit() and len(most) <= 7 and int(most)):
        raise BadSpec(f"--array {options['array']!r} does not say which tasks, or how many at a time; write 1-100%4")
    mask = os.umask(0o022)
    os.umask(mask)
    spec = JobSpec(
        command=tuple(command),
        directory=str(directory),
        environment=environment,
        user=_user_name(),
        umask=mask,
        name=options["name"],
        queue=options["queue"],
        vcore=parse_cores(options["vcore"]),
        memory=parse_bytes(options["memory"]),
        gpu=_write_whole(options["gpu"]),
        priority=options["priority"],
        indexes=parse_indexes(indexes) if indexes else (),
        at_once=int(most) if most else 0,
        at_least=options["at_least"],
        after=_parse_jobs("--after", options["after"]),
        after_any=_parse_jobs("--after-any", options["after_any"]),
        time_s=parse_duration(options["time_limit"]) if options["time_limit"] else 0.0,
        grace_s=parse_duration(options["grace"]),
        kill_s=parse_duration(options["kill_after"]),
        log_bytes=parse_bytes(options["log_limit"]),
        retries=options["retries"],
        requeue=options["requeue"],
        preemptible=options["preemptible"],
        groups=tuple(_group_names()),
    )
    spec.check()
    return spec


def _parse_jobs(option: str, texts: list[str] | None) -> tuple[int | str, ...]:
    """Returns the numbers of jobs, and the names of tasks, in *texts*, the values of *option*."""
    found: list[int | str] = []
    for text in texts or ():
        for name in text.split(","):
            parts = split_name(name)
            if not parts:
                raise BadSpec(f"{option} {text!r} is not a job; write its number, or 19.3 for a task of an array")
            found.append(".".join(map(str, parts)) if len(parts) > 1 else parts[0])
    return tuple(found)


def _write_whole(number: float) -> float:
    """Returns a whole number as an integer, and other numbers in thousandths."""
    if not math.isfinite(number):
        raise BadSpec(f"--gpu {number} is not a number of GPUs; write 2, or 0.5 for a part of one")
    return int(number) if number == int(number) else round(number, 3)


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        # In many containers the user has no entry.
        return str(os.getuid())


def _group_names() -> Iterator[str]:
    for number in (os.getgid(), *(each for each in os.getgroups() if each != os.getgid())):
        with suppress(KeyError):
            yield grp.getgrgid(number).gr_name
