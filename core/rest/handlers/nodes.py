"""Serves the routes about nodes (rest.md 4.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp

from kornel.core.rest.documents.message_documents import document_of
from kornel.core.rest.handlers.places import partition_of
from kornel.core.rest.http.errors import RestError, not_found
from kornel.core.rest.serving.answers import json_answer
from kornel.core.rest.serving.listing import (
    PAGE_PARAMETERS,
    SUMMARY,
    Wishes,
    list_answer,
    page_answer,
    page_in_order,
    page_of,
    pieces_answer,
    wishes_of,
)
from kornel.core.rest.serving.queries import query_of
from kornel.core.rest.serving.rows import FLAG, IN_PARTITION, Parameter, Row, any_case
from kornel.core.rest.serving.sorting import NODES, Order, Value
from kornel.core.rest.serving.turns import gather_items
from kornel.core.telling.claims.claim_views import ClaimKind, UnknownClaimKind, select_claims
from kornel.core.telling.core_reader import CoreReader
from kornel.core.telling.encoding.kornel_v1 import encode_claim, encode_domain
from kornel.core.telling.encoding.yunikorn.nodes import NODE, write_node, write_node_summary
from kornel.core.telling.nodes.node_views import NodeSummary, NodeView
from kornel.core.telling.reader import PartitionReader
from kornel.v1 import read_pb2

CLAIM: Final = document_of("Claim", read_pb2.ClaimInfo, encode_claim)
DOMAIN: Final = document_of("Domain", read_pb2.DomainInfo, encode_domain)
_NODE_PARAMETERS: Final = (
    *PAGE_PARAMETERS,
    NODES.parameter,
    SUMMARY,
    Parameter("schedulable", "Extension: only schedulable nodes (true), or only the others (false).", FLAG),
)
_DOMAIN_PARAMETERS: Final = (*PAGE_PARAMETERS, Parameter("level", "Only domains of this level, such as rack."))
_NO_LEVEL: Final = {404: "There is no such partition or level."}
_CLAIM_PARAMETERS: Final = (
    *PAGE_PARAMETERS,
    Parameter("node", "Only claims on this node."),
    Parameter("kind", "Only firm, or only saved claims.", any_case(*ClaimKind, empty=True)),
)


class NodeHandlers:
    """Serves routes R11, R12, X16 and X17. Pages, ``sort``, ``summary``, and ``schedulable=true`` or ``false`` are
    Kornel's own."""

    def __init__(self, reader: CoreReader) -> None:
        self._reader = reader

    @Row(f"{IN_PARTITION}/nodes", "nodes", "Partition", [NODE], _NODE_PARAMETERS, long=True)
    async def nodes(self, request: Request) -> ASGIApp:
        """Returns all nodes with what runs on them."""
        views, wishes = partition_of(self._reader, request), wishes_of(request)
        wanted, order = _is_schedulable(wishes), NODES.find_order(wishes.query)
        if wishes.plain and wanted is None and order is None:
            return await list_answer(request, map(write_node, views.nodes()), wishes)
        if wishes.summary and order is None and not (wishes.limit or wishes.after):
            render = _render_fields(wishes.fields)
            heads = await gather_items(views.node_heads(render))
            pieces = [piece for schedulable, piece in heads if wanted is None or schedulable is wanted]
            return await pieces_answer(request, pieces)
        summaries = [
            (node.node_id, node)
            for node in await gather_items(views.node_summaries())
            if wanted is None or node.schedulable is wanted
        ]
        if order is None:
            page, more = page_of(summaries, wishes)
        else:
            page, more = await page_in_order(await gather_items(_rank_nodes(views, summaries, order)), wishes, order)
        documents = _make_documents(views, page, summary=wishes.summary)
        return await list_answer(request, documents, wishes, more=more, total=len(summaries))

    @Row(f"{IN_PARTITION}/node/{{node}}", "node", "Partition", NODE)
    async def node(self, request: Request) -> ASGIApp:
        """Returns one node."""
        found = partition_of(self._reader, request).node(request.path_params["node"])
        if found is None:
            raise not_found("Node")
        return json_answer(write_node(found))

    @Row(
        f"{IN_PARTITION}/domains", "domains", "Partition", [DOMAIN], _DOMAIN_PARAMETERS, _NO_LEVEL, ours=True, long=True
    )
    async def domains(self, request: Request) -> ASGIApp:
        """Returns the domains of the topology, such as racks, and their free room."""
        views = partition_of(self._reader, request)
        level = query_of(request).get("level", "")
        if level and all(level != known.name for known in views.topology_levels()):
            raise not_found("Level")
        # The character that joins the parts sorts before all others, so paths keep the order that they have in parts.
        found = [("\0".join(view.path), view) for view in await gather_items(views.domains(level))]
        return await page_answer(request, found, DOMAIN.write)

    @Row(f"{IN_PARTITION}/claims", "claims", "Partition", [CLAIM], _CLAIM_PARAMETERS, ours=True, long=True)
    async def claims(self, request: Request) -> ASGIApp:
        """Returns the room that is kept for asks which are not placed yet."""
        views, query = partition_of(self._reader, request), query_of(request)
        try:
            selected = select_claims(views.claims(), query.get("kind", ""), node_id=query.get("node", ""))
        except UnknownClaimKind as error:
            raise RestError(400, str(error)) from error
        found = [(claim.sort_key, claim) for claim in await gather_items(selected)]
        return await page_answer(request, found, CLAIM.write)


@lru_cache(maxsize=8)  # The same fields give the same function: results are kept for the function that made them.
def _render_fields(fields: frozenset[str]) -> Callable[[NodeView], bytes]:
    """Returns a function that encodes *fields* of a node, or all, without what runs on it."""

    def render(head: NodeView) -> bytes:
        document = write_node_summary(head)
        return orjson.dumps({name: document[name] for name in document if name in fields} if fields else document)

    return render


def _rank_nodes(
    views: PartitionReader, summaries: list[tuple[str, NodeSummary]], order: Order
) -> Iterator[tuple[Value, str, NodeSummary] | None]:
    """Yields each node with its sort value and key, and ``None`` for a node that is gone."""
    for node_id, summary in summaries:
        node = views.node(node_id)
        yield (order.value_of(write_node_summary(node)), node_id, summary) if node is not None else None


def _make_documents(views: PartitionReader, page: list[NodeSummary], *, summary: bool) -> Iterator[dict[str, Any]]:
    write = write_node_summary if summary else write_node
    for item in page:
        node = views.node(item.node_id)
        if node is not None:
            yield write(node)


def _is_schedulable(wishes: Wishes) -> bool | None:
    text = wishes.query.get("schedulable", "").lower()
    if text not in ("", "true", "false"):
        raise RestError(400, "schedulable is true or false")
    return None if not text else text == "true"
