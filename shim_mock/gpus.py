"""A demonstration of devices: ``kornel-shim-mock demo --kind devices``.

Two simulated machines have four GPUs each, in linked pairs. Tasks ask for parts of a GPU, for single ones and for
linked ones, and a gang preempts for the pairs that it is guaranteed. After each step the GPUs are drawn with the tasks
to which the core gave them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from kornel.shim_client import (
    Allocated,
    Ask,
    AskRejected,
    Device,
    Devices,
    Released,
    ShimClient,
    devices_attribute,
    devices_of,
)
from kornel.shim_mock.stories import StoryFailed, add_application, ask_until, run_kornel, tell_story, wait_until
from kornel.si.v1 import si_pb2 as si

MACHINES: Final = ("m1", "m2")
GPUS: Final = (Device("0", "A100", link="a"), Device("1", "A100", link="a"), Device("2", "A100", link="b"),
               Device("3", "A100", link="b"))  # fmt: skip
SHARES: Final = 4
"""The number of letters that stand for one GPU in a drawing."""

CONFIG: Final = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: batch
          - name: training
            resources: {guaranteed: {vcore: 8}}
            properties: {preemption.delay: 1s}
"""
APPLICATIONS: Final = {"serve": "batch", "pairs": "batch", "single": "batch", "four": "batch", "train": "training"}


class Machines:
    """The simulated machines, and the tasks that run on their GPUs."""

    def __init__(self, client: ShimClient) -> None:
        self._client = client
        self._held: dict[str, tuple[str, str, tuple[str, ...], int]] = {}
        """The application, the machine and the GPUs of each task, and how many letters it takes of each GPU."""
        self._letters: dict[str, int] = {}
        self._changed = asyncio.Event()

    async def create_nodes(self) -> None:
        """Report both machines with their GPUs."""
        capacity = si.Resource(resources={"vcore": si.Quantity(value=32_000)})
        attributes = devices_attribute(GPUS)
        infos = [
            si.NodeInfo(nodeID=name, action=si.NodeInfo.CREATE, schedulableResource=capacity, attributes=attributes)
            for name in MACHINES
        ]
        await self._client.create_nodes(infos)

    async def submit(self, name: str, number: int, wants: Devices, *, gang: bool = False) -> None:
        """Submit *number* tasks of application *name*, each of which wants *wants*, with *gang* all or none."""
        self._letters[name] = round(wants.fraction * SHARES) or SHARES
        application = si.AddApplicationRequest(applicationID=name, queueName=f"root.{APPLICATIONS[name]}")
        if gang:
            application.placeholderAsk.CopyFrom(si.Resource(resources={"vcore": si.Quantity(value=1_000 * number)}))
            application.gangSchedulingStyle = "Hard"
        await add_application(self._client, application)
        keys = [f"{'hold-' if gang else ''}{name}-{at}" for at in range(number)]
        await self._client.submit_asks(
            Ask(key, name, {"vcore": 1_000}, task_group="workers" if gang else "", placeholder=gang, devices=wants,
                allow_preempt_other=gang)
            for key in keys
        )  # fmt: skip

    async def handle_updates(self) -> None:
        """Carry out the core's decisions until cancelled: start tasks, and end those that are preempted."""
        async for update in self._client.updates():
            match update:
                case Allocated(key=key, application_id=name) if key.startswith("hold-"):
                    # The real task says nothing about devices: it takes over those of its placeholder.
                    real = Ask(key.removeprefix("hold-"), name, {"vcore": 1_000}, task_group="workers")
                    await self._client.submit_asks([real])
                case Allocated(key=key, application_id=name, node_id=node, message=message):
                    self._held[key] = name, node, devices_of(message), self._letters[name]
                case Released(key=key, application_id=name) if update.wants_confirmation:
                    self._held.pop(key, None)
                    await self._client.release([self._client.release_of(name, key, update.termination)])
                case AskRejected(key=key, reason=reason):
                    raise StoryFailed(f"ask {key} was refused: {reason}")
                case _:
                    continue
            self._changed.set()

    async def wait_until_running(self, name: str, number: int) -> list[tuple[str, tuple[str, ...]]]:
        """Returns machine and GPUs of each task of application *name* once *number* of them run."""
        await wait_until(
            self._changed, lambda: len(self._places_of(name)) >= number, lambda: f"{name}: {self._places_of(name)}"
        )
        return self._places_of(name)

    def draw_gpus(self) -> str:
        """Returns a line for each machine, with four letters for each GPU: the first ones of its tasks, or dots."""
        lines = []
        for machine in MACHINES:
            shown = []
            for gpu in GPUS:
                here = [(name, letters) for name, node, held, letters in self._held.values()
                        if node == machine and gpu.device_id in held]  # fmt: skip
                drawn = "".join(name[0] * letters for name, letters in sorted(here))
                shown.append(f"{gpu.device_id} [{drawn.ljust(SHARES, '.')}]")
            lines.append(f"   {machine}:  {shown[0]}={shown[1]}   {shown[2]}={shown[3]}")
        return "\n".join(lines)

    def _places_of(self, name: str) -> list[tuple[str, tuple[str, ...]]]:
        return [(node, held) for owner, node, held, _ in self._held.values() if owner == name]


