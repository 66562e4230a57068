"""Reads the security file: how callers prove who they are, and what each may do. Reading is strict, as for queue
configurations.

::

    tokens: tokens.yaml            # static tokens, relative to this file
    oidc:
      issuer: https://login.example.org
      audiences: [kornel]
      jwks: https://login.example.org/keys
    rules:
      - who: ["cn:shim-1", "token:shim-1"]
        managers: [rm-1]
        permissions: [configure]
      - who: [anyone]
        permissions: [read]
    limits:
      calls-per-second: 200

Rules only grant; a caller has what all rules that name one of its principals grant. ``anyone`` stands for all callers
with a proved identity, ``anonymous`` for all callers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kornel.core.config.text.fields import Field
from kornel.core.config.text.problems import ProblemLog
from kornel.core.config.text.yaml_reader import read, shorten_text
from kornel.core.security.identity import PREFIXES, Identity
from kornel.core.security.jwks import KEY_TYPES
from kornel.core.security.oidc import OidcSettings
from kornel.core.service.connections.callers import Permission
from kornel.core.service.machine.clock import SECOND_NS
from kornel.shared.addresses import stays_on_this_machine

ANYONE: Final = "anyone"
ANONYMOUS: Final = "anonymous"
ANY_MANAGER: Final = "*"
LONGEST_SKEW_S: Final = 300
SMALLEST_MESSAGE: Final = 4096
LARGEST_MESSAGE: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Grants:
    """The rights of a caller. ``managers``: the rmIDs as which the caller may act; ``*`` stands for all."""

    permissions: frozenset[Permission] = frozenset()
    managers: frozenset[str] = frozenset()

    def may_manage(self, rm_id: str) -> bool:
        """Tells whether the caller may act as *rm_id*."""
        return rm_id in self.managers or ANY_MANAGER in self.managers


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the policy, which grants permissions to identities."""

    who: tuple[str, ...]
    grants: Grants


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of each peer. Calls count when they begin; a stream is one call.

    failures_per_second  refused proofs of identity from one host, with bursts of as many as in ten seconds
    message_bytes        largest request; from the next start on
    streams              concurrent calls of one connection; from the next start on
    """

    calls_per_second: float = 200.0
    burst: int = 400
    failures_per_second: float = 1.0
    message_bytes: int = LARGEST_MESSAGE
    streams: int = 256


@dataclass(frozen=True, slots=True)
class Policy:
    """The content of the security file at one reading. ``tokens``: path of the file with static tokens."""

    rules: tuple[Rule, ...] = ()
    oidc: OidcSettings | None = None
    tokens: Path | None = None
    limits: Limits = field(default_factory=Limits)

    def grants_for(self, identity: Identity | None) -> Grants:
        """Returns the grants of *identity*; ``None``: an unknown caller."""
        names = {ANONYMOUS} if identity is None else {ANONYMOUS, ANYONE, *identity.principals}
        fitting = [rule.grants for rule in self.rules if not names.isdisjoint(rule.who)]
        return Grants(
            permissions=frozenset().union(*(grants.permissions for grants in fitting)),
            managers=frozenset().union(*(grants.managers for grants in fitting)),
        )


def read_policy(text: str, folder: Path) -> Policy:
    """Returns the policy in *text*; paths in it are relative to *folder*.

    Raises :class:`kornel.core.config.text.problems.ConfigError` with all problems and their places.
    """
    log = ProblemLog()
    top = Field(read(text, log).root, 1, 1, log).mapping(("tokens", "oidc", "rules", "limits"))
    tokens = top["tokens"].text()
    policy = Policy(
        rules=tuple(_read_rule(item) for item in top["rules"].items()),
        oidc=_read_issuer(top["oidc"], folder) if top["oidc"].given else None,
        tokens=folder / tokens if tokens else None,
        limits=_read_limits(top["limits"]),
    )
    if not policy.rules:
        top["rules"].error("no rules: nobody could do anything", "at least one rule with who and permissions")
    log.raise_if_errors()
    return policy


def _read_rule(item: Field) -> Rule:
    fields = item.mapping(("who", "managers", "permissions"))
    who = tuple(_read_principal(name, place) for name, place in fields["who"].texts())
    if not who:
        fields["who"].error("a rule for nobody", f"principals such as cn:NAME or token:NAME, {ANYONE} or {ANONYMOUS}")
    managers = frozenset(_read_manager(name, place) for name, place in fields["managers"].texts())
    permissions = frozenset(
        Permission(place.choice(tuple(Permission), Permission.READ)) if name else _no_permission(place)
        for name, place in fields["permissions"].texts()
    )
    if ANONYMOUS in who and (managers or permissions - {Permission.READ}):
        fields["who"].error("callers that nobody knows may get more than read", f"{ANYONE}, or principals")
    return Rule(who, Grants(permissions, managers))


def _no_permission(place: Field) -> Permission:
    place.error("an empty permission", f"one of {', '.join(Permission)}")
    return Permission.READ


def _read_principal(name: str, place: Field) -> str:
    prefix, _, rest = name.partition(":")
    if name not in (ANYONE, ANONYMOUS) and (prefix not in PREFIXES or not rest):
        known = ", ".join(f"{known}:" for known in PREFIXES)
        place.error(f"{shorten_text(name)} names nobody", f"{ANYONE}, {ANONYMOUS}, or a name after one of {known}")
    return f"dns:{rest.lower()}" if prefix == "dns" else name


def _read_manager(name: str, place: Field) -> str:
    if not name:
        place.error("an empty rmID", f"an rmID, or {ANY_MANAGER} for every one")
    return name


def _read_issuer(item: Field, folder: Path) -> OidcSettings:
    fields = item.mapping(
        ("issuer", "audiences", "jwks", "algorithms", "user-claim", "groups-claim", "skew-seconds", "revoked")
    )
    usual = OidcSettings(issuer="", audiences=(), keys="")
    for name in ("issuer", "jwks"):
        if not fields[name].text():
            fields[name].error(f"{name} is missing", "the text that tokens say" if name == "issuer" else "file or URL")
    audiences = tuple(name for name, _ in fields["audiences"].texts() if name)
    if not audiences:
        fields["audiences"].error("no audience: tokens for other services would be accepted", "the name of this core")
    algorithms = fields["algorithms"].texts()
    for name, place in algorithms:
        if name not in KEY_TYPES:
            place.error(f"algorithm {shorten_text(name)} is not accepted", f"one of {', '.join(KEY_TYPES)}")
    return OidcSettings(
        issuer=fields["issuer"].text(),
        audiences=audiences,
        keys=_keys(fields["jwks"], folder),
        algorithms=tuple(name for name, _ in algorithms) or usual.algorithms,
        user_claim=fields["user-claim"].text(usual.user_claim),
        groups_claim=fields["groups-claim"].text(usual.groups_claim),
        skew_ns=int(fields["skew-seconds"].number(usual.skew_ns / SECOND_NS, most=LONGEST_SKEW_S) * SECOND_NS),
        revoked=frozenset(name for name, _ in fields["revoked"].texts() if name),
    )


def _keys(place: Field, folder: Path) -> str:
    source = place.text()
    scheme, separator, rest = source.partition("://")
    if not separator:
        return str(folder / source) if source else ""
    if scheme == "https":
        return source
    host = rest.partition("/")[0]
    if scheme != "http" or "@" in host or not stays_on_this_machine(host if ":" in host else f"{host}:80"):
        place.error(f"{shorten_text(source)} can be changed by others on the way", "an https:// address or a file")
    return source


def _read_limits(place: Field) -> Limits:
    fields = place.mapping(("calls-per-second", "burst", "failures-per-second", "message-bytes", "streams"))
    usual = Limits()
    size = fields["message-bytes"].unsigned(usual.message_bytes, least=SMALLEST_MESSAGE)
    if size > LARGEST_MESSAGE:
        fields["message-bytes"].error(f"{size} is more than the interface has", f"at most {LARGEST_MESSAGE}")
    calls = fields["calls-per-second"].number(usual.calls_per_second)
    failures = fields["failures-per-second"].number(usual.failures_per_second)
    for name, value in (("calls-per-second", calls), ("failures-per-second", failures)):
        if value == 0:
            fields[name].error("nobody could call", "a number above 0")
    streams = fields["streams"].unsigned(usual.streams, least=1)
    if streams > 2**31 - 1:
        fields["streams"].error(f"{streams} is more than a connection can have", "at most 2147483647")
    return Limits(
        calls_per_second=calls,
        burst=fields["burst"].unsigned(max(1, int(2 * calls)), least=1),
        failures_per_second=failures,
        message_bytes=size,
        streams=streams,
    )
