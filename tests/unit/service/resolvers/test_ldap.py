"""Resolver ldap against a real directory server: config.md 11, B17."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ldap3", reason="the extra ldap is not installed")

from kornel.core.service.resolvers import ldap
from kornel.core.service.resolvers.ldap import LdapDirectory, group_name
from kornel.core.service.resolvers.ldap_settings import read_settings
from kornel.core.service.resolvers.source import Unresolved
from tests.ports import reserve_port
from tests.unit.service.resolvers.slapd import PASSWORD, Directory, directory, why_missing


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    missing = why_missing()
    if missing:
        pytest.skip(f"no directory server to test with, {missing}")
    with directory(tmp_path_factory.mktemp("slapd")) as served:
        yield served


def source(settings: Path) -> LdapDirectory:
    return LdapDirectory(read_settings(settings)[0])


@pytest.mark.parametrize(
    ("user", "groups"),
    [
        pytest.param("bob", ("bob", "dev", "ops, EU", "café"), id="T83 ldap groups, escapes undone"),
        pytest.param("sue", ("sue", "dev"), id="B17 a group without CN is left out"),
        pytest.param("loner", ("loner",), id="no groups but one's own"),
        pytest.param("o.neil", ("o.neil",), id="a dot"),
    ],
)
def test_groups(served: Directory, tmp_path: Path, user: str, groups: tuple[str, ...]) -> None:
    """The group called like the user, then the first CN of each value."""
    found = source(served.settings(tmp_path)).groups_of(user)
    assert (found[0], sorted(found)) == (groups[0], sorted(groups))


def test_group_attribute_is_honoured(served: Directory, tmp_path: Path) -> None:
    """B17: groups come from the attribute that is set, whatever else is returned; plain text is a name."""
    settings = served.settings(tmp_path, GroupAttr="SN", ReturnAttr="memberOf,cn")
    assert source(settings).groups_of("bob") == ("bob",)
    (tmp_path / "GroupAttr").write_text("member")
    (tmp_path / "Filter").write_text("(cn=%s)")
    assert source(settings).groups_of("dev") == ("dev",)


@pytest.mark.parametrize(
    ("user", "changes", "why"),
    [
        pytest.param("zoe", {}, "has no entry for 'zoe'", id="unknown user"),
        pytest.param("twin", {}, "more than one entry for 'twin'", id="two of the same name"),
        pytest.param("*", {}, "has no entry for '*'", id="a name is no pattern"),
        pytest.param("bob)(uid=*", {}, "has no entry for", id="a name is no filter"),
        pytest.param("bob", {"BaseDN": "dc=elsewhere"}, "has no dc=elsewhere", id="wrong base"),
        pytest.param("bob", {"BindPassword": "wrong word"}, "refuses the bind user: invalidCredentials", id="password"),
        pytest.param("bob", {"Filter": "uid %s"}, "", id="filter that is none"),
    ],
)
def test_unresolved(served: Directory, tmp_path: Path, user: str, changes: dict[str, str], why: str) -> None:
    """The reason names the server and the cause, and no secret."""
    with pytest.raises(Unresolved) as refused:
        source(served.settings(tmp_path, **changes)).groups_of(user)
    assert why in str(refused.value)
    assert f"ldap://localhost:{served.port}" in str(refused.value)
    assert PASSWORD not in str(refused.value)
    assert "wrong word" not in str(refused.value)


def test_tls_to_a_server_one_trusts(served: Directory, tmp_path: Path) -> None:
    """SSL with the authority that signed the server's certificate."""
    ca = (served.home / "ca.pem").read_text()
    settings = served.settings(tmp_path, SSL="true", Port=str(served.tls_port), CACert=ca)
    assert source(settings).groups_of("loner") == ("loner",)


@pytest.mark.parametrize(
    ("host", "trusted"),
    [
        pytest.param("localhost", False, id="unknown authority"),
        pytest.param("127.0.0.1", True, id="certificate for another name"),
    ],
)
def test_tls_to_a_server_one_does_not_trust(served: Directory, tmp_path: Path, host: str, trusted: bool) -> None:
    """Certificates are checked unless Insecure says not to; only that gets through to such a server."""
    settings = served.settings(tmp_path, Host=host, SSL="true", Port=str(served.tls_port))
    if trusted:
        (tmp_path / "CACert").write_text((served.home / "ca.pem").read_text())
    with pytest.raises(Unresolved, match="ertificate"):
        source(settings).groups_of("loner")
    (tmp_path / "Insecure").write_text("true")
    assert source(settings).groups_of("loner") == ("loner",)


def test_nobody_listens(tmp_path: Path) -> None:
    """A server that is down is an answer too."""
    port = reserve_port()
    settings = Directory(tmp_path, port, port).settings(tmp_path, Host="127.0.0.1")
    with pytest.raises(Unresolved, match=f"ldap://127.0.0.1:{port}"):
        source(settings).groups_of("bob")


def test_server_goes_down(tmp_path: Path) -> None:
    """One that was there before is missed like any other."""
    missing = why_missing()
    if missing:
        pytest.skip(f"no directory server to test with, {missing}")
    home, settings = tmp_path / "home", tmp_path / "settings"
    home.mkdir()
    settings.mkdir()
    with directory(home) as served:
        people = source(served.settings(settings, Host="127.0.0.1"))
        assert people.groups_of("loner") == ("loner",)
    with pytest.raises(Unresolved, match=r"ldap://127\.0\.0\.1"):
        people.groups_of("loner")


def test_server_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes the connection and is silent is given up on."""
    monkeypatch.setattr(ldap, "RECEIVE_S", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        settings = Directory(tmp_path, silent.getsockname()[1], 0).settings(tmp_path, Host="127.0.0.1")
        with pytest.raises(Unresolved, match=r"ldap://127\.0\.0\.1"):
            source(settings).groups_of("bob")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("CN=dev,OU=teams,DC=example,DC=com", "dev"),
        ("OU=teams,cn=dev,DC=example", "dev"),
        ("CN=a,CN=b,DC=example", "a"),
        (r"CN=ops\, EU,DC=example", "ops, EU"),
        (r"CN=caf\C3\A9,DC=example", "café"),
        ("OU=teams,DC=example", ""),
        ("CN=,,=", ""),
        ("=", ""),
        ("dev", "dev"),
        ("", ""),
    ],
)
def test_group_name(value: str, name: str) -> None:
    """The first CN wherever it stands; odd names are left out and break nothing (B17)."""
    assert group_name(value) == name
