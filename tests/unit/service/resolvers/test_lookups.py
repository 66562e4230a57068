"""Groups for the applications of a request: config.md 11, B17, T83, T84; protocol.md 6.1."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from kornel.core.domain.commands import ApplicationSpec, UpdateApplications
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import SECOND_NS, ManualClock
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.resolvers.lookups import AT_ONCE, GroupLookups
from kornel.core.service.resolvers.source import Unresolved

PARTITION = "[rm]default"


class Book:
    """A source with fixed answers; while ``gate`` is shut, everybody who asks has to wait."""

    def __init__(self, users: Mapping[str, tuple[str, ...]]) -> None:
        self.users = users
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Semaphore(0)

    def groups_of(self, user: str) -> tuple[str, ...]:
        self.asked.append(user)
        self.waiting.release()
        self.gate.wait(10)
        if user == "bug":
            raise KeyError(user)
        if user not in self.users:
            raise Unresolved(f"the book has no {user!r}")
        return self.users[user]


class Desk:
    def __init__(self, book: Book, resolver: str, patience_s: float) -> None:
        self.clock = ManualClock()
        self.metrics = ServiceMetrics()
        self.log = io.StringIO()
        self.resolver = resolver
        self.lookups = GroupLookups(
            {"os": book},
            lambda partition: self.resolver if partition == PARTITION else "",
            clock=self.clock,
            metrics=self.metrics,
            logger=build_logger(LogFormat.JSON, LogLevel.WARNING, self.log),
            patience_s=patience_s,
        )

    async def groups(self, *specs: ApplicationSpec) -> list[tuple[tuple[str, ...], str]]:
        """What was found for each of *specs*, and why nothing was."""
        done = await self.lookups.add_groups(UpdateApplications("rm", specs))
        assert [spec._replace(looked_up=(), unresolved="") for spec in done.add] == list(specs)
        return [(spec.looked_up, spec.unresolved) for spec in done.add]


@asynccontextmanager
async def desk(book: Book, resolver: str = "os", patience_s: float = 10.0) -> AsyncIterator[Desk]:
    made = Desk(book, resolver, patience_s)
    try:
        yield made
    finally:
        book.gate.set()
        await made.lookups.close()


def app(user: str, *groups: str, partition: str = PARTITION) -> ApplicationSpec:
    return ApplicationSpec(f"app-{user}", "root.a", partition, user, groups)


@pytest.mark.parametrize(
    ("spec", "resolver"),
    [
        pytest.param(app("bob", "ops"), "os", id="groups were given"),
        pytest.param(app("bob"), "", id="T83 no resolver is configured"),
        pytest.param(app("bob", partition="[rm]other"), "os", id="partition without resolver"),
        pytest.param(app(""), "os", id="no user"),
        pytest.param(app("*)(uid=*"), "os", id="DB-19 no user name"),
    ],
)
async def test_nobody_is_asked(spec: ApplicationSpec, resolver: str) -> None:
    """A resolver is for legal users without groups, in partitions that have one."""
    book = Book({"bob": ("dev",)})
    async with desk(book, resolver) as at:
        assert await at.groups(spec) == [((), "")]
    assert book.asked == []


async def test_found_and_not_found() -> None:
    """Each application gets its user's groups or the reason why there are none, in the order of the request."""
    book = Book({"bob": ("dev", "ops"), "sue": ("dev",)})
    async with desk(book) as at:
        assert await at.groups(app("zoe"), app("bob"), app("sue")) == [
            ((), "the book has no 'zoe'"),
            (("dev", "ops"), ""),
            (("dev",), ""),
        ]
        assert (at.metrics.group_lookups, at.metrics.group_lookups_failed) == (3, 1)
        assert '"user": "zoe"' in at.log.getvalue()


async def test_one_user_is_asked_for_once() -> None:
    """Within a request, between requests that meet, and for as long as the answer is kept (T84)."""
    book = Book({"bob": ("dev",)})
    book.gate.clear()
    async with desk(book) as at:
        meeting = asyncio.gather(at.groups(app("bob"), app("bob")), at.groups(app("bob")))
        await asyncio.to_thread(book.waiting.acquire)
        book.gate.set()
        assert await meeting == [[(("dev",), "")] * 2, [(("dev",), "")]]
        at.clock.advance(299 * SECOND_NS)
        await at.groups(app("bob"))
        assert book.asked == ["bob"]
        at.clock.advance(2 * SECOND_NS)
        await at.groups(app("bob"))
        assert book.asked == ["bob", "bob"]


async def test_groups_given_once_are_not_used_again() -> None:
    """B17: what one application brings says nothing of the next one of that user."""
    book = Book({"bob": ("dev",)})
    async with desk(book) as at:
        await at.groups(app("bob", "admins"))
        assert await at.groups(app("bob")) == [(("dev",), "")]


async def test_users_of_a_request_are_asked_for_at_the_same_time() -> None:
    """As many look-ups as there are threads are under way before the first one ends."""
    users = [f"user{n}" for n in range(AT_ONCE)]
    book = Book(dict.fromkeys(users, ("dev",)))
    book.gate.clear()
    async with desk(book) as at:
        request = asyncio.create_task(at.groups(*map(app, users)))
        for _ in users:
            await asyncio.to_thread(book.waiting.acquire)
        assert not request.done()
        book.gate.set()
        assert await request == [(("dev",), "")] * AT_ONCE


async def test_patience_ends() -> None:
    """A source that does not answer costs a request its patience once, also those that never got a thread."""
    users = [f"user{n}" for n in range(AT_ONCE + 3)]
    book = Book({})
    book.gate.clear()
    async with desk(book, patience_s=0.05) as at:
        found = await at.groups(*map(app, users))
        assert {why for _, why in found} == {"resolver 'os' took longer than 0.05 s"}
        assert len(book.asked) <= AT_ONCE
        asked_before = at.metrics.group_lookups
        await at.groups(app("user0"))
        assert at.metrics.group_lookups == asked_before


async def test_reader_that_goes_away_leaves_the_others_their_answer() -> None:
    """A look-up belongs to nobody: it ends, and its answer is kept, when the stream that began it has ended."""
    book = Book({"bob": ("dev",)})
    book.gate.clear()
    async with desk(book) as at:
        first = asyncio.create_task(at.groups(app("bob")))
        await asyncio.to_thread(book.waiting.acquire)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        book.gate.set()
        assert await at.groups(app("bob")) == [(("dev",), "")]
        assert book.asked == ["bob"]


async def test_resolver_follows_the_configuration() -> None:
    """B17: a reload may change the type, and what another type said is not used."""
    book = Book({"bob": ("dev",)})
    async with desk(book, resolver="") as at:
        assert await at.groups(app("bob")) == [((), "")]
        at.resolver = "os"
        assert await at.groups(app("bob")) == [(("dev",), "")]
        at.resolver = "ldap"
        assert await at.groups(app("bob")) == [((), "resolver 'ldap' does not work here")]


async def test_bug_in_a_source_refuses_the_user_and_is_logged() -> None:
    """The text of an exception that nobody foresaw does not reach the shim."""
    async with desk(Book({})) as at:
        assert await at.groups(app("bug")) == [((), "resolver 'os' failed, see the log of the core")]
        assert "KeyError" in at.log.getvalue()
