"""The connections between agents and the server: the agent of this machine runs within the process, the others are
connected over TCP."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from kornel.shim_local.jobs.dispatcher import Dispatcher
from kornel.shim_local.server.wire import WireError, read_message, write_message

PING_S: Final = 5.0
SILENCE_S: Final = 20.0
ANSWER_S: Final = 10.0
_LOGGER: Final = logging.getLogger(__name__)


class AgentAway(Exception):
    """The agent that should answer is not connected."""


class AgentLinks:
    """The agents that are connected, by the names of their machines."""

    def __init__(self) -> None:
        self._senders: dict[str, Callable[[Mapping[str, Any]], None]] = {}
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        self._dispatcher: Dispatcher | None = None

    def attach(self, dispatcher: Dispatcher) -> None:
        """Set the dispatcher that reads the messages of agents."""
        self._dispatcher = dispatcher

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher that :meth:`attach` has set."""
        assert self._dispatcher is not None, "it is attached before anything runs"
        return self._dispatcher

    def send(self, node: str, message: Mapping[str, Any]) -> None:
        """Send a message to the agent of *node*. If the agent is away, the message is lost; everything is compared when
        the agent is back."""
        if (sender := self._senders.get(node)) is not None:
            sender(message)

    def send_to_all(self, message: Mapping[str, Any]) -> None:
        """Send a message to every agent that is connected."""
        for sender in self._senders.values():
            sender(message)

    async def ask(self, node: str, message: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer of an agent. Raises AgentAway."""
        if node not in self._senders:
            raise AgentAway(f"the agent of {node} is away")
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            self.send(node, {**message, "id": number})
            return await asyncio.wait_for(answer, ANSWER_S)
        except TimeoutError:
            raise AgentAway(f"the agent of {node} does not answer") from None
        finally:
            del self._answers[number]

    def connect(self, hello: Mapping[str, Any], sender: Callable[[Mapping[str, Any]], None]) -> None:
        """Add an agent that has introduced itself."""
        self._senders[str(hello["node"])] = sender
        self.dispatcher.connect_agent(hello)

    def disconnect(self, node: str, sender: Callable[[Mapping[str, Any]], None]) -> None:
        """Remove an agent, unless it has connected again meanwhile."""
        if self._senders.get(node) is sender:
            del self._senders[node]
            self.dispatcher.disconnect_agent(node)

    def receive(self, node: str, message: Mapping[str, Any]) -> None:
        """Pass a message of an agent to the dispatcher."""
        match message["do"]:
            case "started":
                self.dispatcher.start_task(message["key"], message["at"])
            case "ended":
                if (start := message.get("start")) is not None:
                    self.dispatcher.start_task(message["key"], start["at"])
                self.dispatcher.end_attempt(message["key"], message["end"], node)
            case "answer":
                answer = self._answers.get(message["id"])
                if answer is not None and not answer.done():
                    answer.set_result(dict(message))
            case "ping":
                pass
            case _:
                _LOGGER.warning("%s: unknown message %s", node, message["do"])

    async def serve_agent(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve an agent over a connection until the connection ends."""
        hello = await read_message(reader)
        if hello is None or hello.get("do") != "hello":
            raise WireError("an agent did not introduce itself")
        node = str(hello["node"])
        if node in self._senders:
            write_message(writer, {"do": "refused", "reason": f"another agent is connected as {node}"})
            return
        if reason := self.dispatcher.find_stranger(hello):
            write_message(writer, {"do": "refused", "reason": reason})
            return

        def send(message: Mapping[str, Any]) -> None:
            write_message(writer, message)

        _LOGGER.info("the agent of %s is connected", node)
        pinging = asyncio.create_task(send_pings(writer), name=f"pings to {node}")
        try:
            write_message(writer, {"do": "welcome"})
            self.connect(hello, send)
            while (message := await read_timely(reader)) is not None:
                self.receive(node, message)
        finally:
            pinging.cancel()
            self.disconnect(node, send)
            _LOGGER.warning("the agent of %s is away", node)


async def send_pings(writer: asyncio.StreamWriter) -> None:
    """Send a message regularly, so that the other side notices when the connection is dead."""
    while True:
        await asyncio.sleep(PING_S)
        write_message(writer, {"do": "ping"})


async def read_timely(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Returns the next message, or ``None`` at the end or if no message arrived for too long."""
    try:
        async with asyncio.timeout(SILENCE_S):
            return await read_message(reader)
    except TimeoutError:
        return None
