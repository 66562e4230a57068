"""A connection to the core under test with the actions of an RM, for cases to use.

:mod:`kornel.conformance.connection` compares answers, and :mod:`kornel.conformance.looking` inspects a core.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import grpc
import grpc.aio

from kornel.conformance import configs, entries, messages
from kornel.conformance.callback_peer import Answers, CallbackPeer
from kornel.conformance.clock import Clock
from kornel.conformance.connection import CALL_TIMEOUT_S, MAX_MESSAGE_BYTES, RESUME_KEY, RM, Settings
from kornel.conformance.entries import Entry
from kornel.conformance.looking import Looking, skip_where_unserved
from kornel.conformance.outcome import Skipped, check
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2_grpc, configuration_pb2, configuration_pb2_grpc, manager_pb2, manager_pb2_grpc

RESTART_S: Final = 60.0
"""The time within which a core has to answer after it was started again."""

OTHER_RM: Final = "conformance-2"

PARTITION: Final = f"[{RM}]default"


class Bench(Looking):
    """One connection of a case. The case begins with :meth:`reg`, or with :meth:`start_fresh` if no RM may be
    registered."""

    def __init__(self, address: str, channel: grpc.aio.Channel, clock: Clock, settings: Settings, *, rm: str) -> None:
        super().__init__(channel, clock, settings, rm=rm)
        self._channel: Final = channel
        self._address: Final = address
        self._configuration: Final = configuration_pb2_grpc.ConfigurationServiceStub(channel)
        self._manager: Final = manager_pb2_grpc.ManagerServiceStub(channel)
        self._callbacks: Final = callback_pb2_grpc.CallbackServiceStub(channel)
        self._peers: Final[list[CallbackPeer]] = []

    async def reg(self, config: str = configs.BASIC) -> None:
        """Register and open the three streams, by default with the contract's "reg"."""
        await self.close()
        await self.register(config)
        await self.open_streams()

    async def start_fresh(self) -> None:
        """Bring the core into the state in which no RM is registered, by a registration that fails and so removes the
        old one."""
        await self.expect_refusal(self.register(configs.UNKNOWN_KEY), grpc.StatusCode.INVALID_ARGUMENT)

    async def restart_core(self, *others: Bench) -> None:
        """Has the core killed and started again by the command that was given for this purpose, and waits until it
        answers this program and *others*.

        The streams of all of them have to be opened again. Raises Skipped if no command was given.
        """
        if not self.settings.restart:
            raise Skipped("needs a command that kills the core and starts it again (--restart)")
        programs = (self, *others)
        for each in programs:
            await each.close()
        program = await asyncio.create_subprocess_shell(self.settings.restart)
        status = await program.wait()
        check(status == 0, f"the command that restarts the core ended with status {status}")
        async with asyncio.timeout(RESTART_S):
            for each in programs:
                await each._channel.channel_ready()

    async def read_applied(self, kind: str) -> int:
        """Returns the number of applied entries that the core gives when it opens the stream of *kind*."""
        stream = {"node": self.nodes, "application": self.applications, "allocation": self.allocations}[kind]
        marks = await stream.read_marks(self.settings.deadline_s)  # type: ignore[attr-defined]
        said = marks.get(RESUME_KEY, "").rpartition("/")
        check(said[2].isdecimal(), f"expected {RESUME_KEY} with a count on the {kind} stream, got {marks}")
        self.epoch = said[0]
        return int(said[2])

    async def update_configuration(
        self, config: str, *, rm: str | None = None, extra: Mapping[str, str] | None = None
    ) -> configuration_pb2.UpdateConfigurationResponse:
        """Replace the queue configuration. Raises Skipped on a core that has no such call."""
        request = configuration_pb2.UpdateConfigurationRequest(
            rm_id=rm or self.rm, policy_group="queues", config=config, extra_config=extra or {}
        )
        with skip_where_unserved("kornel.v1.ConfigurationService"):
            return await self._configuration.UpdateConfiguration(request, timeout=CALL_TIMEOUT_S)

    async def unregister(self, rm: str | None = None) -> None:
        """Remove the RM from the core. Raises Skipped on a core that has no such call."""
        request = manager_pb2.UnregisterResourceManagerRequest(rm_id=rm or self.rm)
        with skip_where_unserved("kornel.v1.ManagerService"):
            await self._manager.UnregisterResourceManager(request, timeout=CALL_TIMEOUT_S)

    async def attach_peer(self, answers: Answers) -> CallbackPeer:
        """Subscribe to the core's questions and notices. Raises Skipped on a core that has no such service."""
        peer = CallbackPeer(self._callbacks.Attach(), answers, deadline_s=self.settings.deadline_s)
        self._peers.append(peer)
        await peer.subscribe_rm(self.rm)
        return peer

    async def close(self) -> None:
        """End all streams, including that of callbacks."""
        for peer in self._peers:
            await peer.close()
        self._peers.clear()
        await super().close()

    @asynccontextmanager
    async def another_program(self, rm: str | None = None) -> AsyncIterator[Bench]:
        """Yields a second program with its own connection, by default for the same RM."""
        async with connect(self._address, self.clock, self.settings, rm=rm or self.rm) as bench:
            yield bench
            self.notes.extend(bench.notes)

    async def release(self, key: str, termination: int = si.STOPPED_BY_RM, *, app: str = "app") -> None:
        """Release one allocation or ask; an empty *key* means all of *app*."""
        await self.send(releases=[messages.release(key, termination, app=app)])

    async def node(self, node: str, vcore: int = messages.NODE_VCORE) -> None:
        """Create a node, and expect it to be accepted."""
        await self.send_nodes(messages.full_node(node, vcore))
        await self.expect(entries.node_accepted(node))

    async def node_action(self, node: str, action: int) -> None:
        """Send an entry with only *action*, which may be a number that the proto does not define."""
        await self.send_nodes(messages.node_info(node, si.NodeInfo.ActionFromRM.ValueType(action)))

    async def app(self, app: str = "app", queue: str = "root.a") -> None:
        """Add an application, and expect it to be accepted."""
        await self.send_applications(messages.application(app, queue))
        await self.expect(entries.app_accepted(app))

    async def start(
        self,
        *keys: str,
        app: str = "app",
        vcore: int = messages.ASK_VCORE,
        node: str | None = None,
        policy: tuple[bool, bool] | None = None,
    ) -> list[Entry]:
        """Send the first asks of *app*, and expect them to be placed and *app* to be Running. Returns their ``new``
        entries."""
        await self.send(*(messages.allocation(key, vcore, app=app, policy=policy) for key in keys))
        await self.expect(entries.updated(app, "Accepted"), entries.updated(app, "Running"))
        return await self.expect_set(*(entries.new(key, node, app) for key in keys))

    async def ask_and_place(self, key: str, vcore: int = messages.ASK_VCORE, *, app: str = "app") -> Entry:
        """Send another ask of *app*, which runs already, and expect it to be placed."""
        await self.send(messages.allocation(key, vcore, app=app))
        return (await self.expect(entries.new(key, app=app)))[0]

    async def world(self, config: str = configs.BASIC) -> None:
        """Register, create n1 and add app."""
        await self.reg(config)
        await self.node("n1")
        await self.app()


@asynccontextmanager
async def connect(address: str, clock: Clock, settings: Settings, *, rm: str = RM) -> AsyncIterator[Bench]:
    """Yields a bench that is connected to the core at *address*."""
    options = [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        # Cases must not share a connection, because closing one would close both.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_reconnect_backoff_ms", 500),
    ]
    async with settings.credentials.channel(address, options) as channel:
        bench = Bench(address, channel, clock, settings, rm=rm)
        try:
            yield bench
        finally:
            await bench.close()
