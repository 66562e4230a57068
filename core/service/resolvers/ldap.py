"""The resolver ``ldap``: a user's own group and the groups in its directory entry (config.md 11, B17).

Every look-up has its own connection: answers are kept for minutes, so there is nothing to gain from a pool, which would
have to notice that its server is gone.
"""

from __future__ import annotations

import re
import ssl
from typing import Any, Final

from ldap3 import NONE, SUBTREE, Connection, Server, Tls
from ldap3.core.exceptions import LDAPException, LDAPInvalidDnError
from ldap3.core.results import RESULT_NO_SUCH_OBJECT, RESULT_SIZE_LIMIT_EXCEEDED, RESULT_SUCCESS
from ldap3.utils.conv import escape_filter_chars
from ldap3.utils.dn import parse_dn

from kornel.core.service.resolvers.ldap_settings import USER_MARK, LdapSettings
from kornel.core.service.resolvers.source import Unresolved

CONNECT_S: Final = 5
RECEIVE_S: Final = 5

_ESCAPED: Final = re.compile(r"((?:\\[0-9a-fA-F]{2})+)|\\(.)", re.DOTALL)


class _Tls(Tls):
    """TLS by the rules of the standard library. ldap3's own comparison of host names needs a function that Python 3.12
    removed."""

    def __init__(self, settings: LdapSettings) -> None:
        super().__init__()
        self._context = ssl.create_default_context(cadata=settings.ca_certificates or None)
        if not settings.verify:
            self._context.check_hostname = False
            self._context.verify_mode = ssl.CERT_NONE

    def wrap_socket(self, connection: Connection, do_handshake: bool = False) -> None:
        host = connection.server.host
        connection.socket = self._context.wrap_socket(
            connection.socket, server_hostname=host, do_handshake_on_connect=do_handshake
        )


class LdapDirectory:
    """One directory server, which is only read, without following referrals."""

    def __init__(self, settings: LdapSettings) -> None:
        self._settings = settings
        self._tls = _Tls(settings) if settings.tls else None
        self._attributes = list(dict.fromkeys((*settings.return_attributes, settings.group_attribute)))

    def groups_of(self, user: str) -> tuple[str, ...]:
        """Returns the groups of *user*. Raises :class:`Unresolved`."""
        values = self._look_up(user)
        names = (group_name(value) for value in values)
        return tuple(dict.fromkeys((user, *(name for name in names if name))))

    def _look_up(self, user: str) -> list[str]:
        """Returns the values of the group attribute in the entry of *user*."""
        settings = self._settings
        connection = Connection(
            # A new server object for each look-up, because ldap3 assumes that a server which was reached once is still
            # there.
            Server(
                settings.host,
                settings.port,
                use_ssl=settings.tls,
                tls=self._tls,
                get_info=NONE,
                connect_timeout=CONNECT_S,
            ),
            user=settings.bind_user,
            password=settings.bind_password,
            auto_referrals=False,
            read_only=True,
            receive_timeout=RECEIVE_S,
        )
        try:
            if not connection.bind():
                raise Unresolved(f"{settings.address} refuses the bind user: {connection.result['description']}")
            connection.search(
                settings.base_dn,
                settings.filter.replace(USER_MARK, escape_filter_chars(user)),
                search_scope=SUBTREE,
                attributes=self._attributes,
                size_limit=2,
            )
            return self._values(user, connection.result, connection.response or [])
        except LDAPException as error:
            raise Unresolved(f"{settings.address}: {type(error).__name__}: {error}") from error
        finally:
            connection.unbind()
            if connection.socket is not None:
                connection.socket.close()  # ldap3 leaves it open if the connection could not be opened

    def _values(self, user: str, result: dict[str, Any], response: list[dict[str, Any]]) -> list[str]:
        settings = self._settings
        if result["result"] == RESULT_NO_SUCH_OBJECT:
            raise Unresolved(f"{settings.address} has no {settings.base_dn}")
        if result["result"] not in (RESULT_SUCCESS, RESULT_SIZE_LIMIT_EXCEEDED):
            raise Unresolved(f"{settings.address} refuses the search: {result['description']}")
        entries = [entry for entry in response if entry["type"] == "searchResEntry"]
        if not entries:
            raise Unresolved(f"{settings.address} has no entry for {user!r}")
        if len(entries) > 1:
            raise Unresolved(f"{settings.address} has more than one entry for {user!r}")
        for name, values in entries[0]["raw_attributes"].items():
            if name.lower() == settings.group_attribute.lower():
                return [value.decode("utf-8", "replace") for value in values]
        return []


def group_name(value: str) -> str:
    """Returns the name of the group in *value*, a value of the group attribute; empty: none.

    In a distinguished name it is the first ``CN``, which need not come first. Any other text is the name itself.
    """
    if "=" not in value:
        return value.strip()
    try:
        parts = parse_dn(value)
    except LDAPInvalidDnError:
        return ""
    return next((_unescape_text(text) for kind, text, _ in parts if kind.strip().lower() == "cn"), "")


def _unescape_text(text: str) -> str:
    """Returns *text*, a part of a distinguished name, without its escapes (RFC 4514)."""

    def plain(match: re.Match[str]) -> str:
        octets = match[1]
        return bytes.fromhex(octets.replace("\\", "")).decode("utf-8", "replace") if octets else match[2]

    return _ESCAPED.sub(plain, text).strip()
