"""Serves HTTP: the REST interface of a core's services, on an address of its own."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from kornel.core.domain.application_states import AppState
from kornel.core.rest.application import RestApplication, Services
from kornel.core.rest.server import HttpServer
from kornel.core.rest.standing_header import StandingHeader
from kornel.core.service.managers.standing import Standing
from kornel.core.telling.core_reader import CoreReader


def make_http(
    address: str,
    services: Services,
    standing: Standing,
    *,
    tls: Callable[[], ssl.SSLContext] | None,
    connections: int,
) -> HttpServer:
    """Returns the HTTP server of a core. *tls* absent: plain HTTP. *connections*: the most connections at a time."""
    rest = RestApplication(services)
    app = StandingHeader(rest.app, standing) if standing.shared else rest.app
    return HttpServer(app, address, logger=services.logger, tls=tls, on_stop=rest.close, connections=connections)


def count_running(reader: CoreReader) -> tuple[int, int]:
    """Returns how many applications run now, and how many allocations there are, in all partitions."""
    found = [views.partition() for views in reader.partitions()]
    return sum(each.applications.get(AppState.RUNNING, 0) for each in found), sum(each.allocations for each in found)
