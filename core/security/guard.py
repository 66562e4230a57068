"""Guards the core: identifies callers, decides what they may do, and ends calls that are no longer allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, TypeVar

from structlog.typing import FilteringBoundLogger

from kornel.core.config.text.problems import ConfigError
from kornel.core.security.errors import SecurityError
from kornel.core.security.identity import Identity, of_certificate
from kornel.core.security.jwks import KeySet
from kornel.core.security.limits import Buckets, SignatureChecks
from kornel.core.security.oidc import OidcVerifier, SignatureWrong
from kornel.core.security.policy import Grants, Limits, Policy, read_policy
from kornel.core.security.static_tokens import StaticTokens, read_tokens
from kornel.core.service.configuration.configuration_file import LOOK_EVERY_S, FileUnreadable, read_text
from kornel.core.service.connections.callers import AclCheck, Permission, address_block
from kornel.core.service.machine.clock import Clock, Timer
from kornel.core.service.wire.status_codes import NotAuthenticated, NotPermitted, ServiceError, ShuttingDown, TooMany

ParsedT = TypeVar("ParsedT")

UNKNOWN: Final = "somebody unknown"
FAILURE_BURST_S: Final = 10
TOLD_PER_S: Final = 1 / 60
"""The rate at which the log reports that failed attempts from an address are refused."""

_certificate_identity = lru_cache(maxsize=1024)(of_certificate)
"""Returns the identity in a certificate, cached because each call of a connection shows the same one."""


class Pass:
    """An admitted call, which is a :class:`kornel.core.service.connections.callers.Caller`.

    The grants for its request are checked again later. ``ended``: set once the call must end, with the reason in
    ``reason``; ``on_end`` is called then.
    """

    def __init__(self, identity: Identity | None, grants: Grants) -> None:
        self.identity = identity
        self.name = UNKNOWN if identity is None else identity.name
        self.proved = "" if identity is None else identity.name
        self.ended = asyncio.Event()
        self.reason: ServiceError | None = None
        self.timer: Timer | None = None
        self.on_end: Callable[[], None] | None = None
        self._grants = grants
        self._asked: list[Callable[[], None]] = []

    @property
    def known(self) -> bool:
        """Tells whether the caller showed an identity."""
        return self.identity is not None

    @property
    def permissions(self) -> frozenset[Permission]:
        """The permissions that its grants give it."""
        return frozenset(self._grants.permissions)

    @property
    def manages_any(self) -> bool:
        """Tells whether the caller may act as any resource manager."""
        return bool(self._grants.managers)

    def require_any_manager(self) -> None:
        """Raises :class:`NotPermitted` unless it may act as some resource manager."""
        if not self.manages_any:
            raise self._make_refusal("to be a resource manager")

    def require(self, permission: Permission) -> None:
        """Raises :class:`NotPermitted` unless *permission* is granted; for an unknown caller, raises
        :class:`NotAuthenticated`."""
        self._asked.append(partial(self._check_permission, permission))
        self._check_permission(permission)

    def require_for_queue(self, permission: Permission, administers: AclCheck) -> None:
        """Raises the same error as :meth:`require`, unless the caller administers the queue in question."""
        who = self.identity
        if who is None or not administers(who.user, who.groups):
            self.require(permission)

    def require_manager(self, rm_id: str) -> None:
        """Raises :class:`NotPermitted` unless it may act as resource manager *rm_id*."""
        self._asked.append(partial(self._check_manager, rm_id))
        self._check_manager(rm_id)

    def require_no_other_manager(self, rm_id: str) -> None:
        """Raises :class:`NotPermitted` for a manager that may not act as *rm_id*."""
        self._asked.append(partial(self._check_no_other_manager, rm_id))
        self._check_no_other_manager(rm_id)

    def replace_grants(self, grants: Grants) -> None:
        """Replace the caller's grants, and end the call if they no longer cover what it was admitted for."""
        self._grants = grants
        for check in self._asked:
            try:
                check()
            except ServiceError as error:
                self.end_call(error)

    def end_call(self, reason: ServiceError) -> None:
        """Ends the call."""
        if self.reason is None:
            self.reason = reason
            self.ended.set()
            if self.on_end is not None:
                self.on_end()

    def _check_permission(self, permission: Permission) -> None:
        if permission not in self._grants.permissions:
            raise self._make_refusal(f"the permission {permission!s}")

    def _check_manager(self, rm_id: str) -> None:
        if not self._grants.may_manage(rm_id):
            raise self._make_refusal(f"to be resource manager {rm_id!r}")

    def _check_no_other_manager(self, rm_id: str) -> None:
        if self._grants.managers:
            self._check_manager(rm_id)

    def _make_refusal(self, lacking: str) -> ServiceError:
        if self.identity is None:
            return NotAuthenticated("no client certificate and no bearer token, or none with a name")
        return NotPermitted(f"{self.name!r} was not granted {lacking}")


