"""Asks a core over a plain socket whether it serves, for probes that run every few seconds.

Importing gRPC costs ten times the processor time of the question. So this module implements only as much HTTP/2 as the
call needs, and understands only whether a core serves. For any other answer, callers ask again with the full command.
"""

from __future__ import annotations

import socket

# Type checkers assume that this name is true. Importing typing itself costs as much as the question.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _GOAWAY = 0x0, 0x1, 0x4, 0x7
_ACK: Final = 0x1
_END_STREAM: Final = 0x1
_END_HEADERS: Final = 0x4
_PADDED: Final = 0x8
_STREAM: Final = 1
_FRAME_HEAD: Final = 9
_MESSAGE_HEAD: Final = 5
_LONGEST_FRAME: Final = 1 << 14
_METHOD: Final = "/grpc.health.v1.Health/Check"
_STATUSES: Final = {b"\x08\x01": "SERVING", b"\x08\x02": "NOT_SERVING"}
"""The names of the values of the field ``status`` of a ``HealthCheckResponse``."""


class NoPlainAnswer(Exception):
    """The peer closed the connection, or sent something that this module does not understand."""


class TlsFiles:
    """The files for a TLS connection: the authority's certificate, and the caller's certificate and key. Empty paths:
    none."""

    __slots__ = ("ca", "certificate", "key", "server_name")

    def __init__(self, ca: str = "", certificate: str = "", key: str = "", server_name: str = "") -> None:
        self.ca, self.certificate, self.key, self.server_name = ca, certificate, key, server_name


def probe_health(address: str, tls: TlsFiles, timeout_s: float) -> str:
    """Returns what the core at *address* answers within about *timeout_s*: ``SERVING`` or ``NOT_SERVING``. Empty: the
    core cannot be reached, or was not understood."""
    try:
        with _open_connection(address, tls, timeout_s) as connection:
            connection.sendall(_write_request(_find_authority(address, tls), secured=bool(tls.ca or tls.certificate)))
            return _STATUSES.get(_read_message(connection), "")
    except (OSError, ValueError, NoPlainAnswer):
        return ""


def _open_connection(address: str, tls: TlsFiles, timeout_s: float) -> socket.socket:
    if address.startswith("unix:"):
        plain = socket.socket(socket.AF_UNIX)
        plain.settimeout(timeout_s)
        plain.connect(address.removeprefix("unix:").removeprefix("//"))
    else:
        plain = socket.create_connection(_split_address(address), timeout_s)
    if not tls.ca and not tls.certificate:
        return plain
    import ssl  # noqa: PLC0415  # half of this module's cost

    # Without an authority, gRPC uses its own roots, which may differ from those of this machine.
    if not tls.ca:
        raise NoPlainAnswer("no authority is named")
    context = ssl.create_default_context(cafile=tls.ca)
    # gRPC accepts authorities that do not follow RFC 5280 strictly, so this module does so as well.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["h2"])
    if tls.certificate:
        context.load_cert_chain(tls.certificate, tls.key)
    return context.wrap_socket(plain, server_hostname=tls.server_name or _split_address(address)[0])


def _split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _find_authority(address: str, tls: TlsFiles) -> str:
    return tls.server_name or ("localhost" if address.startswith("unix:") else address)


def _write_request(authority: str, *, secured: bool) -> bytes:
    """Returns the start of a connection and a call of ``Check`` for the whole server, ready to be sent."""
    # The numbers are those of the static table of HPACK (RFC 7541, appendix A).
    headers = b"".join(
        (
            b"\x83",  # :method: POST
            b"\x87" if secured else b"\x86",  # :scheme
            b"\x04" + _write_text(_METHOD),  # :path
            b"\x01" + _write_text(authority),  # :authority
            b"\x0f\x10" + _write_text("application/grpc"),  # content-type
            b"\x00" + _write_text("te") + _write_text("trailers"),
        )
    )
    empty_message = bytes(_MESSAGE_HEAD)
    return b"".join(
        (
            _PREFACE,
            _write_frame(_SETTINGS, 0, 0, b""),
            _write_frame(_HEADERS, _END_HEADERS, _STREAM, headers),
            _write_frame(_DATA, _END_STREAM, _STREAM, empty_message),
        )
    )


def _write_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _write_text(text: str) -> bytes:
    """Returns *text* as HPACK writes it without compression. Raises :class:`ValueError` for one that is too long."""
    octets = text.encode("ascii")
    if len(octets) >= 0x7F:
        raise ValueError("the text is too long for a length of one octet")
    return bytes((len(octets),)) + octets


def _read_message(connection: socket.socket) -> bytes:
    """Returns the message that answers the call, once the call is over."""
    received = b""
    while True:
        head = _read_exactly(connection, _FRAME_HEAD)
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        if length > _LONGEST_FRAME or kind == _GOAWAY:
            raise NoPlainAnswer("the peer ends the connection, or speaks another protocol")
        payload = _read_exactly(connection, length)
        if kind == _SETTINGS and not flags & _ACK:
            connection.sendall(_write_frame(_SETTINGS, _ACK, 0, b""))
        if int.from_bytes(head[5:], "big") != _STREAM:
            continue
        if kind == _DATA:
            if flags & _PADDED:
                raise NoPlainAnswer("a padded answer")
            received += payload
        elif kind != _HEADERS:
            continue
        if flags & _END_STREAM:
            # Before the message come one octet that says whether it is compressed, and its length.
            return received[_MESSAGE_HEAD:]


def _read_exactly(connection: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = connection.recv(count)
        if not part:
            raise NoPlainAnswer("the peer closed the connection")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
