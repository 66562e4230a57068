"""Defines identities: the names that a caller has proved.

The prefix of a principal says how it was proved, so that a name in a certificate never counts as the same name in a
token::

    uri:  dns:  cn:       names of a client certificate: each URI and DNS name of its SAN, and its common name
    o:                    the organisations of a client certificate, which are groups
    oidc:  oidc-group:    the user and group claims of an OIDC token
    token:  token-group:  name and groups of a static token
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kornel.core.service.machine.clock import SECOND_NS

if TYPE_CHECKING:
    from cryptography import x509

PREFIXES: Final = ("uri", "dns", "cn", "o", "oidc", "oidc-group", "token", "token-group")


@dataclass(frozen=True, slots=True)
class Identity:
    """The proved identity of a caller. ``principals``: all names and groups with their prefixes; logs show the first
    one.

    user, groups  the names that are looked up in access lists of queues, without prefixes
    expires_ns    the Unix time in ns at which the identity expires; ``None``: never
    proof         the proof, if it can be revoked: the digest of a static token, issuer and ID of an OIDC token
    key           the key that signed the token, of an OIDC token
    """

    principals: tuple[str, ...]
    user: str
    groups: tuple[str, ...] = ()
    expires_ns: int | None = None
    proof: str = ""
    key: object = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The name by which the policy and the log know the caller."""
        return self.principals[0]


def of_certificate(der: bytes) -> Identity | None:
    """Returns the identity in a client certificate that was verified already; ``None``: it has no usable name.

    Raises ValueError for bytes that are not a certificate.
    """
    from cryptography import x509  # noqa: PLC0415 - most cores have no TLS, and it takes long to import
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    certificate = x509.load_der_x509_certificate(der)
    uris: list[str] = []
    hosts: list[str] = []
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        pass
    else:
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        hosts = names.get_values_for_type(x509.DNSName)
    common = _of_subject(certificate, NameOID.COMMON_NAME)
    organisations = _of_subject(certificate, NameOID.ORGANIZATION_NAME)
    principals = [
        *(f"uri:{uri}" for uri in uris),
        *(f"dns:{host.lower()}" for host in hosts),
        *(f"cn:{name}" for name in common),
    ]
    if not principals:
        return None
    return Identity(
        principals=(*principals, *(f"o:{name}" for name in organisations)),
        user=[*common, *hosts, *uris][0],
        groups=tuple(organisations),
        expires_ns=int(certificate.not_valid_after_utc.timestamp()) * SECOND_NS,
    )


def fingerprint(der: bytes) -> bytes:
    """Returns the SHA-256 of a certificate, which tokens that are bound to it contain (RFC 8705, ``x5t#S256``)."""
    return hashlib.sha256(der).digest()


def _of_subject(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(oid) if attribute.value]
