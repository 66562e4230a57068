"""The settings of a server or of an agent that joins one, and the places of their files."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kornel.shim_client import Credentials
from kornel.shim_local.machine.capacity import Capacity

LONGEST_SOCKET: Final = 100
KEEP_S: Final = 30 * 86_400.0


class SettingsError(Exception):
    """Settings that cannot be used; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the program behind ``kornel-local up``."""

    folder: Path
    name: str
    capacity: Capacity
    core: str = ""
    """The address of a core that runs already; empty: the server starts its own."""
    page: bool = False
    """Says whether the server's own core serves its web page, which every user of this machine can then use."""
    rm_id: str = "kornel-local"
    queues: Path | None = None
    """A file with the configuration of queues; without it the built-in queues are used."""
    listen: str = ""
    """The address at which agents of other machines may connect; empty: none."""
    join: str = ""
    """The address of the server whose agent this machine becomes; empty: this machine runs a server itself."""
    token_file: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    ca: Path | None = None
    insecure_anywhere: bool = False
    credentials: Credentials | None = None
    keep_s: float = KEEP_S
    """The time for which ended jobs and their logs are kept."""

    @property
    def socket(self) -> Path:
        """The socket for commands."""
        return find_socket(self.folder)

    @property
    def token_path(self) -> Path:
        """The file with the secret that server and agents share."""
        return self.token_file or self.folder / "token"

    def check(self) -> None:
        """Raise SettingsError if a setting cannot work."""
        if len(str(self.folder / "core.sock").encode()) > LONGEST_SOCKET:
            raise SettingsError(
                f"the path of the state directory {self.folder} is too long for a socket; choose another with --state"
            )
        if self.listen and not (self.tls_cert and self.tls_key) and not self.insecure_anywhere:
            host = split_address(self.listen)[0]
            if host not in ("127.0.0.1", "::1", "localhost"):
                raise SettingsError(
                    f"{self.listen} can be reached by other machines, and nothing would be encrypted: give --tls-cert"
                    " and --tls-key, listen on 127.0.0.1 behind an SSH tunnel, or say --insecure-anywhere"
                )

    def server_tls(self) -> ssl.SSLContext | None:
        """Returns the TLS settings of the listener, or ``None`` if it has none. Raises SettingsError."""
        if self.tls_cert is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.tls_cert, self.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"{self.tls_cert}: cannot be used as a certificate: {error}") from None
        return context

    def client_tls(self) -> ssl.SSLContext | None:
        """Returns the TLS settings for the connection to the joined server, or ``None`` if there are none. Raises
        SettingsError."""
        if self.ca is None:
            return None
        try:
            return ssl.create_default_context(cafile=str(self.ca))
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"{self.ca}: cannot be used as certificates: {error}") from None


def find_socket(folder: Path) -> Path:
    """Returns the socket at which the server or agent of a state directory accepts commands."""
    return folder / "server.sock"


def split_address(address: str) -> tuple[str, int]:
    """Returns host and port of ``host:port``. Raises SettingsError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise SettingsError(f"{address!r} is no address; write host:port")
    return host.strip("[]") or "127.0.0.1", int(port)


def read_token(path: Path) -> str:
    """Returns the secret in a file. Raises SettingsError."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingsError(f"{path}: the token cannot be read: {error.strerror}") from None
    if len(token) < 16:
        raise SettingsError(f"{path}: a token has at least 16 characters")
    return token
