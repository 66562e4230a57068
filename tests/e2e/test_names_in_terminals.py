"""Every command against a core full of hostile names: nothing in them reaches a terminal but what can be seen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner, Result

from kornel.cli import terminal
from kornel.cli.app import app
from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.resources import Resources
from kornel.core.service.machine.clock import SECOND_NS
from kornel.shared.visible import is_visible
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import status_pb2, status_pb2_grpc
from tests.e2e.harness import Core, allocation_request, ask, create, node_request, open_streams
from tests.e2e.test_history import core_with, written
from tests.patience import PATIENCE_S
from tests.unit.journal.made import decide, open_journal

BAD = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp\u2066\u200b\u3164\x7f\r\nFORGED line \t\x00\x85\u2028[red]x[/]"
"""Sequences for the terminal, bells, C1, overrides of direction, what shows nothing, and lines to forge."""
NODE, FILLER, STARVED, WANTED, KEY = (name + BAD for name in ("node", "filler", "starved", "wanted", "key"))
TYPE, GROUP = "type" + BAD, "group" + BAD
MANAGER = "rm {red}x{/}"
"""No rmID may have worse."""

CONFIG = r"""
partitions:
  - name: default
    topology: [rack]
    queues:
      - name: root
        submitacl: "*"
        properties:
          preemption.delay: 1s
        limits:
          - {limit: "", users: ["*"], maxresources: {vcore: 100}}
          - {limit: "", groups: [staff], maxresources: {vcore: 100}}
          - {limit: "", groups: ["*"], maxresources: {vcore: 100}}
        queues:
          - name: a
            resources: {guaranteed: {vcore: 5}}
          - name: b
  - name: "p {red}x"
    queues: [{name: root, submitacl: "*"}]
