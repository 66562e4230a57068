"""A site with an authority of its own: certificates as good or bad as a test wants them, and cores that use them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from kornel.core.engine.engine import Engine
from kornel.core.process.server import KornelServer
from kornel.core.process.server_settings import ServerSettings
from kornel.core.security.security import Security, SecurityOptions
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger
from kornel.core.service.machine.clock import SECOND_NS, ManualClock
from kornel.core.service.machine.garbage import GarbageKeeper
from kornel.core.service.metrics.metrics import ServiceMetrics

ISSUER: Final = "https://login.example.org"
HOST: Final = "localhost"


_SIGNS_CERTIFICATES: Final = x509.KeyUsage(
    key_cert_sign=True, crl_sign=True,
    digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, encipher_only=False, decipher_only=False,
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """PEM files of one certificate."""

    certificate: Path
    key: Path


class Authority:
    """A CA whose files lie in *folder*. It signs what strict clients demand, as those of Python 3.13 are by default
    (RFC 5280)."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key_identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        certificate = (
            _validity(x509.CertificateBuilder(), -1, 100)
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .add_extension(self._key_identifier, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(certificate.public_bytes(Encoding.PEM))

    def issue(
        self,
        name: str,
        *,
        names: Sequence[x509.GeneralName] = (x509.DNSName(HOST),),
        first_day: float = -1,
        last_day: float = 30,
        organisation: str = "",
        file: str = "",
    ) -> Pair:
        """A certificate for common name *name*; days count from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else []
        if organisation:
            parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
        builder = (
            _validity(x509.CertificateBuilder(), first_day, last_day)
            .subject_name(x509.Name(parts))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._key_identifier), critical=False
            )
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=not parts)
        pair = Pair(self.folder / f"{file or name}.pem", self.folder / f"{file or name}.key")
        pair.certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return pair


class Issuer:
    """Signs tokens. Its public keys lie in ``keys.json`` of *folder*."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "keys.json"
        self.rotate("first")

    def rotate(self, key_id: str) -> None:
        self.key_id = key_id
        self.key = ec.generate_private_key(ec.SECP256R1())
        public = jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        import json  # noqa: PLC0415

        self.file.write_text(json.dumps({"keys": [{**public, "kid": key_id, "use": "sig", "alg": "ES256"}]}))

    def token(self, user: str = "ann", *, key: Any = None, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """A good token of *user* for ten minutes, but for *claims*; a claim of ``None`` is left out."""
        now = int(time.time())
        said = {
            "iss": ISSUER,
            "aud": "kornel",
            "sub": user,
            "exp": now + 600,
            "nbf": now,
            "iat": now,
            "jti": "some-id",
            **claims,
        }
        said = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(said, key or self.key, "ES256", headers={"kid": self.key_id, **(headers or {})})


@dataclass
class Site:
    """A core that asks who calls. ``clock``: by which proofs expire; ``log``: the file it logs to."""

    server: KornelServer
    security: Security
    clock: ManualClock
    address: str
    ca: Path | None
    log: Path

    @asynccontextmanager
    async def channel(
        self, pair: Pair | None = None, token: str | None = None, *, ca: Path | None = None
    ) -> AsyncIterator[grpc.aio.Channel]:
        """A connection of its own, as whom *pair* and *token* say."""
        options = [
            ("grpc.ssl_target_name_override", HOST),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_send_message_length", -1),
        ]
        trusted = ca or self.ca
        if trusted is None:
            opened = grpc.aio.insecure_channel(self.address, options=options)
        else:
            credentials = grpc.ssl_channel_credentials(
                trusted.read_bytes(),
                pair.key.read_bytes() if pair else None,
                pair.certificate.read_bytes() if pair else None,
            )
            opened = grpc.aio.secure_channel(self.address, credentials, options=options)
        async with opened:
            yield opened


def bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


@asynccontextmanager
async def secured(
    folder: Path,
    *,
    ca: Path | None = None,
    server: Pair | None = None,
    client_ca: Path | None = None,
    policy: str | None = None,
    clock: ManualClock | None = None,
    **settings: Any,
) -> AsyncIterator[Site]:
    """A core with these files; *policy* is the text of its security file."""
    file: Path | None = None
    if policy is not None:
        file = folder / "security.yaml"
        file.write_text(policy)
    log = folder / "core.log"
    with log.open("w") as output:
        logger = build_logger(LogFormat.JSON, LogLevel.DEBUG, output)
        clock = clock or ManualClock(int(time.time()) * SECOND_NS)
        options = SecurityOptions(
            certificate=server.certificate if server else None,
            key=server.key if server else None,
            client_ca=client_ca,
            policy=file,
        )
        security = Security(options, clock=clock, logger=logger)
        core = KornelServer(
            Engine(),
            ServerSettings(address="127.0.0.1:0", version="test", grace_s=0.5, **settings),
            clock=ManualClock(),
            metrics=ServiceMetrics(),
            logger=logger,
            garbage=GarbageKeeper(enabled=False),
            security=security,
            make_engine=Engine,
        )
        address = await core.start()
        try:
            yield Site(core, security, clock, address, ca, log)
        finally:
            await core.stop()


def _validity(builder: x509.CertificateBuilder, first_day: float, last_day: float) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=first_day))
        .not_valid_after(now + timedelta(days=last_day))
    )
