"""TLS for gRPC and HTTPS from one set of PEM files, which may be replaced while the core runs.

Connections that are open stay as they are; every handshake after a replacement is made with the new files. Files that
cannot be used are reported and change nothing.
"""

from __future__ import annotations

import ssl
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import grpc
from structlog.typing import FilteringBoundLogger

from kornel.core.security.errors import SecurityError

MOST_BYTES: Final = 1 << 20

CIPHERS_OF_1_2: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The suites for TLS 1.2, with forward secrecy and without CBC. All suites of TLS 1.3 are allowed."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. ``client_ca``: the authority for client certificates, which are then required; ``None``: none is asked
    for."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths of all files."""
        return (self.certificate, self.key, *((self.client_ca,) if self.client_ca is not None else ()))


class _Loaded:
    """One reading of the files."""

    def __init__(self, files: TlsFiles) -> None:
        from cryptography import x509  # noqa: PLC0415 - most cores have no TLS, and it takes long to import

        self.context = _make_context(files)
        certificate, key = _read(files.certificate), _read(files.key)
        root = _read(files.client_ca) if files.client_ca is not None else None
        self.grpc = grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=root)
        self.expires = min(found.not_valid_after_utc for found in x509.load_pem_x509_certificates(certificate))


class Tls:
    """Server credentials. Raises :class:`SecurityError` for files that cannot be used."""

    def __init__(self, files: TlsFiles, logger: FilteringBoundLogger) -> None:
        self.files = files
        self._logger = logger
        self._loaded = _Loaded(files)
        self._warn_of_open_key()

    @property
    def demands_certificate(self) -> bool:
        """Tells whether a client certificate is required."""
        return self.files.client_ca is not None

    def reload(self) -> None:
        """Read the files again. Files that cannot be used are reported, and the former ones stay in use."""
        try:
            self._loaded = _Loaded(self.files)
        except SecurityError as error:
            self._logger.error("new TLS files cannot be used; the former ones stay in use", cause=str(error))
        else:
            self._logger.info("TLS files read again", expires=self._loaded.expires.isoformat())
            self._warn_of_open_key()

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Returns the credentials for a gRPC server's port."""
        told = self._loaded

        def latest() -> Any:
            """Returns the configuration for a handshake, called from gRPC's own threads; ``None``: the same as
            before."""
            nonlocal told
            loaded = self._loaded
            if loaded is told:
                return None
            told = loaded
            return loaded.grpc

        return grpc.dynamic_ssl_server_credentials(
            told.grpc, latest, require_client_authentication=self.demands_certificate
        )

    def make_context(self) -> ssl.SSLContext:
        """Returns the context for one HTTPS connection that begins now.

        Each reading of the files has its own context, and so its own cache of sessions that TLS 1.2 can resume: a
        client that was admitted under the former files has to show its certificate again.
        """
        return self._loaded.context

    def _warn_of_open_key(self) -> None:
        try:
            mode = stat.S_IMODE(self.files.key.stat().st_mode)
        except OSError:
            return
        if mode & stat.S_IROTH:
            self._logger.warning(
                "the private key can be read by everybody on this machine", path=str(self.files.key), mode=f"{mode:04o}"
            )


def peer_certificate(connection: ssl.SSLObject | None) -> bytes | None:
    """Returns the client's certificate on an HTTPS connection in DER; ``None``: the client showed none."""
    return connection.getpeercert(binary_form=True) if connection is not None else None


@lru_cache(maxsize=1024)
def der_of(pem: bytes) -> bytes:
    """Returns a certificate as gRPC hands it out, in DER. Raises ValueError."""
    from cryptography import x509  # noqa: PLC0415 - most cores have no TLS, and it takes long to import
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


def _make_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS_OF_1_2)
    context.set_alpn_protocols(["http/1.1"])
    # With tickets, a client whose certificate was revoked could come back without showing it.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    _load_file(files.certificate, lambda: context.load_cert_chain(files.certificate, files.key, password=_no_password))
    if files.client_ca is not None:
        path = files.client_ca
        _load_file(path, lambda: context.load_verify_locations(cafile=path))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_password() -> str:
    raise SecurityError("the private key is encrypted, and there is nobody to ask for its password")


def _load_file(path: Path, load: Callable[[], None]) -> None:
    try:
        load()
    except ssl.SSLError as error:
        said = f"not usable as PEM, or key and certificate do not match: {error.reason}"
        raise SecurityError(f"{path}: {said}") from error
    except OSError as error:
        raise SecurityError(f"{error.filename or path}: {error.strerror or error}") from error


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise SecurityError(f"{path}: {error.strerror or error}") from error
    if len(raw) > MOST_BYTES:
        raise SecurityError(f"{path}: longer than {MOST_BYTES} bytes")
    return raw
