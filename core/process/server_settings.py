"""The settings of a server, and the errors of settings with which no core can serve."""

from __future__ import annotations

from dataclasses import dataclass

from kornel import __version__
from kornel.core.process.history import NO_HISTORY, HistoryChoice
from kornel.core.process.serve_options import ServeOptions
from kornel.core.rest.documents.history import SAMPLES_KEPT
from kornel.core.rest.documents.page_links import BadLink, checked_links
from kornel.core.rest.http.browser_rules import BadOrigin, checked_origins
from kornel.core.service.streams.streams import QUEUE_LIMIT
from kornel.shared.addresses import stays_on_this_machine


class AddressUnavailable(Exception):
    """The core cannot listen on the address."""


class OriginUnusable(ValueError):
    """A text that was given as the origin of web pages is not one."""


class LinkUnusable(ValueError):
    """A text that was given as an address for links of the web page is no address."""


class AddressTooOpen(ValueError):
    """The address would let other machines reach a service that must not be reachable from them, so the core does not
    serve."""


@dataclass(frozen=True)
class ServerSettings(ServeOptions):
    """The settings of a server: the options, with those files read that are read once, and what only tests choose.

    ``default_config``: the queue configuration of a manager that registers with none; empty: the built-in one.
    ``history``: the durable history. ``rest_address`` empty: HTTP is not served. ``grace_s``: the time that calls have
    to end when the core stops. ``queue_limit``: the most commands that wait of a stream. ``usage_samples``: the number
    of kept samples of running applications and containers, one a minute; 0: none.
    """

    rest_address: str = ""
    version: str = __version__
    default_config: str = ""
    history: HistoryChoice = NO_HISTORY
    grace_s: float = 5.0
    queue_limit: int = QUEUE_LIMIT
    usage_samples: int = SAMPLES_KEPT

    def __post_init__(self) -> None:
        try:
            checked_origins(self.rest_origins or ())
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
