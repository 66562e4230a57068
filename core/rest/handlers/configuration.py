"""The configuration in force, and what is thought of another one (rest.md 4.9, 4.10)."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp

from core.config.loader import checksum
from core.config.problems import ConfigError
from core.config.yaml_reader import MOST_BYTES
from core.rest.answers import YAML, json_answer, text_answer
from core.rest.configuration_document import Document, as_yaml, completed, configuration_document
from core.rest.errors import RestError
from core.service.configuring import Configurator
from core.service.runner import PartitionRunner

_CHECKSUM_KEY: Final = "checksum: "


class ConfigurationHandlers:
    """R3 and R4. What the text in force says is worked out once and kept."""

    def __init__(self, configurator: Configurator, runner: PartitionRunner) -> None:
        self._configurator = configurator
        self._runner = runner
        self._known: tuple[int, Document] = 0, {"Partitions": []}

    async def document(self) -> Document:
        """The configuration with the settings in force; without partitions while nobody is registered."""
        number = self._configurator.in_force
        if not number:
            return completed({"Partitions": []}, {})
        if number != self._known[0]:
            version = self._configurator.version(number)
            self._known = number, await asyncio.to_thread(configuration_document, version.text, version.checksum)
        return completed(self._known[1], self._runner.extra_config())

    async def show(self, request: Request) -> ASGIApp:
        """R3: JSON for whoever accepts nothing else, YAML for the rest."""
        document = await self.document()
        if request.headers.get("accept") == "application/json":
            return json_answer(document)
        return text_answer(await asyncio.to_thread(as_yaml, document), content_type=YAML)

    async def validate(self, request: Request) -> ASGIApp:
        """R4. Never changes anything; 200 whatever the text."""
        body = await limited_body(request, MOST_BYTES)
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            return _judged({"allowed": False, "reason": f"the text is not UTF-8: {error}"})
        try:
            configuration = await self._configurator.judge(text)
        except ConfigError as error:
            return _judged({"allowed": False, "reason": str(error)})
        summed = checksum(text)
        carried = text.partition(_CHECKSUM_KEY)[2][: len(summed)]
        document = {"allowed": True, "checksum": summed, "checksumMatch": carried.upper() == summed}
        warnings = [str(warning) for warning in configuration.warnings]
        return _judged({**document, "warnings": warnings} if warnings else document)


async def limited_body(request: Request, most: int) -> bytes:
    """The body of *request*. Raises 413 as soon as it is longer than *most* bytes."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise RestError(413, f"the body is longer than {most} bytes", [("Connection", "close")])
        pieces.append(piece)
    return b"".join(pieces)


def _judged(document: dict[str, object]) -> ASGIApp:
    return json_answer(document, methods="OPTIONS, POST")
