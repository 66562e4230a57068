"""Configurations that are only to be judged: by the process or a thread, with limits, and always the same verdict."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator

import pytest

from kornel.core.config.loader import load
from kornel.core.config.text.problems import ConfigError
from kornel.core.service.configuration import reading_process
from kornel.core.service.configuration.judging import MOST_BYTES, MOST_TEXTS, SMALL, Judge
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.wire.status_codes import TooMany
from tests.patience import PATIENCE_S

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


async def test_a_text_whose_reader_was_given_up_gets_its_own_verdict(judge: Judge) -> None:
    await judge.judge_text(GOOD + PADDING)
    reading = asyncio.create_task(judge.judge_text(GOOD + PADDING * 100))
    while not judge.process.busy:  # noqa: ASYNC110 - a turn of the event loop
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert (await judge.judge_text(GOOD + PADDING)).checksum == load(GOOD + PADDING).checksum


async def test_a_process_that_dies_is_started_again(judge: Judge) -> None:
    await judge.judge_text(GOOD + PADDING)
    process = judge.process.process
    assert process is not None
    reading = asyncio.create_task(judge.judge_text(GOOD + PADDING * 100))
    while not judge.process.busy:  # noqa: ASYNC110 - a turn of the event loop
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    process.kill()
    with pytest.raises(TooMany, match="try again"):
        await reading
    assert (await judge.judge_text(GOOD + PADDING)).checksum


async def test_it_ends_when_nobody_asks(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_process, "IDLE_S", 0.05)
    await judge.judge_text(GOOD + PADDING)
    process = judge.process.process
    assert process is not None
    assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
    assert (await judge.judge_text(GOOD + PADDING)).checksum


@pytest.mark.parametrize("turns", [0, 1, 5])
async def test_a_text_that_comes_while_it_ends_is_read_by_another_one(judge: Judge, turns: int) -> None:
    await judge.judge_text(GOOD + PADDING)
    process = judge.process.process
    assert process is not None
    judge.process._end_idle()  # What the timer does after a minute.
    for _ in range(turns):
        await asyncio.sleep(0)
    assert (await judge.judge_text(GOOD + PADDING)).checksum
    assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0


async def test_a_process_that_ends_is_gone_once_nobody_judges_any_more(judge: Judge) -> None:
    await judge.judge_text(GOOD + PADDING)
    process = judge.process.process
    assert process is not None
    judge.process._end_idle()
    await judge.process.close()
    assert process.returncode is not None


async def test_there_is_room_for_so_many_texts_and_bytes(judge: Judge) -> None:
    with judge.rooms.take_room() as room:
        room.add(MOST_BYTES)
        with judge.rooms.take_room() as other, pytest.raises(TooMany):
            other.add(1)
    rooms = [judge.rooms.take_room() for _ in range(MOST_TEXTS)]
    for taken in rooms:
        taken.__enter__()
    with pytest.raises(TooMany), judge.rooms.take_room():
        pass
    for taken in rooms:
        taken.__exit__(None, None, None)
    with judge.rooms.take_room() as room:
        room.add(MOST_BYTES)
