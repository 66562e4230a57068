"""Provides a certificate authority for a site that has none: makes its own certificate, and signs others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kornel.core.security.defaults import CERTIFICATE_DAYS
from kornel.core.security.errors import SecurityError
from kornel.core.service.machine.clock import SECOND_NS, wall_ns

CA_DAYS: Final = 3650
CLOCK_SKEW: Final = timedelta(minutes=5)


class Authority:
    """A certificate authority: ``ca.pem`` and ``ca-key.pem`` in *folder*, which are made if they do not exist. Raises
    :class:`SecurityError`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.certificate_path = folder / "ca.pem"
        key_path = folder / "ca-key.pem"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not key_path.exists():
                self._make_authority(key_path)
            key = load_pem_private_key(key_path.read_bytes(), None)
            self._certificate = x509.load_pem_x509_certificate(self.certificate_path.read_bytes())
        except (OSError, ValueError, TypeError) as error:
            raise SecurityError(f"{folder}: no certificate authority can be made or read there: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise SecurityError(f"{key_path}: not a key that was made here")
        self._key = key

    def issue_certificate(
        self, name: str, hosts: Sequence[str] = (), *, days: int = CERTIFICATE_DAYS
    ) -> tuple[Path, Path]:
        """Returns a certificate and its key for *name*: for a server on *hosts* (names or addresses), or for a client
        if there are none.

        Returns their paths. Raises :class:`SecurityError`, also when files of that name are there already.
        """
        certificate_path, key_path = self._folder / f"{name}.pem", self._folder / f"{name}-key.pem"
        if "/" in name or name.startswith(".") or certificate_path.exists() or key_path.exists():
            raise SecurityError(f"{certificate_path}: not a file name, or there already")
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _make_builder(name, days)
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
            )
        try:
            write_secret(key_path, _pem_of(key))
            certificate_path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        except OSError as error:
            raise SecurityError(f"{error.filename}: {error.strerror}") from error
        return certificate_path, key_path

    def _make_authority(self, key_path: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _make_builder("Kornel site CA", CA_DAYS)
        certificate = (
            builder.issuer_name(_make_name("Kornel site CA"))
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    key_cert_sign=True,
                    crl_sign=True,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        write_secret(key_path, _pem_of(key))
        self.certificate_path.write_bytes(certificate.public_bytes(Encoding.PEM))


def _make_builder(name: str, days: int) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(wall_ns() / SECOND_NS, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_make_name(name))
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _make_name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_secret(path: Path, raw: bytes) -> None:
    """Writes a file that other users can never read, not even while it is being written."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(raw)