async def demonstrate_devices(say: Callable[[str], None], log: Path, *, keep: bool = False) -> None:
    """Submit tasks that want GPUs, and report the steps with *say*. Raises :class:`StoryFailed`.

    With *keep*, core and cluster go on afterwards until this process is interrupted.
    """
    await tell_story(say, log, config=CONFIG, make_site=Machines, show_steps=_show_tasks, keep=keep)


async def _show_tasks(site: Machines, address: str, say: Callable[[str], None]) -> None:
    say("\n1. Two machines report four GPUs each (attribute kornel.devices). 0 and 1 are linked, and so are 2 and 3.")
    await site.create_nodes()
    say(site.draw_gpus())

    say(
        "\n2. 'serve' has three tasks that want a quarter of a GPU each (tag kornel.gpu.fraction = 0.25). They share"
        "\n   one, so that the others stay whole. The core says which with each task: kornel.gpu.devices = 0"
    )
    await site.submit("serve", 3, Devices(fraction=0.25))
    _expect(len({*await site.wait_until_running("serve", 3)}) == 1, "parts share one GPU", site)
    say(site.draw_gpus())

    say("\n3. 'pairs' has two tasks that want two linked GPUs each (kornel.gpu.count = 2, kornel.gpu.link = same).")
    await site.submit("pairs", 2, Devices(count=2, linked=True))
    _expect(_are_pairs(await site.wait_until_running("pairs", 2)), "linked GPUs", site)
    say(site.draw_gpus())

    say("\n4. 'single' wants one GPU. It gets the one beside the shared one: the last whole pair is left alone.")
    await site.submit("single", 1, Devices(count=1))
    _expect(await site.wait_until_running("single", 1) == [("m1", ("1",))], "the pair is left alone", site)
    say(site.draw_gpus())

    say(
        "\n5. 'four' wants four GPUs of one machine, and waits. `kornel explain four-0` says how far the machines are"
        "\n   from it:\n"
    )
    await site.submit("four", 1, Devices(count=4))
    say(await ask_until(lambda: run_kornel(address, "explain", "four-0"), "node-devices"))

    say(
        "\n6. 'train' is a gang: two tasks or none, with a linked pair each. Its queue is guaranteed room, so it"
        "\n   preempts as a whole: one pair is free, and the other comes from one task of 'pairs'. Nobody else has to"
        "\n   leave."
    )
    await site.submit("train", 2, Devices(count=2, linked=True), gang=True)
    _expect(_are_pairs(await site.wait_until_running("train", 2)), "linked GPUs", site)
    _expect(len(await site.wait_until_running("pairs", 1)) == 1, "one of them had to leave", site)
    say(site.draw_gpus())
    say("\n   `kornel nodes m1` shows the same:\n")
    say(await run_kornel(address, "nodes", "m1"))


def _are_pairs(places: Iterable[tuple[str, tuple[str, ...]]]) -> bool:
    return all(set(held) in ({"0", "1"}, {"2", "3"}) for _, held in places)


def _expect(true: bool, what: str, site: Machines) -> None:
    """Raises :class:`StoryFailed` unless *true*."""
    if not true:
        raise StoryFailed(f"expected otherwise ({what}):\n{site.draw_gpus()}")
