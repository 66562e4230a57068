"""Handles the parameters of lists: pages, fields, summaries and orders (rest.md 12.3).

Without such parameters a list is complete, as in YuniKorn. Cursors are opaque to clients: they contain the key of the
last item of a page, and in a sorted list also its sort value, so that no item is repeated or skipped when others come
or go meanwhile.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from operator import itemgetter
from typing import Any, Final, TypeVar
from urllib.parse import quote

from starlette.requests import Request

from kornel.core.rest.http.compression import Body
from kornel.core.rest.serving.answers import JSON, Answer, json_headers, wants_gzip
from kornel.core.rest.serving.queries import query_of, read_flag, read_positive
from kornel.core.rest.serving.rows import FLAG, POSITIVE, Parameter
from kornel.core.rest.serving.sorting import Order, Orders, Value
from kornel.core.rest.serving.turns import encode_list, gather_items, write_list

T = TypeVar("T")

MOST_ITEMS: Final = 100_000

_SUMMED_AT_ONCE: Final = 1_000
"""The items of a list that are added to its tag at once, which takes some 0.3 ms."""

_RUN: Final = 500
"""The items that are sorted at once, which takes some 0.2 ms."""

PAGE_PARAMETERS: Final = (
    Parameter("limit", "Extension: the most items in the answer; the header Link leads to the next ones.", POSITIVE),
    Parameter("cursor", "Extension: where a page begins, as given by the header Link of the page before."),
    Parameter("fields", "Extension: names of fields, separated by commas; items have only these."),
)
SUMMARY: Final = Parameter("summary", "Extension: leave out allocations and asks.", FLAG)


@dataclass(frozen=True, slots=True)
class Wishes:
    """The parameters of one request. ``limit`` 0: all items, without pages. ``after``: the key of the last item
    seen."""

    query: dict[str, str]
    limit: int
    after: str
    fields: frozenset[str]
    summary: bool

    @property
    def plain(self) -> bool:
        """Tells whether the client uses no parameter that YuniKorn does not have."""
        return not (self.limit or self.after or self.summary)


def wishes_of(request: Request) -> Wishes:
    """Returns the parameters of *request*. Raises 400 for invalid ones."""
    query = query_of(request)
    return Wishes(
        query,
        min(read_positive(query, "limit", 0), MOST_ITEMS),
        query.get("cursor", ""),
        frozenset(name for name in query.get("fields", "").split(",") if name),
        read_flag(query, "summary"),
    )


def page_of(keyed: Sequence[tuple[str, T]], wishes: Wishes) -> tuple[list[T], str]:
    """Returns the wanted part of *keyed*, which is sorted, and the key after which to continue; empty: there is no
    more."""
    rest = [(key, item) for key, item in keyed if key > wishes.after] if wishes.after else keyed
    if not wishes.limit or len(rest) <= wishes.limit:
        return [item for _, item in rest], ""
    return [item for _, item in rest[: wishes.limit]], rest[wishes.limit - 1][0]


async def page_in_order(ranked: Sequence[tuple[Value, str, T]], wishes: Wishes, order: Order) -> tuple[list[T], str]:
    """Returns the wanted part of *ranked*, which has items with their values and keys, and the cursor with which to
    continue. Raises 400 for an invalid cursor.

    *ranked* is sorted by key. It is sorted in short turns: first in runs, then by merging as many items as are wanted.
    """
    place = order.read_cursor(wishes.after) if wishes.after else None
    runs = await gather_items(
        sorted(
            [
                each
                for each in ranked[start : start + _RUN]
                if place is None or order.comes_after(place, each[0], each[1])
            ],
            key=itemgetter(0),
            reverse=order.descending,
        )
        for start in range(0, len(ranked), _RUN)
    )
    merged = heapq.merge(*runs, key=itemgetter(0), reverse=order.descending)
    found = await gather_items(islice(merged, wishes.limit + 1 if wishes.limit else None))
    if not wishes.limit or len(found) <= wishes.limit:
        return [item for _, _, item in found], ""
    value, key, _ = found[wishes.limit - 1]
    return [item for _, _, item in found[: wishes.limit]], order.write_cursor(value, key)


async def page_answer(
    request: Request,
    keyed: Iterable[tuple[str, T]],
    document: Callable[[T], dict[str, Any]],
    orders: Orders | None = None,
) -> Answer:
    """Returns the part of *keyed* that *request* wants, by key or in one of *orders*, as documents made by *document*.
    Raises 400 for invalid parameters."""
    wishes = wishes_of(request)
    order = orders.find_order(wishes.query) if orders is not None else None
    found = sorted(keyed, key=itemgetter(0))
    if order is None:
        page, more = page_of(found, wishes)
        total = None if wishes.plain else len(found)
    else:
        ranked = await gather_items((order.value_of(document(item)), key, item) for key, item in found)
        page, more = await page_in_order(ranked, wishes, order)
        total = len(found)
    return await list_answer(request, map(document, page), wishes, more=more, total=total)


async def list_answer(
    request: Request, documents: Iterable[dict[str, Any]], wishes: Wishes, *, more: str = "", total: int | None = None
) -> Answer:
    """Returns *documents* as a JSON list. *more*: the key after which the next page begins; *total*: the number of
    items on all pages."""
    if wishes.fields:
        documents = ({name: value for name, value in each.items() if name in wishes.fields} for each in documents)
    headers = json_headers()
    if total is not None:
        headers.append(("X-Total-Count", str(total)))
    if more:
        headers.append(("Link", f'<{_next_page(request, wishes, more)}>; rel="next"'))
    if total is not None:
        headers.append(("Access-Control-Expose-Headers", "Link, X-Total-Count"))
    return _make_answer(await encode_list(documents, compress=wants_gzip(request.scope)), headers)


async def pieces_answer(request: Request, items: Sequence[bytes]) -> Answer:
    """Returns *items*, each of which is JSON, as a complete list, or 304 if the client has the same list already.

    Repeated requests for a long list are spared most of its cost, which is compressing, sending and reading it.
    """
    summed = blake2b(digest_size=12)
    for start in range(0, len(items), _SUMMED_AT_ONCE):
        summed.update(b",".join(items[start : start + _SUMMED_AT_ONCE]))
    tag = f'"{len(items)}-{summed.hexdigest()}"'
    headers = [
        *json_headers(),
        ("ETag", tag),
        ("X-Total-Count", str(len(items))),
        ("Access-Control-Expose-Headers", "Link, X-Total-Count"),
    ]
    if tag in (each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")):
        return Answer((), JSON, status=304, headers=headers, compress=False)
    return _make_answer(await write_list(([item] for item in items), compress=wants_gzip(request.scope)), headers)


async def whole_list_answer(request: Request, items: Iterable[Iterable[bytes]]) -> Answer:
    """Returns all *items*, each of which is JSON in pieces."""
    return _make_answer(await write_list(items, compress=wants_gzip(request.scope)), json_headers())


def _make_answer(body: Body, headers: list[tuple[str, str]]) -> Answer:
    return Answer(body.chunks, JSON, headers=headers, compress=False, encoded=body.encoded)


def _next_page(request: Request, wishes: Wishes, after: str) -> str:
    query = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in {**wishes.query, "cursor": after}.items())
    return f"{quote(request.scope['path'])}?{query}"
