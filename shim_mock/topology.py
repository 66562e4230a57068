"""A demonstration of gangs that want their members close together, or apart: ``kornel-shim-mock demo --kind topology``.

A simulated cluster has two zones with two racks each. Gangs are submitted one after the other: three require a rack,
one prefers as few racks as possible, one wants to be spread over the zones, and one is too large for the room left in
any rack and waits until one rack has room for all of it. After each step the racks are drawn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kornel.shim_client import Allocated, Ask, AskRejected, Released, ShimClient, Topology
from kornel.shim_mock.stories import StoryFailed, add_application, ask_until, run_kornel, tell_story, wait_until
from kornel.si.v1 import si_pb2 as si

ZONES: Final = {"a": ("r1", "r2"), "b": ("r3", "r4")}
NODES_OF_RACK: Final = 4
CORES_OF_NODE: Final = 4

CONFIG: Final = """
partitions:
  - name: default
    topology: [topology.kubernetes.io/zone, example.com/rack]
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: training
"""


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang of *members*, each with one core. In the drawing each member is shown as *letter*."""

    name: str
    members: int
    topology: Topology
    letter: str


TRAIN: Final = Gang("train", 12, Topology(required="rack"), "t")
SOLVE: Final = Gang("solve", 8, Topology(required="rack"), "s")
QUICK: Final = Gang("quick", 4, Topology(required="rack"), "q")
REPORT: Final = Gang("report", 18, Topology(preferred="rack"), "p")
WEB: Final = Gang("web", 4, Topology(spread="zone"), "w")
LARGE: Final = Gang("large", 16, Topology(required="rack"), "L")


class Site:
    """The simulated cluster: its nodes, and the members of gangs that run on them."""

    def __init__(self, client: ShimClient) -> None:
        self._client = client
        self._racks: dict[str, tuple[str, str]] = {}
        self._running: dict[str, tuple[Gang, str]] = {}
        self._gangs: dict[str, Gang] = {}
        self._changed = asyncio.Event()

    async def create_nodes(self) -> None:
        """Report all nodes, with the attributes that name their rack and zone."""
        capacity = si.Resource(resources={"vcore": si.Quantity(value=1_000 * CORES_OF_NODE)})
        infos = []
        for zone, racks in ZONES.items():
            for rack in racks:
                for number in range(NODES_OF_RACK):
                    node_id = f"{rack}-n{number}"
                    self._racks[node_id] = zone, rack
                    where = {"topology.kubernetes.io/zone": zone, "example.com/rack": rack}
                    infos.append(
                        si.NodeInfo(
                            nodeID=node_id, action=si.NodeInfo.CREATE, attributes=where, schedulableResource=capacity
                        )
                    )
        await self._client.create_nodes(infos)

    async def submit_gang(self, gang: Gang) -> None:
        """Submit *gang*: an application that gives the size of the gang, and its placeholders."""
        self._gangs[gang.name] = gang
        whole = si.Resource(resources={"vcore": si.Quantity(value=1_000 * gang.members)})
        application = si.AddApplicationRequest(
            applicationID=gang.name, queueName="root.training", placeholderAsk=whole, gangSchedulingStyle="Hard"
        )
        await add_application(self._client, application)
        await self._client.submit_asks(self._make_ask(gang, number, placeholder=True) for number in range(gang.members))

    async def end_gang(self, gang: Gang) -> None:
        """End all members of *gang*, as when its work is done."""
        ended = [key for key, (owner, _) in self._running.items() if owner is gang]
        for key in ended:
            del self._running[key]
        await self._client.release(self._client.release_of(gang.name, key, si.STOPPED_BY_RM) for key in ended)

    async def handle_updates(self) -> None:
        """Carry out the core's decisions until cancelled: start members, and replace placeholders by real tasks."""
        async for update in self._client.updates():
            match update:
                case Allocated(key=key, application_id=name) if key.startswith("hold-"):
                    gang, number = self._gangs[name], int(key.rpartition("-")[2])
                    await self._client.submit_asks([self._make_ask(gang, number, placeholder=False)])
                case Allocated(key=key, application_id=name, node_id=node_id):
                    self._running[key] = self._gangs[name], node_id
                case Released(key=key, application_id=name) if update.wants_confirmation:
                    await self._client.release([self._client.release_of(name, key, update.termination)])
                case AskRejected(key=key, reason=reason):
                    raise StoryFailed(f"ask {key} was refused: {reason}")
                case _:
                    continue
            self._changed.set()

    async def wait_until_running(self, gang: Gang) -> None:
        """Wait until all members of *gang* run."""
        await wait_until(
            self._changed,
            lambda: len(self._nodes_of(gang)) >= gang.members,
            lambda: f"{len(self._nodes_of(gang))} of {gang.members} of {gang.name} run",
        )

    def count_by_rack(self, gang: Gang) -> dict[str, int]:
        """Returns the number of members of *gang* in each rack that has any."""
        counts: dict[str, int] = {}
        for node_id in self._nodes_of(gang):
            zone, rack = self._racks[node_id]
            counts[f"{zone}/{rack}"] = counts.get(f"{zone}/{rack}", 0) + 1
        return counts

    def draw_racks(self) -> str:
        """Returns one line per rack with its nodes: a letter for each core in use, and a dot for each free core."""
        letters = dict.fromkeys(self._racks, "")
        for gang, node_id in self._running.values():
            letters[node_id] += gang.letter
        lines: dict[tuple[str, str], str] = {}
        for node_id, where in self._racks.items():
            node = "".join(sorted(letters[node_id])).ljust(CORES_OF_NODE, ".")
            lines[where] = f"{lines.get(where, f'   zone {where[0]}, rack {where[1]}:')}  {node}"
        return "\n".join(lines.values())

    def _nodes_of(self, gang: Gang) -> list[str]:
        return [node_id for owner, node_id in self._running.values() if owner is gang]

    def _make_ask(self, gang: Gang, number: int, *, placeholder: bool) -> Ask:
        key = f"{'hold-' if placeholder else ''}{gang.name}-{number}"
        where = gang.topology if placeholder else None
        return Ask(key, gang.name, {"vcore": 1_000}, task_group="workers", placeholder=placeholder, topology=where)


