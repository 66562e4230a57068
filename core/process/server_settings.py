"""The settings of a server, and the errors of settings with which no core can serve."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kornel.core.process.history import NO_HISTORY, HistoryChoice
from kornel.core.rest.documents.history import SAMPLES_KEPT
from kornel.core.rest.documents.page_links import BadLink, checked_links
from kornel.core.rest.http.browser_rules import BadOrigin, checked_origins
from kornel.core.rest.http.server import MOST_CONNECTIONS
from kornel.core.service.calls.admission import MOST_CALLS
from kornel.core.service.machine.clock import SECOND_NS
from kornel.core.service.managers.managers import MOST_MANAGERS
from kornel.core.service.streams.streams import QUEUE_LIMIT
from kornel.shared.addresses import stays_on_this_machine

GRPC_CONNECTIONS: Final = 256
"""The most connections of gRPC that are open at once unless an administrator sets another number."""


class AddressUnavailable(Exception):
    """The core cannot listen on the address."""


class OriginUnusable(ValueError):
    """A text that was given as the origin of web pages is not one."""


class LinkUnusable(ValueError):
    """A text that was given as an address for links of the web page is no address."""


class AddressTooOpen(ValueError):
    """The address would let other machines reach a service that must not be reachable from them, so the core does not
    serve."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of a server. ``address``: ``host:port`` (port 0: any free one) or ``unix:path``.

    ``advertised``: the address by which clients and other cores of the same journal find this core; empty: ``address``.
    ``default_config``: the queue configuration of a manager that registers with none; empty: the built-in one.
    ``config_file``: the file of that text, which is read again on request, or with ``watch`` whenever it changes.
    ``callback_timeout_ns``: the time that a shim may take to answer a question if it does not choose one itself.
    ``rest_address``: the ``host:port`` where HTTP is served; empty: HTTP is not served. ``rest_hosts``: further names
    by which clients may address this machine. ``rest_origins``: the origins of web pages that may read answers.
    ``rest_connections``: the most HTTP connections at a time. ``docs_url``, ``grafana_url``: the addresses of links on
    the web page. ``metric_aliases``: whether metrics also have the names that dashboards of older YuniKorn versions
    use. ``usage_samples``: the number of kept samples of running applications and containers, one a minute; 0: none.
    ``history``: the durable history. ``managers``: the most resource managers at a time. ``calls``, ``connections``:
    the most calls and connections of gRPC that may be open. ``test_clock``: whether
    ``TestClockService`` is served, which needs a manual clock, and an address that only this machine reaches.
    """

    address: str
    version: str
    advertised: str = ""
    default_config: str = ""
    config_file: Path | None = None
    watch: bool = False
    ready_file: Path | None = None
    grace_s: float = 5.0
    queue_limit: int = QUEUE_LIMIT
    callback_timeout_ns: int = SECOND_NS
    history: HistoryChoice = NO_HISTORY
    managers: int = MOST_MANAGERS
    test_clock: bool = False
    rest_address: str = ""
    rest_hosts: tuple[str, ...] = ()
    rest_origins: tuple[str, ...] = ()
    rest_connections: int = MOST_CONNECTIONS
    usage_samples: int = SAMPLES_KEPT
    docs_url: str = ""
    grafana_url: str = ""
    metric_aliases: bool = False
    calls: int = MOST_CALLS
    connections: int = GRPC_CONNECTIONS

    def __post_init__(self) -> None:
        try:
            checked_origins(self.rest_origins)
        except BadOrigin as error:
            raise OriginUnusable(str(error)) from error
        try:
            checked_links(self.docs_url, self.grafana_url)
        except BadLink as error:
            raise LinkUnusable(str(error)) from error
        if self.test_clock and not stays_on_this_machine(self.address):
            raise AddressTooOpen(
                f"{self.address!r} can be reached from other machines; a core whose clock callers move is served on a"
                " loopback address or a unix socket only"
            )
