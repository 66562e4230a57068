"""Settings of the ldap resolver: a directory with one file for each setting, like a mounted secret (config.md 11).

The names are YuniKorn's. ``CACert``, the certificates to trust as PEM text, is Kornel's own, because a directory server
rarely has a public certificate.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

DEFAULT_LDAP_SETTINGS: Final = Path("/run/secrets/ldap")

REQUIRED: Final = ("Host", "Port", "BaseDN", "Filter", "GroupAttr", "ReturnAttr", "BindUser", "BindPassword")
OPTIONAL: Final = ("Insecure", "SSL", "CACert")

USER_MARK: Final = "%s"
"""The place of the user name in the filter."""

LDAPS_PORT: Final = 636
SHORTEST_PASSWORD: Final = 3

_PORT: Final = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_HIGHEST_PORT: Final = 65_535
_TRUE: Final = frozenset({"1", "t", "true"})
_FALSE: Final = frozenset({"0", "f", "false"})
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+", re.ASCII)
_DN: Final = re.compile(r"\s*[A-Za-z][A-Za-z0-9.-]*\s*=[^=]+(?:[,+]\s*[A-Za-z][A-Za-z0-9.-]*\s*=[^=]+)*", re.ASCII)
_ATTRIBUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9;.-]*", re.ASCII)


class LdapSettingsError(ValueError):
    """The settings cannot be used. The text has one line for each error, and never the password."""


@dataclass(frozen=True, slots=True)
class LdapSettings:
    """The settings of a directory. ``verify``: the server's certificate has to be valid for ``host``.

    ``ca_certificates``: PEM; empty: those of the system.
    """

    host: str
    port: int
    base_dn: str
    filter: str
    group_attribute: str
    return_attributes: tuple[str, ...]
    bind_user: str
    bind_password: str = field(repr=False)
    tls: bool = False
    verify: bool = True
    ca_certificates: str = ""

    @property
    def address(self) -> str:
        """The address of the server."""
        return f"{'ldaps' if self.tls else 'ldap'}://{self.host}:{self.port}"


def read_settings(directory: Path) -> tuple[LdapSettings, tuple[str, ...]]:
    """Returns the settings in *directory*, with warnings about odd ones. Raises :class:`LdapSettingsError`."""
    reader = _Reader(directory)
    settings = LdapSettings(
        host=reader.required("Host"),
        port=reader.port(),
        base_dn=reader.required("BaseDN"),
        filter=reader.filter(),
        group_attribute=reader.required("GroupAttr"),
        return_attributes=tuple(name.strip() for name in reader.required("ReturnAttr").split(",") if name.strip()),
        bind_user=reader.required("BindUser"),
        bind_password=reader.required("BindPassword", str.rstrip),
        tls=reader.boolean("SSL"),
        verify=not reader.boolean("Insecure"),
        ca_certificates=reader.certificates(),
    )
    if reader.errors:
        raise LdapSettingsError("\n".join(["LDAP settings cannot be used:", *(f"  {each}" for each in reader.errors)]))
    for name, odd in _find_oddities(settings):
        reader.warn(name, odd)
    return settings, tuple(reader.warnings)


class _Reader:
    """Reads settings and collects all errors, each with the name of its file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self._texts = self._read()

    def error(self, name: str, what: str) -> None:
        self.errors.append(f"{self._directory / name}: {what}")

    def warn(self, name: str, what: str) -> None:
        self.warnings.append(f"{self._directory / name}: {what}")

    def required(self, name: str, trim: Callable[[str], str] = str.strip) -> str:
        text = self._texts.get(name)
        if text is None:
            if not any(str(self._directory / name) in error for error in self.errors):
                self.error(name, "is missing")
            return ""
        # A blank at the beginning of a password may be part of it; the newline at the end never is.
        value = trim(text)
        if not value:
            self.error(name, "is empty")
        return value

    def port(self) -> int:
        text = self.required("Port")
        if _PORT.fullmatch(text) and int(text) <= _HIGHEST_PORT:
            return int(text)
        if text:
            self.error("Port", f"{text!r} is not a port (expected 1 to {_HIGHEST_PORT})")
        return 0

    def filter(self) -> str:
        text = self.required("Filter")
        if text and USER_MARK not in text:
            self.error("Filter", f"{text!r} has no {USER_MARK} for the user name")
        if not _is_balanced(text):
            self.error("Filter", f"{text!r} has parentheses that do not match")
        return text

    def boolean(self, name: str) -> bool:
        text = self._texts.get(name, "false").strip()
        if text.lower() not in _TRUE | _FALSE:
            self.error(name, f"{text!r} is neither true nor false")
        return text.lower() in _TRUE

    def certificates(self) -> str:
        text = self._texts.get("CACert", "")
        if "CACert" not in self._texts:
            return ""
        try:
            ssl.create_default_context(cadata=text)
        except (ssl.SSLError, ValueError) as error:
            self.error("CACert", f"holds no certificates in PEM form: {error}")
        return text

    def _read(self) -> Mapping[str, str]:
        texts: dict[str, str] = {}
        for path in sorted(self._directory.iterdir()):
            # In a mounted secret, names that begin with two dots belong to Kubernetes itself.
            if path.name.startswith("..") or path.is_dir():
                continue
            if path.name not in (*REQUIRED, *OPTIONAL):
                self.warn(path.name, f"is not a setting and was skipped (expected {', '.join((*REQUIRED, *OPTIONAL))})")
                continue
            try:
                texts[path.name] = path.read_text(encoding="utf-8")
            except OSError as error:
                self.error(path.name, f"cannot be read: {error.strerror}")
            except UnicodeDecodeError:
                self.error(path.name, "is not UTF-8 text")
        return texts


def _find_oddities(settings: LdapSettings) -> list[tuple[str, str]]:
    """Returns probable mistakes, each with the name of its file."""
    odd: list[tuple[str, str]] = []
    if not _HOST.fullmatch(settings.host):
        odd.append(("Host", f"{settings.host!r} does not look like a host name or address"))
    if not _DN.fullmatch(settings.base_dn):
        odd.append(("BaseDN", f"{settings.base_dn!r} does not look like a distinguished name"))
    attributes = (("GroupAttr", settings.group_attribute), *(("ReturnAttr", a) for a in settings.return_attributes))
    odd += [
        (name, f"{text!r} does not look like an attribute")
        for name, text in attributes
        if not _ATTRIBUTE.fullmatch(text)
    ]
    if len(settings.bind_password) < SHORTEST_PASSWORD:
        odd.append(("BindPassword", f"is shorter than {SHORTEST_PASSWORD} characters"))
    if settings.tls and settings.port != LDAPS_PORT:
        odd.append(("Port", f"{settings.port} with SSL, where {LDAPS_PORT} is usual"))
    if settings.tls and not settings.verify:
        odd.append(("Insecure", "the server's certificate is not checked: anybody can answer in its place"))
    if not settings.tls:
        odd.append(("SSL", "is not on: the password travels unencrypted"))
    return odd


def _is_balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return depth == 0