async def demonstrate_topology(say: Callable[[str], None], log: Path, *, keep: bool = False) -> None:
    """Submit gangs with requirements on their places, and report the steps with *say*. Raises :class:`StoryFailed`.

    With *keep*, core and cluster go on afterwards until this process is interrupted.
    """
    await tell_story(say, log, config=CONFIG, make_site=Site, show_steps=_show_gangs, keep=keep)


async def _show_gangs(site: Site, address: str, say: Callable[[str], None]) -> None:
    say(
        "\n1. Two zones, two racks in each, four nodes in each rack, four cores on each node. The configuration names"
        "\n   the attributes that say where a node stands: topology: [topology.kubernetes.io/zone, example.com/rack]"
    )
    await site.create_nodes()
    say(site.draw_racks())

    say(
        "\n2. Gangs whose workers talk to each other all the time, so each requires one rack for all of its members"
        "\n   (tag kornel.topology.required = rack): 'train' with 12 workers, 'solve' with 8, 'quick' with 4. Each goes"
        "\n   where the least is left over: 'quick' fills the gap beside 'train', and other racks stay whole."
    )
    for gang in (TRAIN, SOLVE, QUICK):
        await _run_gang(site, gang, racks=1)
    say(site.draw_racks())

    say(
        "\n3. 'report' has 18 workers, more than any rack holds. It prefers a rack (kornel.topology.preferred = rack):"
        "\n   it takes as few as can be, in one zone, and would rather run in several than wait. Its letter is p."
    )
    await _run_gang(site, REPORT, racks=2)
    say(site.draw_racks())

    say("\n4. 'web' has 4 replicas that must not be lost all at once: zones in turn (kornel.topology.spread = zone).")
    await _run_gang(site, WEB, racks=2)
    say(site.draw_racks())

    say(
        "\n5. 'large' requires a rack for 16 workers. There is room for 18, but not in one rack, so none starts."
        "\n   `kornel explain large` names racks instead of nodes:\n"
    )
    await site.submit_gang(LARGE)
    say(await ask_until(lambda: run_kornel(address, "explain", LARGE.name), "domain-full"))
    say("\n   And `kornel nodes --by rack`:\n")
    say(await run_kornel(address, "nodes", "--by", "rack"))

    say("\n6. 'report' is done. Rack r3 has room for all of 'large' now: it starts there, whole.")
    await site.end_gang(REPORT)
    await _expect_racks(site, LARGE, racks=1)
    say(site.draw_racks())


async def _run_gang(site: Site, gang: Gang, *, racks: int) -> None:
    await site.submit_gang(gang)
    await _expect_racks(site, gang, racks=racks)


async def _expect_racks(site: Site, gang: Gang, *, racks: int) -> None:
    """Wait until *gang* runs. Raises :class:`StoryFailed` unless it runs in exactly *racks* racks."""
    await site.wait_until_running(gang)
    found = site.count_by_rack(gang)
    if len(found) != racks:
        raise StoryFailed(f"{gang.name} stands in {found}, and not in {racks} racks")
