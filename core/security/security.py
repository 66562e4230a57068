"""Secures a core: sets up TLS and the guard, and refuses addresses that other machines can reach without them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
from structlog.typing import FilteringBoundLogger

from kornel.core.security.errors import SecurityError
from kornel.core.security.files import FollowedFiles
from kornel.core.security.guard import Guard
from kornel.core.security.interceptor import GuardInterceptor
from kornel.core.security.tls import Tls, TlsFiles
from kornel.core.service.machine.clock import Clock
from kornel.shared.addresses import stays_on_this_machine


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """The security options of the command line. ``policy``: the security file. ``insecure_anywhere``: stated
    explicitly."""

    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    policy: Path | None = None
    insecure_anywhere: bool = False

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise SecurityError("--tls-cert and --tls-key belong together: one of them is missing")
        if self.client_ca is not None and self.certificate is None:
            raise SecurityError("--tls-client-ca needs --tls-cert and --tls-key")


class Security:
    """The security of one core: identities, rights and TLS. *clock* shows real time, even if the engine has another
    clock. Raises :class:`SecurityError` for files that cannot be used."""

    def __init__(self, options: SecurityOptions, *, clock: Clock, logger: FilteringBoundLogger) -> None:
        self._options = options
        self._logger = logger
        self.tls: Tls | None = None
        self.guard: Guard | None = None
        self._followed: list[FollowedFiles] = []
        """The files as they were when they were read: a core may take long to begin to serve."""
        if options.certificate is not None and options.key is not None:
            self.tls = tls = Tls(TlsFiles(options.certificate, options.key, options.client_ca), logger)
            self._followed.append(FollowedFiles(lambda: tls.files.paths, tls.reload))
        if options.policy is not None:
            self.guard = guard = Guard(options.policy, clock=clock, logger=logger)
            self._followed.append(FollowedFiles(lambda: guard.paths, guard.reload))

    def check(self, address: str, option: str = "--grpc") -> None:
        """Raises :class:`SecurityError` if strangers on other machines could use what is served at *address*."""
        if self._options.insecure_anywhere or stays_on_this_machine(address):
            return
        missing = []
        if self.tls is None:
            missing.append("traffic would not be encrypted (--tls-cert FILE --tls-key FILE)")
        if not self.asks_who_calls:
            missing.append("nobody would be asked who they are (--tls-client-ca FILE or --security FILE)")
        if missing:
            raise SecurityError(
                f"{option} {address}: other machines could reach this core, and {'; and '.join(missing)}."
                " Give these options, listen on 127.0.0.1, or say --insecure-anywhere if everybody on the network may"
                " do everything"
            )

    @property
    def asks_who_calls(self) -> bool:
        """Tells whether callers have to prove who they are."""
        return self.guard is not None or (self.tls is not None and self.tls.demands_certificate)

    def interceptors(self) -> Sequence[grpc.aio.ServerInterceptor]:
        """Returns the interceptors for the gRPC server."""
        return () if self.guard is None else (GuardInterceptor(self.guard, self._logger),)

    def transport_options(self) -> tuple[tuple[str, int], ...]:
        """Returns the limits of the gRPC server that apply from its start on."""
        if self.guard is None:
            return ()
        limits = self.guard.limits
        return (
            ("grpc.max_receive_message_length", limits.message_bytes),
            ("grpc.max_concurrent_streams", limits.streams),
        )

    def reload(self) -> None:
        """Read all files again."""
        if self.tls is not None:
            self.tls.reload()
        if self.guard is not None:
            self.guard.reload()

    async def follow(self) -> None:
        """Reads files again whenever they change, without end."""
        keys = () if self.guard is None else (self.guard.follow_keys(),)
        await asyncio.gather(*(files.watch_files() for files in self._followed), *keys)