"""
OTHER = CONFIG.replace("vcore: 5", r'vcore: 4, "t\e[31m\nFORGED": 3') + "# \u202e\n"

NOT_RUN = {
    "serve": "writes a log, which has tests of its own",
    "bench": "writes numbers",
    "completion": "writes what the program is made of",
    "version": "writes a number",
}


CAPACITY = """<configuration>
<property><name>yarn.scheduler.capacity.root.queues</name><value>a\u202e\u200b\u2066,b\u3164&#10;FORGED</value></property>
<property><name>yarn.scheduler.capacity.root.a\u202e.capacity</name><value>half\u2028FORGED</value></property>
<property><name>yarn.scheduler.capacity.no\u202esuch&#10;FORGED</name><value>[red]x[/]\x85\x9b</value></property>
</configuration>"""
"""What XML can say of them."""


def commands(file: Path, folder: Path) -> dict[str, list[Sequence[str]]]:
    """Arguments of every command, the last one where it cannot be run again after."""
    path, journal = str(file), str(folder / "journal.db")
    return {
        "status": [[], ["--audit"]],
        "explain": [
            [WANTED],
            [FILLER],
            [KEY + "0"],
            ["none" + BAD],
            ["refused" + BAD],
            ["lost" + BAD],
            [WANTED, "--node", NODE],
            [NODE],
            [WANTED, "--node", BAD],
        ],
        "ask show": [[WANTED], [KEY + "0"], ["none" + BAD]],
        "events": [["--no-follow"], ["--no-follow", "--type", BAD]],
        "queues": [[], ["root.a"], ["--type", TYPE], ["none" + BAD]],
        "apps": [[], ["--rejected"], ["--finished"], [FILLER], [STARVED], ["none" + BAD], ["--state", BAD]],
        "nodes": [
            [],
            [NODE],
            ["none" + BAD],
            ["--type", TYPE],
            ["--by", "rack"],
            ["--by", "none" + BAD],
            ["--sort", "stranded"],
        ],
        "claims": [[], ["--node", NODE], ["--app", STARVED], ["--kind", BAD]],
        "users": [[], ["--sort", "vcore"], ["--sort", BAD]],
        "top": [["--count", "1"], ["--count", "1", "--users"]],
        "waits": [[], ["--by", "queue"], ["--by", "user"], ["--by", BAD], ["--queue", "none" + BAD]],
        "health": [[], ["--checks"]],
        "dump": [[]],
        "config check": [[path]],
        "config preview": [[path]],
        "config from-yarn": [[str(folder / "capacity.xml")], [path], ["none" + BAD], [path, "--cluster", BAD]],
        "config history": [[], ["--all"]],
        "config show": [["1"], [BAD]],
        "config diff": [["1", "2"], [BAD + "/1", "2"]],
        "config rollback": [["1"], ["99"]],
        "history apps": [[]],
        "history preemptions": [[], ["--sum", "queue"], ["--sum", "app"], ["--kind", BAD], ["--sum", BAD]],
        "history events": [["--limit", "0"], ["--type", BAD]],
        "history configs": [[]],
        "history status": [[]],
        "history usage": [[], [BAD]],
        "refusals": [[], ["--limit", "0"]],
        "journal info": [[journal]],
        "journal verify": [[journal]],
        "journal export": [[journal]],
        "journal prune": [[journal]],
        "journal copy": [[journal, journal], [journal, str(Path(journal).with_name("copy.db"))]],
        "replay": [[journal, "--verify"]],
        "simulate": [
            ["--workload", workload, "--queues", path, "--hours", "0.1", "--nodes", "1", "--out", str(folder / "out")]
            for workload in ("generated", "none" + BAD)
        ],
        "queue show": [["root.a"], ["none" + BAD]],
        "user show": [["ann"], ["none" + BAD]],
        "what-if ask": [
            ["--app", STARVED, "--vcore", "1", "--count", "3"],
            ["--queue", "root.a", "--vcore", "100", "--user", "ann", "--node", NODE],
            ["--app", "none" + BAD],
            ["--resource", BAD],
        ],
        "what-if gang": [
            ["3", "--queue", "root.a", "--vcore", "1", "--required", "rack"],
            ["2", "--queue", "none" + BAD, "--vcore", "1"],
        ],
        "what-if node-lost": [[NODE], ["none" + BAD]],
        "what-if quota": [["root.b", "max.vcore=1"], ["root.b", BAD], ["none" + BAD, "max.vcore=1"]],
        "what-if priority": [[WANTED, "5"], ["none" + BAD, "5"]],
        "security certificate": [["bad" + BAD, "--dir", str(folder)]],
        "security token": [["bad" + BAD, "--out", str(folder / "token")]],
        "security check": [[path]],
        "preempt": [
            ["none" + BAD],
            ["--application", STARVED, "--dry-run"],
            ["--queue", "none" + BAD, "--amount", "vcore=1"],
        ],
        "drain node": [[NODE], ["none" + BAD, NODE]],
        "drain list": [[]],
        "undrain node": [[NODE], ["none" + BAD]],
        "unregister": [["none" + BAD], ["none" + BAD, "--yes"]],
    }


def all_commands() -> Iterator[str]:
    def walk(command: Any, path: tuple[str, ...]) -> Iterator[str]:
        below = getattr(command, "commands", None)
        if below is None:
            yield " ".join(path)
            return
        for name, found in below.items():
            yield from walk(found, (*path, name))

    yield from walk(typer.main.get_command(app), ())


def test_every_command_is_run() -> None:
    """A new one has to say what it writes of names."""
    assert set(commands(Path(), Path())) | set(NOT_RUN) == set(all_commands())


async def fill(core: Core) -> None:
    """A node, applications, asks and a preemption, all with hostile names; entries that were refused too."""
    request = si.RegisterResourceManagerRequest(
        rmID=MANAGER, config=CONFIG, version=BAD, policyGroup=BAD, buildInfo={BAD: BAD}, extraConfig={BAD: BAD}
    )
    await core.scheduler.RegisterResourceManager(request, timeout=PATIENCE_S)
    async with open_streams(core) as (nodes, applications, allocations):
        node = create(NODE, **{"vcore": 10_000, TYPE: 5})
        node.attributes[BAD] = BAD
        node.attributes["rack"] = BAD
        await nodes.send(node_request(node, create(NODE), rm_id=MANAGER))
        await nodes.entries(2)
        added = [
            si.AddApplicationRequest(
                applicationID=name,
                queueName=queue,
                ugi=si.UserGroupInformation(user=user, groups=[GROUP]),
                tags={BAD: BAD},
            )
            for name, queue, user in (
                (FILLER, "root.b", "ann"),
                (STARVED, "root.a", "ann"),
                ("refused" + BAD, "root.none" + BAD, "ann"),
                ("nobody" + BAD, "root.a", "u" + BAD),
            )
        ]
        await applications.send(si.ApplicationRequest(rmID=MANAGER, new=added))
        await applications.entries(4)
        held = [ask(f"{KEY}{n}", FILLER, vcore=1_000) for n in range(10)]
        for allocation in held:
            allocation.allocationTags[BAD] = BAD
            allocation.taskGroupName = BAD
        await allocations.send(allocation_request(*held, ask("lost" + BAD, "none" + BAD), rm_id=MANAGER))
        await allocations.entries(11)
        wanted = ask(WANTED, STARVED)
        wanted.preemptionPolicy.allowPreemptOther = True
        await allocations.send(allocation_request(wanted, ask("big" + BAD, STARVED, **{TYPE: 50}), rm_id=MANAGER))
        status = status_pb2_grpc.StatusServiceStub(core.channel)
        for _ in range(30):
            core.clock.advance(SECOND_NS)
            await core.settle()
            answer = await status.GetStatus(status_pb2.GetStatusRequest(), timeout=PATIENCE_S)
            if any(partition.preemption_triggered for partition in answer.partitions):
                break
        else:
            pytest.fail("nothing was preempted")
        await written(core)


async def write_journal(path: Path) -> None:
    """Writes a journal of the same names, which is a file and no core's answer."""
    partition, sizes = f"[{MANAGER}]default", Resources({"vcore": 1, TYPE: 1})
    journal = open_journal(path)
    journal.start()
    await decide(
        journal,
        [
            RegisterManager(MANAGER, CONFIG, extra_config=((BAD, BAD),)),
            UpdateNodes(MANAGER, (NodeSpec(NODE, NodeAction.CREATE, partition, ((BAD, BAD),), sizes),)),
            UpdateApplications(MANAGER, (ApplicationSpec(FILLER, "root.b", partition, "ann", (GROUP,)),)),
            UpdateAllocations(MANAGER, (AllocationSpec(KEY, FILLER, partition, sizes, tags=((BAD, BAD),)),)),
        ],
    )
    journal.close(5)


