"""The types of resolver that work in this process, and the reasons why others do not (config.md 11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from structlog.typing import FilteringBoundLogger

from kornel.core.service.resolvers.accounts import SystemAccounts
from kornel.core.service.resolvers.ldap_settings import read_settings
from kornel.core.service.resolvers.source import GroupSource

_FOR_TESTS: Final = "it is for tests of the core itself"


@dataclass(frozen=True, slots=True)
class Sources:
    """The resolvers that work, by type, and the reasons why others cannot be used, by type."""

    working: Mapping[str, GroupSource]
    unavailable: Mapping[str, str]

    @classmethod
    def without_settings(cls) -> Sources:
        """Returns the sources that work everywhere."""
        return cls({"os": SystemAccounts()}, {"ldap": "no settings were given", "test": _FOR_TESTS})


def find_sources(ldap_settings: Path, logger: FilteringBoundLogger) -> Sources:
    """Returns all sources that work on this machine. *ldap_settings*: a directory, which may be missing if LDAP is not
    used.

    Raises :class:`kornel.core.service.resolvers.ldap_settings.LdapSettingsError` for settings that cannot be used.
    """
    basic = Sources.without_settings()
    if not ldap_settings.is_dir():
        reason = f"there is no directory {ldap_settings} with its settings"
        return Sources(basic.working, {**basic.unavailable, "ldap": reason})
    settings, warnings = read_settings(ldap_settings)
    for warning in warnings:
        logger.warning("LDAP setting", problem=warning)
    try:
        from kornel.core.service.resolvers.ldap import LdapDirectory  # noqa: PLC0415 - its package is an optional extra
    except ImportError:
        reason = "the package ldap3 is missing; install kornel[ldap]"
        return Sources(basic.working, {**basic.unavailable, "ldap": reason})
    logger.info("LDAP settings read", directory=str(ldap_settings), server=settings.address)
    return Sources({**basic.working, "ldap": LdapDirectory(settings)}, {"test": _FOR_TESTS})
