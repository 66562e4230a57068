"""Messages between commands, agents and the server: one JSON object per line. Over TCP, both sides first prove that
they know a shared secret."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from typing import Any, Final

MOST_BYTES: Final = 64 * 2**20
HANDSHAKE_S: Final = 10.0
MOST_HANDSHAKE_BYTES: Final = 4096


class WireError(Exception):
    """The other side breaks the protocol, or does not know the secret."""


async def read_message(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Returns the next message, or ``None`` at the end. Raises WireError."""
    try:
        line = await reader.readline()
    except ValueError:
        raise WireError(f"a message is longer than {MOST_BYTES} bytes") from None
    except OSError:
        return None
    if not line.endswith(b"\n"):
        return None
    try:
        message = json.loads(line)
    except ValueError:
        raise WireError("a message is no JSON") from None
    if not isinstance(message, dict):
        raise WireError("a message is no JSON object")
    return message


def write_message(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    """Write a message without waiting."""
    writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")


def make_proof(token: str, role: str, nonces: str) -> str:
    """Returns a proof that its sender has the token. It is valid only for this connection and this side of it."""
    return hmac.new(
        token.encode(), f"kornel-local {role} {nonces}".encode("utf-8", "replace"), hashlib.sha256
    ).hexdigest()


async def _read_handshake(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Returns the next message of a peer that has not proved anything yet. Its size is limited, so that the peer cannot
    fill our memory."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = await reader.read(1)
        if not byte:
            return None
        line += byte
        if len(line) > MOST_HANDSHAKE_BYTES:
            raise WireError("a peer that has not proved that it has the token sends too much")
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise WireError("a message is no JSON") from None
    return message if isinstance(message, dict) else None


async def admit_peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> str:
    """Returns the role of a peer, ``agent`` or ``command``, once it has proved that it has the token.

    Raises WireError.
    """
    nonce = secrets.token_hex(16)
    write_message(writer, {"nonce": nonce})
    async with asyncio.timeout(HANDSHAKE_S):
        answer = await _read_handshake(reader)
    role = str((answer or {}).get("role"))
    nonces = f"{nonce} {(answer or {}).get('nonce')}"
    given = str((answer or {}).get("proof"))
    if role not in ("agent", "command") or not hmac.compare_digest(
        given.encode("utf-8", "replace"), make_proof(token, role, nonces).encode()
    ):
        write_message(writer, {"error": "the token is not that of this server"})
        raise WireError("a peer does not have the token")
    write_message(writer, {"proof": make_proof(token, "server", nonces)})
    return role


async def prove_token(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str, role: str) -> None:
    """Prove to a server that we have its token, and check that it has the token too. Raises WireError."""
    async with asyncio.timeout(HANDSHAKE_S):
        greeting = await read_message(reader) or {}
        ours = secrets.token_hex(16)
        nonces = f"{greeting.get('nonce')} {ours}"
        write_message(writer, {"role": role, "nonce": ours, "proof": make_proof(token, role, nonces)})
        answer = await read_message(reader)
    if answer is None:
        raise WireError("the server ended the connection")
    if "error" in answer:
        raise WireError(str(answer["error"]))
    if not hmac.compare_digest(str(answer.get("proof")).encode(), make_proof(token, "server", nonces).encode()):
        raise WireError("the program at that address does not have the token: it is not the server of this agent")