async def kornel(core: Core, command: str, arguments: Sequence[str], *options: str) -> Result:
    words = command.split()
    if words[0] not in {"security", "journal", "replay", "simulate"} and command != "config check":
        options = (*options, "--grpc", core.address)
    return await asyncio.to_thread(CliRunner().invoke, app, [*words, *arguments, *options])


def judge(result: Result, what: str) -> None:
    hidden = {character for character in result.output if character != "\n" and not is_visible(character)}
    assert not hidden, f"{what}: {sorted(hidden)} in {result.output!r}"
    forged = [line for line in result.stdout.splitlines() if line.strip().startswith("FORGED")]
    # Errors of several lines are a core's: all but the first are indented.
    forged += [line for line in result.stderr.splitlines() if line.startswith("FORGED")]
    assert not forged, f"{what}: {forged}"
    assert result.exception is None or isinstance(result.exception, SystemExit), what


async def test_no_command_writes_what_cannot_be_seen(tmp_path: Path) -> None:
    """As text and as JSON, on standard output and standard error; and JSON still means the names."""
    file = tmp_path / "queues.yaml"
    file.write_text(OTHER, encoding="utf-8")
    (tmp_path / "capacity.xml").write_text(CAPACITY, encoding="utf-8")
    await write_journal(tmp_path / "journal.db")
    async with core_with(str(tmp_path / "history.db"), tmp_path) as core:
        await fill(core)
        seen = 0
        for command, lists in commands(file, tmp_path).items():
            for arguments in lists:
                for options in ([], ["--json"]):
                    what = f"{command} {arguments} {options}"
                    result = await kornel(core, command, arguments, *options)
                    if "No such option" in result.output:
                        continue
                    judge(result, what)
                    seen += "FORGED" in result.output
                    if options and result.exit_code == 0:
                        for document in _documents(result.stdout):
                            json.loads(document)
        assert seen > 60, "most of them show names, and these are the hostile ones"


def _documents(output: str) -> list[str]:
    try:
        json.loads(output)
    except ValueError:
        return output.splitlines()
    return [output]


async def test_json_means_the_names_themselves(tmp_path: Path) -> None:
    async with core_with(str(tmp_path / "history.db"), tmp_path) as core:
        await fill(core)
        nodes = json.loads((await kornel(core, "nodes", [], "--json")).stdout)
        assert [node["node_id"] for node in nodes["nodes"]] == [NODE]
        dump = json.loads((await kornel(core, "dump", [])).stdout)
        assert dump["rm_id"] == MANAGER


@pytest.mark.parametrize("hidden", ["\u3164", "\u200b", "\x1b[31m", "\u202e", "\n  FORGED", "\x9b"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["no{}such"],
        ["status", "--no{}such"],
        ["status", "too much{}"],
        ["bench", "--nodes", "1{}"],
        ["config", "no{}such"],
        ["config", "check", "no{}such"],
        ["serve", "--log-level", "x{}"],
        ["unregister", "rm{}"],
        ["history", "apps", "--since", "x{}"],
        ["nodes", "--sort", "x{}"],
        ["completion", "x{}"],
        ["what-if", "quota", "root.a", "x{}"],
    ],
    ids=" ".join,
)
def test_what_is_wrong_with_arguments_is_told_visibly(arguments: list[str], hidden: str) -> None:
    """Whoever reads a log of commands is not fooled by them either."""
    result = CliRunner().invoke(app, [word.replace("{}", hidden) for word in arguments])
    assert result.exit_code == 2
    judge(result, str(arguments))
    assert not any(line.strip(" │").startswith("FORGED") for line in result.output.splitlines()), result.output


def test_a_document_is_as_it_is_in_a_file_and_visible_to_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `config show` prints can be applied again, and cannot fool who reads it."""
    terminal.echo_document("a: \u202e\n")
    assert capsys.readouterr().out == "a: \u202e\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    terminal.echo_document("a: \u202e\tb")
    assert capsys.readouterr().out == "a: \\u202e\tb\n"
