"""Configurations that are only to be judged: by the process or a thread, with limits, and always the same verdict."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence

import pytest

from kornel.core.config.loader import load
from kornel.core.config.model import Configuration
from kornel.core.config.rereading import ConfigurationReader
from kornel.core.config.text.problems import ConfigError
from kornel.core.service.configuration.judging import MOST_BYTES, MOST_TEXTS, SMALL, Judge
from kornel.core.service.configuration.reading_process import Judgement, PreviewRequest, answer_request
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.wire.status_codes import TooMany
from tests.waiting import until

GOOD = "partitions:\n  - name: default\n    queues: [{name: root, submitacl: '*'}]\n"
BAD = "partitions:\n  - name: default\n    queues: [{name: root, colour: blue, resources: {max: {vcore: -1}}}]\n"
PADDING = "# a comment to make it longer\n" * (SMALL // 20)


@pytest.fixture
async def judge() -> AsyncIterator[Judge]:
    logger = build_logger(LogFormat.CONSOLE, LogLevel.DEBUG, io.StringIO())
    judge = Judge({"ldap": "no settings"}, logger=logger)
    yield judge
    await judge.process.close()


@pytest.mark.parametrize("padding", ["", PADDING], ids=["here", "elsewhere"])
async def test_the_verdict_is_that_of_the_loader(judge: Judge, padding: str) -> None:
    good = await judge.judge_text(GOOD + padding)
    assert good.checksum == load(GOOD + padding).checksum
    assert good.warnings == load(GOOD + padding).warnings
    with pytest.raises(ConfigError) as refused:
        await judge.judge_text(BAD + padding)
    with pytest.raises(ConfigError) as expected:
        load(BAD + padding)
    assert refused.value.problems == expected.value.problems
    with pytest.raises(ConfigError, match="no settings"):
        await judge.judge_text(GOOD.replace("default\n", "default\n    usergroupresolver: {type: ldap}\n") + padding)


@pytest.mark.parametrize("text", ["\ud800", "a: \x00", "é: ü" * SMALL, ": " * SMALL])
async def test_any_text_has_a_verdict(judge: Judge, text: str) -> None:
    for padding in ("", PADDING):
        with pytest.raises(ConfigError):
            await judge.judge_text(text + padding)


class Stopped(subprocess.Popen[bytes]):
    """A process that stands still from its beginning, so that it is still there when it is to be killed."""

    def __init__(self, command: Sequence[str], stdin: int) -> None:
        super().__init__(command, stdin=stdin)
        os.kill(self.pid, signal.SIGSTOP)


async def begin_reading(judge: Judge) -> tuple[asyncio.Task[Judgement], int]:
    """Has a text judged by a process that stands still, and returns the process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", Stopped)
        reading = asyncio.create_task(judge.judge_text(GOOD + PADDING))
        await until(lambda: judge.process.helper is not None and judge.process.helper.pid is not None, "a process")
    assert judge.process.helper is not None
    assert judge.process.helper.pid is not None
    return reading, judge.process.helper.pid


async def test_a_text_whose_reader_was_given_up_gets_its_own_verdict(judge: Judge) -> None:
    reading, _ = await begin_reading(judge)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert (await judge.judge_text(GOOD + PADDING)).checksum == load(GOOD + PADDING).checksum


async def test_a_process_that_dies_does_not_keep_the_next_text_from_being_read(judge: Judge) -> None:
    reading, pid = await begin_reading(judge)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(TooMany, match="try again"):
        await reading
    assert (await judge.judge_text(GOOD + PADDING)).checksum


async def test_no_process_is_left_once_nobody_judges_any_more(judge: Judge) -> None:
    reading, pid = await begin_reading(judge)
    await judge.process.close()
    with pytest.raises(TooMany):
        await reading
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(TooMany):
        await judge.judge_text(GOOD + PADDING)


async def test_there_is_room_for_so_many_texts_and_bytes(judge: Judge) -> None:
    with judge.rooms.take_room() as add_bytes:
        add_bytes(MOST_BYTES)
        with judge.rooms.take_room() as add_more, pytest.raises(TooMany):
            add_more(1)
    rooms = [judge.rooms.take_room() for _ in range(MOST_TEXTS)]
    for taken in rooms:
        taken.__enter__()
    with pytest.raises(TooMany), judge.rooms.take_room():
        pass
    for taken in rooms:
        taken.__exit__(None, None, None)
    with judge.rooms.take_room() as add_bytes:
        add_bytes(MOST_BYTES)


@pytest.mark.parametrize("request_parts", [[GOOD], [PreviewRequest(GOOD, GOOD, "rm"), None]], ids=["judge", "try"])
def test_the_core_is_watched_while_a_text_is_read(request_parts: list[object]) -> None:
    """That is from when all is received, so that the process ends with its core."""
    steps: list[str] = []
    left = iter(request_parts)

    class Noting(ConfigurationReader):
        def load(self, text: str) -> Configuration:
            steps.append("read")
            return super().load(text)

    def receive() -> object:
        steps.append("receive")
        return next(left)

    answer_request(Noting({}), receive, lambda: steps.append("watch"))
    assert steps == ["receive"] * len(request_parts) + ["watch"] + ["read"] * len(request_parts)
