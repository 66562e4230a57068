"""Settings of the ldap resolver: config.md 11."""

from __future__ import annotations

from pathlib import Path

import pytest

from kornel.core.service.resolvers.ldap_settings import LdapSettingsError, read_settings

GOOD = {
    "Host": "ldap.example.com",
    "Port": "636",
    "BaseDN": "dc=example,dc=com",
    "Filter": "(&(sAMAccountName=%s))",
    "GroupAttr": "memberOf",
    "ReturnAttr": "memberOf, cn",
    "BindUser": "cn=reader,dc=example,dc=com",
    "BindPassword": "secret word",
    "SSL": "true",
}


def written(directory: Path, **changes: str | None) -> Path:
    for name, text in (GOOD | changes).items():
        if text is not None:
            (directory / name).write_text(text)
    return directory


def test_good_settings(tmp_path: Path) -> None:
    """All settings are read; newlines at the end of a file are none of its value."""
    settings, warnings = read_settings(written(tmp_path, Port="636\n", BindPassword=" secret word\n"))
    assert warnings == ()
    assert settings.address == "ldaps://ldap.example.com:636"
    assert (settings.base_dn, settings.filter) == ("dc=example,dc=com", "(&(sAMAccountName=%s))")
    assert (settings.group_attribute, settings.return_attributes) == ("memberOf", ("memberOf", "cn"))
    assert (settings.bind_user, settings.bind_password) == ("cn=reader,dc=example,dc=com", " secret word")
    assert (settings.tls, settings.verify) == (True, True)


def test_password_is_never_shown(tmp_path: Path) -> None:
    """Neither by the settings themselves nor by what is said of them."""
    settings, warnings = read_settings(written(tmp_path, BindPassword="zq"))
    assert "zq" not in repr(settings) + " ".join(warnings)
    assert any("BindPassword" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({name: None}, f"{name}: is missing") for name in GOOD if name != "SSL"),
        *(({name: " \n"}, f"{name}: is empty") for name in GOOD if name != "SSL"),
        ({"Port": "0"}, "Port: '0' is not a port"),
        ({"Port": "65536"}, "Port: '65536' is not a port"),
        ({"Port": "ldap"}, "Port: 'ldap' is not a port"),
        ({"Filter": "(uid=bob)"}, "has no %s"),
        ({"Filter": "(&(uid=%s)"}, "parentheses that do not match"),
        ({"Filter": ")uid=%s("}, "parentheses that do not match"),
        ({"SSL": "yes"}, "SSL: 'yes' is neither true nor false"),
        ({"Insecure": ""}, "Insecure: '' is neither true nor false"),
        ({"CACert": "no certificate"}, "CACert: holds no certificates"),
    ],
)
def test_refused(tmp_path: Path, changes: dict[str, str | None], message: str) -> None:
    """What cannot work is fatal, and said with the file it is in, each fault once."""
    with pytest.raises(LdapSettingsError) as refused:
        read_settings(written(tmp_path, **changes))
    assert message in str(refused.value)
    assert str(refused.value).count(str(tmp_path)) == 1
    assert GOOD["BindPassword"] not in str(refused.value)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    """Nobody has to start the core once for each of them."""
    with pytest.raises(LdapSettingsError) as refused:
        read_settings(written(tmp_path, Port="0", Host=None, Filter="x"))
    assert all(f"{tmp_path / name}: " in str(refused.value) for name in ("Port", "Host", "Filter"))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"Host": "my_host!"}, "Host"),
        ({"BaseDN": "example.com"}, "BaseDN"),
        ({"GroupAttr": "member of"}, "GroupAttr"),
        ({"ReturnAttr": "cn,1x"}, "ReturnAttr"),
        ({"BindPassword": "ab"}, "BindPassword"),
        ({"Port": "389"}, "Port"),
        ({"Insecure": "true"}, "Insecure"),
        ({"SSL": None, "Port": "389"}, "SSL"),
        ({"Domain": "x"}, "Domain"),
    ],
)
def test_warned_of(tmp_path: Path, changes: dict[str, str | None], name: str) -> None:
    """What is odd works all the same, with one warning."""
    _, (warning,) = read_settings(written(tmp_path, **changes))
    assert warning.startswith(f"{tmp_path / name}: ")


def test_housekeeping_of_a_mounted_secret_is_skipped(tmp_path: Path) -> None:
    """Names that begin with two dots, and directories."""
    written(tmp_path)
    (tmp_path / "..data").mkdir()
    (tmp_path / "..2026").write_text("x")
    (tmp_path / "backup").mkdir()
    assert read_settings(tmp_path)[1] == ()
