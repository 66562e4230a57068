"""A demonstration of gangs that start, wait and end as a whole: ``kornel-shim-mock demo --kind gang``.

On four nodes with four cores each, two gangs compete for room; a gang loses all its members together; a gang that could
get room for only a part of its members preempts nothing; and a gang that can get room for all members preempts for all
of them at once. After each step the nodes are drawn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from kornel.shim_client import Allocated, Ask, AskRejected, Released, ShimClient
from kornel.shim_mock.stories import StoryFailed, add_application, ask_until, run_kornel, tell_story, wait_until
from kornel.si.v1 import si_pb2 as si

NODES: Final = ("n1", "n2", "n3", "n4")
CORES_OF_NODE: Final = 4

CONFIG: Final = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        properties: {preemption.delay: 1s}
        queues:
          - name: mpi
            resources: {guaranteed: {vcore: 16}}
          - name: batch
            resources: {guaranteed: {vcore: 4}}
          - name: spare
"""


class GangSite:
    """The simulated cluster: its nodes, and the tasks that run on them."""

    def __init__(self, client: ShimClient) -> None:
        self._client = client
        self._asks: dict[str, Ask] = {}
        self._running: dict[str, str] = {}
        """The node of each running task, without placeholders."""
        self.ended: list[str] = []
        """The tasks that the core ended."""
        self._changed = asyncio.Event()

    async def create_nodes(self) -> None:
        """Report all nodes."""
        capacity = si.Resource(resources={"vcore": si.Quantity(value=1_000 * CORES_OF_NODE)})
        await self._client.create_nodes(
            [
                si.NodeInfo(nodeID=node, action=si.NodeInfo.CREATE, attributes={}, schedulableResource=capacity)
                for node in NODES
            ]
        )

    async def submit_gang(self, name: str, queue: str, members: int, cores: int = 1) -> None:
        """Submit a Hard gang: an application that gives the size of the gang, and its placeholders."""
        await self._add_application(name, queue, members * cores)
        asks = [
            Ask(
                f"hold-{name}-{number}",
                name,
                {"vcore": 1_000 * cores},
                task_group="workers",
                placeholder=True,
                allow_preempt_other=True,
            )
            for number in range(members)
        ]
        await self._submit(asks)

    async def submit_tasks(self, name: str, queue: str, number: int) -> None:
        """Submit an application with *number* tasks of one core each, which need not run together."""
        await self._add_application(name, queue, 0)
        await self._submit(
            Ask(f"{name}-{at}", name, {"vcore": 1_000}, allow_preempt_other=True) for at in range(number)
        )

    async def end_application(self, name: str) -> None:
        """End all tasks of *name*, and withdraw its asks."""
        waiting = [key for key, ask in self._asks.items() if ask.application_id == name and key not in self._running]
        ended = [key for key in self._running if self._asks[key].application_id == name]
        for key in ended:
            del self._running[key]
        await self._client.release(self._client.release_of(name, key, si.STOPPED_BY_RM) for key in ended)
        if not ended:
            await self._client.withdraw_asks((name, key) for key in waiting)

    async def handle_updates(self) -> None:
        """Carry out the core's decisions until cancelled: start tasks, end them, and replace placeholders by real
        tasks."""
        async for update in self._client.updates():
            match update:
                case Allocated(key=key, application_id=name) if key.startswith("hold-"):
                    real = Ask(key.removeprefix("hold-"), name, dict(self._asks[key].resources), task_group="workers")
                    await self._submit([real])
                case Allocated(key=key, node_id=node_id):
                    self._running[key] = node_id
                case Released(key=key, application_id=name) if update.wants_confirmation:
                    if self._running.pop(key, None) is not None:
                        self.ended.append(key)
                    await self._client.release([self._client.release_of(name, key, update.termination)])
                case AskRejected(key=key, reason=reason):
                    raise StoryFailed(f"ask {key} was refused: {reason}")
                case _:
                    continue
            self._changed.set()

    def count_running(self, name: str) -> int:
        """Returns the number of tasks of *name* that run."""
        return sum(self._asks[key].application_id == name for key in self._running)

    async def wait_until_running(self, name: str, number: int) -> None:
        """Wait until *number* tasks of *name* run."""
        await wait_until(
            self._changed,
            lambda: self.count_running(name) == number,
            lambda: f"{self.count_running(name)} tasks of {name} run, not {number}",
        )

    def draw_nodes(self) -> str:
        """Returns a line with the letter of the application for each core in use, and a dot for each free core."""
        taken = dict.fromkeys(NODES, "")
        for key, node_id in self._running.items():
            ask = self._asks[key]
            taken[node_id] += ask.application_id[0] * (ask.resources["vcore"] // 1_000)
        return "   " + "   ".join(
            f"{node} [{''.join(sorted(letters)).ljust(CORES_OF_NODE, '.')}]" for node, letters in taken.items()
        )

    async def _add_application(self, name: str, queue: str, cores: int) -> None:
        application = si.AddApplicationRequest(applicationID=name, queueName=queue)
        if cores:
            application.placeholderAsk.resources["vcore"].value = 1_000 * cores
            application.gangSchedulingStyle = "Hard"
        await add_application(self._client, application)

    async def _submit(self, asks: Iterable[Ask]) -> None:
        listed = list(asks)
        self._asks.update((ask.key, ask) for ask in listed)
        await self._client.submit_asks(listed)


async def demonstrate_gangs(say: Callable[[str], None], log: Path, *, keep: bool = False) -> None:
    """Make gangs compete, wait, preempt and be preempted, and report the steps with *say*. Raises :class:`StoryFailed`.

    With *keep*, core and cluster go on afterwards until this process is interrupted.
    """
    await tell_story(say, log, config=CONFIG, make_site=GangSite, show_steps=_show_gangs, keep=keep)


async def _show_gangs(site: GangSite, address: str, say: Callable[[str], None]) -> None:
    say(
        "\n1. Four nodes with four cores each. Two gangs of ten tasks come at the same time: 'alpha' and 'beta'. Either"
        "\n   fits alone, both do not. If each got what there is, both would hold eight cores and wait for ever. A Hard"
        "\n   gang starts as a whole or not at all: 'alpha' runs, and 'beta' holds nothing while it waits."
    )
    await site.create_nodes()
    await site.submit_gang("alpha", "root.spare", 10)
    await site.submit_gang("beta", "root.spare", 10)
    await site.wait_until_running("alpha", 10)
    say(site.draw_nodes())
    _expect(site.count_running("beta") == 0, "a part of 'beta' runs")
    say("\n   `kornel explain beta`:\n")
    say(await ask_until(lambda: run_kornel(address, "explain", "beta"), "gang-incomplete"))

    say("\n2. 'alpha' is done, and 'beta' starts, whole.")
    await site.end_application("alpha")
    await site.wait_until_running("beta", 10)
    say(site.draw_nodes())
    await site.end_application("beta")

    say(
        "\n3. Two gangs of eight run in a queue that is guaranteed nothing: 'curie' and 'darwin'. Then 'urgent' wants"
        "\n   two cores in a queue that is owed them. With six of eight members a gang is of no use, so none is torn:"
        "\n   one gang leaves as a whole."
    )
    await site.submit_gang("curie", "root.spare", 8)
    await site.wait_until_running("curie", 8)
    await site.submit_gang("darwin", "root.spare", 8)
    await site.wait_until_running("darwin", 8)
    say(site.draw_nodes())
    await site.submit_tasks("urgent", "root.mpi", 2)
    await site.wait_until_running("urgent", 2)
    say(site.draw_nodes())
    left = sorted((site.count_running("curie"), site.count_running("darwin")))
    _expect(left == [0, 8], f"of the gangs {left} run")
    for name in ("curie", "darwin", "urgent"):
        if site.count_running(name):
            await site.end_application(name)

    say(
        "\n4. Sixteen tasks of 'nightly' fill the cluster; their queue is guaranteed 4 cores. 'huge' is a gang of four"
        "\n   members with 4 cores each, in a queue that is guaranteed 16. Only twelve tasks may lawfully leave, and"
        "\n   that is room for three members. So nobody leaves at all."
    )
    await site.submit_tasks("nightly", "root.batch", 16)
    await site.wait_until_running("nightly", 16)
    site.ended.clear()
    await site.submit_gang("huge", "root.mpi", 4, cores=4)
    say("\n   `kornel explain huge`:\n")
    say(await ask_until(lambda: run_kornel(address, "explain", "huge"), "3 of 4 places"))
    say(site.draw_nodes())
    _expect(not site.ended, f"{len(site.ended)} tasks left for a gang that cannot run")
    await site.end_application("huge")

    say(
        "\n5. 'large' has three such members. There is a place for each of them, so twelve tasks are asked to leave,"
        "\n   in one message, and when the last one has, all members start at once."
    )
    await site.submit_gang("large", "root.mpi", 3, cores=4)
    await site.wait_until_running("large", 3)
    say(site.draw_nodes())
    _expect(len(site.ended) == 12, f"{len(site.ended)} tasks left, not 12")
    say("\n   `kornel history preemptions` keeps who left for whom, and `kornel explain large` while it waits.")


def _expect(true: bool, otherwise: str) -> None:
    if not true:
        raise StoryFailed(otherwise)