class Guard:
    """Applies one security file, and follows its changes. Raises :class:`SecurityError` if it cannot be used at the
    start.

    If a later version cannot be used, that is reported and the former one stays in force; :meth:`reload` reads it
    again.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        logger: FilteringBoundLogger,
        fetch_keys: Callable[[str], bytes] | None = None,
    ) -> None:
        self._path = path
        self._clock = clock
        self._logger = logger
        self._fetch_keys = fetch_keys
        self._live: set[Pass] = set()
        self._keys: KeySet | None = None
        self._keys_source = ""
        self._oidc: OidcVerifier | None = None
        policy, tokens = read_files(self._path)
        usual = policy.limits
        self._calls = Buckets(usual.calls_per_second, usual.burst)
        self._failures = Buckets(usual.failures_per_second, 1)
        self._checks = SignatureChecks()
        self._told = Buckets(TOLD_PER_S, 1)
        self._apply(policy, tokens)

    @property
    def limits(self) -> Limits:
        """The limits in force."""
        return self._policy.limits

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that it is read from, with that of the signing keys."""
        keys = self._keys.file if self._oidc is not None and self._keys is not None else None
        return tuple(path for path in (self._path, self._policy.tokens, keys) if path is not None)

    def reload(self) -> None:
        """Read the files again, and end the calls that would no longer be admitted."""
        try:
            policy, tokens = read_files(self._path)
        except SecurityError as error:
            self._logger.error("security file not used, the former version stays in force", cause=str(error))
            return
        self._apply(policy, tokens)
        if self._keys is not None:
            self._keys.read_again()
        self._end_withdrawn()
        for admitted in tuple(self._live):
            admitted.replace_grants(policy.grants_for(admitted.identity))
        self._logger.info("security file read again", rules=len(policy.rules), calls=len(self._live))

    async def follow_keys(self) -> None:
        """Has signing keys read again when they are old, without end, although no call may come that needs them."""
        while True:
            if self._keys is not None:
                self._keys.refresh_old()
            await asyncio.sleep(LOOK_EVERY_S)

    async def admit_call(
        self, authorization: str | None, certificate: bytes | None, host: str, connection: str = ""
    ) -> Pass:
        """Admits a call from *host*; :meth:`end_call` has to follow.

        *authorization*: the header of that name. *certificate*: a verified client certificate, in DER. If there is a
        token, it identifies the caller, otherwise the certificate does. *connection*: the connection of the call;
        empty: not known.

        Raises :class:`NotAuthenticated` for an invalid proof, and :class:`TooMany` for a peer that calls too often, or
        from whose address too many invalid proofs come. A valid proof is admitted whatever others do.
        """
        block = address_block(host)
        try:
            identity = await self._identify_caller(authorization, certificate, block, connection)
        except NotAuthenticated as refusal:
            raise self._make_refusal(refusal, host, block, connection) from refusal
        if not self._calls.take_one(block if identity is None else identity.name, self._clock.now_ns()):
            raise TooMany("this peer calls more often than it may")
        admitted = Pass(identity, self._policy.grants_for(identity))
        self._live.add(admitted)
        if identity is not None and identity.expires_ns is not None:
            self._watch(admitted, identity.expires_ns)
        return admitted

    def _make_refusal(self, refusal: NotAuthenticated, host: str, block: str, connection: str) -> ServiceError:
        """Returns the error for an invalid proof. The more invalid proofs there are, the less the error and the log
        say."""
        now_ns = self._clock.now_ns()
        if isinstance(refusal, SignatureWrong):
            self._checks.count_bad(connection, block, now_ns)
        if self._failures.take_one(block, now_ns):
            self._logger.info("caller refused", host=host, cause=str(refusal))
            return NotAuthenticated(str(refusal))
        if self._told.take_one(block, now_ns):
            self._logger.warning(
                "too many failed attempts, only valid proofs are admitted", host=host, cause=str(refusal)
            )
        return TooMany("too many failed attempts from this address")

    def end_call(self, admitted: Pass) -> None:
        """End an admitted call."""
        self._live.discard(admitted)
        if admitted.timer is not None:
            admitted.timer.cancel()

    @property
    def live_calls(self) -> int:
        """The number of open calls."""
        return len(self._live)

    def _watch(self, admitted: Pass, expires_ns: int) -> None:
        if self._clock.wall_ns() >= expires_ns:
            admitted.end_call(_come_back("the proof of identity has expired"))
        else:
            admitted.timer = self._clock.call_at_wall(expires_ns, partial(self._watch, admitted, expires_ns))

    async def _identify_caller(
        self, authorization: str | None, certificate: bytes | None, block: str, connection: str
    ) -> Identity | None:
        wall_ns = self._clock.wall_ns()
        if authorization is None:
            return self._of_certificate(certificate, wall_ns)
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii():
            raise NotAuthenticated("not a bearer token")
        found = self._tokens.find_identity(token, wall_ns)
        if found is not None:
            return found
        if self._oidc is None or token.count(".") != 2:
            raise NotAuthenticated("an unknown or expired token")

        def may_check() -> bool:
            return self._checks.may_check(connection, block, self._clock.now_ns())

        return await self._oidc.verify(token, certificate, wall_ns, may_check)

    def _of_certificate(self, certificate: bytes | None, wall_ns: int) -> Identity | None:
        if certificate is None:
            return None
        try:
            identity = _certificate_identity(certificate)
        except Exception as error:
            # The library raises errors of its own for duplicate extensions and other faults.
            raise NotAuthenticated("the client certificate cannot be read") from error
        # TLS checked that only when the connection began.
        if identity is not None and identity.expires_ns is not None and identity.expires_ns <= wall_ns:
            raise NotAuthenticated("the client certificate has expired")
        return identity

    def _end_withdrawn(self) -> None:
        """Ends the calls whose proof does not hold any more."""
        for admitted in tuple(self._live):
            if admitted.identity is not None and self._is_withdrawn(admitted.identity):
                admitted.end_call(_come_back("the proof of identity was withdrawn"))

    def _is_withdrawn(self, identity: Identity) -> bool:
        if not identity.proof:
            return False
        if identity.principals[0].startswith("token:"):
            return not self._tokens.still_holds(identity.proof)
        return self._oidc is None or not self._oidc.still_holds(identity)

    def _apply(self, policy: Policy, tokens: StaticTokens) -> None:
        """Applies *policy*. Tokens that were verified before stay verified if the requirements are the same."""
        self._policy = policy
        self._tokens = tokens
        limits = policy.limits
        self._calls.resize(limits.calls_per_second, limits.burst)
        self._failures.resize(limits.failures_per_second, max(1, int(FAILURE_BURST_S * limits.failures_per_second)))
        if policy.oidc is None:
            self._oidc = None
        elif self._oidc is None or policy.oidc != self._oidc.settings:
            if self._keys is None or self._keys_source != policy.oidc.keys:
                self._keys_source = policy.oidc.keys
                self._keys = KeySet(self._keys_source, clock=self._clock, logger=self._logger, fetch=self._fetch_keys)
                self._keys.on_change = self._end_withdrawn
            self._oidc = OidcVerifier(policy.oidc, self._keys)


def read_files(path: Path) -> tuple[Policy, StaticTokens]:
    """Returns the security file at *path*, and the tokens it names. Raises :class:`SecurityError` with all problems and
    their places."""
    policy = _parse_file(path, lambda text: read_policy(text, path.parent))
    tokens = StaticTokens() if policy.tokens is None else _parse_file(policy.tokens, read_tokens)
    return policy, tokens


def _come_back(reason: str) -> ServiceError:
    """Returns an error whose status says that another attempt may help, because another proof would help."""
    return ShuttingDown(f"{reason}, try again with another one")


def _parse_file(path: Path, parse: Callable[[str], ParsedT]) -> ParsedT:
    try:
        return parse(read_text(path))
    except FileUnreadable as error:
        raise SecurityError(str(error)) from error
    except ConfigError as error:
        raise SecurityError(f"{path}: {error}") from error
