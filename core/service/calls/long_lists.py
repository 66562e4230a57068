"""Makes the pages of long lists one after the other, however many callers want one at once.

A page is searched and encoded in steps of about a millisecond. If all pages were made side by side, each turn of the
event loop would have a step of every page, and health checks would have to wait for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from kornel.core.service.machine.loop_time import Sharing, WaitingLine
from kornel.core.service.wire.status_codes import TooMany

MOST_WAITING: Final = 256
"""The most callers that wait for a page: as many as the calls that a security file allows one connection by default."""

AT_ONCE: Final = 50
"""The entries examined and encoded before others get their turn, which takes about a millisecond."""

ItemT = TypeVar("ItemT")
EncodedT = TypeVar("EncodedT")


class ListPage(NamedTuple, Generic[ItemT, EncodedT]):
    """The entries of one answer. ``last``: the last of them; ``None``: there are none. ``more``: others follow."""

    encoded: list[EncodedT]
    last: ItemT | None
    more: bool


class LongLists:
    """Makes the pages of one service, one at a time."""

    def __init__(self) -> None:
        self._line = WaitingLine(MOST_WAITING, lambda: TooMany("too many lists are being made; try again later"))

    async def make_page(
        self,
        items: Callable[[], Iterable[ItemT]],
        size: int,
        encode: Callable[[ItemT], EncodedT],
        test: Callable[[ItemT], bool] = lambda item: True,
    ) -> ListPage[ItemT, EncodedT]:
        """Returns the first *size* of *items* that pass *test*. *items* is called when it is this page's turn.

        Raises :class:`TooMany` when too many callers wait.
        """
        async with self._line.take_turn():
            return await _make_page(items, size, encode, test)


async def _make_page(
    items: Callable[[], Iterable[ItemT]],
    size: int,
    encode: Callable[[ItemT], EncodedT],
    test: Callable[[ItemT], bool],
) -> ListPage[ItemT, EncodedT]:
    sharing = Sharing.of_loop()
    encoded: list[EncodedT] = []
    last: ItemT | None = None
    began = time.perf_counter()
    with sharing.count_reading():
        for looked, item in enumerate(items(), 1):
            if test(item):
                if len(encoded) == size:
                    return ListPage(encoded, last, more=True)
                encoded.append(encode(item))
                last = item
            if looked % AT_ONCE == 0:
                await sharing.pause_after(time.perf_counter() - began)
                began = time.perf_counter()
        await sharing.pause_after(time.perf_counter() - began)
    return ListPage(encoded, last, more=False)
