"""Serves the configuration in force, and validates other ones (rest.md 4.9, 4.10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.config.loader import checksum_of
from kornel.core.config.text.problems import ConfigError
from kornel.core.config.text.yaml_reader import MOST_BYTES
from kornel.core.rest.documents.configuration_document import (
    Document,
    as_yaml,
    complete_document,
    configuration_document,
)
from kornel.core.rest.documents.reports import CONFIGURATION, VALIDATION, Verdict
from kornel.core.rest.http.errors import RestError, not_found
from kornel.core.rest.serving.answers import YAML, json_answer, text_answer
from kornel.core.rest.serving.queries import query_of
from kornel.core.rest.serving.rows import JSON_TYPE, PREFIX, YAML_TYPE, Row
from kornel.core.service.configuration.configuring import Configurator
from kornel.core.service.managers.managers import Managers, Place

_CHECKSUM_KEY: Final = "checksum: "
_TOO_LONG: Final = {413: "The text is too long."}


class ConfigurationHandlers:
    """Serves routes R3 and R4. The text in force is parsed once and the result kept."""

    def __init__(self, managers: Managers) -> None:
        self._managers = managers
        self._known: tuple[Configurator | None, int, Document] = None, 0, {"Partitions": []}
        self._as_yaml: tuple[Document, str] = {}, ""
        self._one_at_a_time = asyncio.Lock()

    async def make_document(self, place: Place | None = None) -> Document:
        """Returns the configuration of *place* with the settings in force, by default of the first manager; it has no
        partitions while no manager is registered."""
        place = place or self._managers.leader
        configurator = place.configurator
        number = configurator.in_force
        if not number:
            return complete_document({"Partitions": []}, {})
        async with self._one_at_a_time:
            if (configurator, number) != self._known[:2]:
                version = configurator.version(number)
                document = await asyncio.to_thread(configuration_document, version.text, version.checksum)
                self._known = configurator, number, document
        return complete_document(self._known[2], place.runner.extra_config())

    @Row(f"{PREFIX}/config", "config", "Configuration", CONFIGURATION, content=(JSON_TYPE, YAML_TYPE))
    async def show(self, request: Request) -> ASGIApp:
        """Returns the configuration in force: as JSON for clients that accept only application/json, otherwise as YAML.

        The parameter ``manager`` is Kornel's own and chooses the manager."""
        document = await self.make_document(chosen_place(self._managers, request))
        if request.headers.get("accept") == "application/json":
            return json_answer(document)
        async with self._one_at_a_time:
            if self._as_yaml[0] != document:
                self._as_yaml = document, await asyncio.to_thread(as_yaml, document)
            return text_answer(self._as_yaml[1], content_type=YAML)

    @Row(
        f"{PREFIX}/validate-conf", "validateConf", "Configuration", VALIDATION, errors=_TOO_LONG, body=YAML_TYPE,
        method="POST",
    )  # fmt: skip
    async def validate(self, request: Request) -> ASGIApp:
        """Checks whether a queue configuration could be used. Changes nothing.

        The status is 200 whatever the text is."""
        try:
            # Room is taken from the first byte on, because bodies that are still arriving take memory as well.
            with self._managers.leader.configurator.judge.rooms.take_room() as add_bytes:
                body = await limited_body(request, MOST_BYTES, add_bytes)
                try:
                    text = body.decode()
                except UnicodeDecodeError as error:
                    return _answer_verdict(Verdict(allowed=False, reason=f"the text is not UTF-8: {error}"))
                judgement = await self._managers.leader.configurator.judge_text(text)
        except ConfigError as error:
            return _answer_verdict(Verdict(allowed=False, reason=str(error)))
        summed = checksum_of(text)
        carried = text.partition(_CHECKSUM_KEY)[2][: len(summed)]
        warnings = [str(warning) for warning in judgement.warnings]
        matches = carried.upper() == summed
        return _answer_verdict(Verdict(allowed=True, checksum=summed, checksum_match=matches, warnings=warnings))


def chosen_place(managers: Managers, request: Request) -> Place:
    """Returns the place of the manager that the query names, or of the first one. Raises 404 for an unknown one."""
    rm_id = query_of(request).get("manager", "")
    found = managers.find(rm_id) if rm_id else managers.leader
    if found is None:
        raise not_found("Resource manager")
    return found


async def limited_body(request: Request, most: int, add: Callable[[int], None]) -> bytes:
    """Returns the body of *request*. Raises 413 as soon as it is known to be longer than *most* bytes.

    *add* is called with the size of each part that is kept.
    """
    pieces: list[bytes] = []
    size = 0
    too_long = RestError(413, f"the body is longer than {most} bytes")
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > most:
        raise too_long
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise too_long
        add(len(piece))
        pieces.append(piece)
    return b"".join(pieces)


def _answer_verdict(verdict: Verdict) -> ASGIApp:
    return json_answer(VALIDATION.write(verdict))
