"""Which settings are secrets, and what is shown instead."""

from __future__ import annotations

import tracemalloc

import pytest

from kornel.core.domain.secrets import HIDDEN, names_secret, text_without_secrets, without_secrets
from tests.paced import paced_time


@pytest.mark.parametrize(
    "name",
    [
        "ldap.bindPassword",
        "service.token",
        "TOKEN",
        "db_secret",
        "client-secret",
        "aws.credentials",
        "tls.key",
        "service/api-key",
        "apiKey",
        "accessKeyId",
        "private_key",
        "proxy.authorization",
        "db.pwd",
        "bindPwd",
        "ldapBindPW",
        "db.pass",
        "sshPass",
        "pwd",
        "pw",
        "ldap.bindpw",
        "rootpw",
        "passcode",
    ],
)
def test_a_secret(name: str) -> None:
    assert names_secret(name)
    assert without_secrets({name: "hunter2", "service.x": "y"}) == {name: HIDDEN, "service.x": "y"}


@pytest.mark.parametrize(
    "name",
    [
        "key",
        "keys",
        "service.clusterId",
        "event.maxStreams",
        "log.level",
        "monkey",
        "keyboard",
        "pin",
        "pass",
        "compass",
        "bypass",
        "",
    ],
)
def test_no_secret(name: str) -> None:
    assert not names_secret(name)


def test_an_empty_value_hides_nothing() -> None:
    assert without_secrets({"password": ""}) == {"password": ""}


def test_in_a_text() -> None:
    text = (
        "partitions:\n  - name: default # password of the admin\n    queues:\n      - name: root\n"
        "        properties:\n          db.password: 'hunter2'\n          api-key:  hunter3 # old\n"
        "        childtemplate: {properties: {token: hunter4, other: 1}}\n        submitacl: '*'\r\n"
    )
    shown = text_without_secrets(text)
    assert "hunter" not in shown
    assert f"db.password: {HIDDEN}\n" in shown
    assert f"{{token: {HIDDEN}, other: 1}}}}" in shown
    assert shown.count("\n") == text.count("\n")
    assert "submitacl: '*'\r\n" in shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("https://bob:hunter2@host/path", f"https://{HIDDEN}@host/path"),
        ("redis://:hunter2@host", f"redis://{HIDDEN}@host"),
        ("ldap://hunter2@host", f"ldap://{HIDDEN}@host"),
        ("https://bob@example.org:hun@ter2@host", f"https://{HIDDEN}@host"),
        ("http://host:80/a@b", "http://host:80/a@b"),
        ("host=db password=hunter2 user=bob", f"host=db password={HIDDEN} user=bob"),
        ("jdbc:x?user=bob&apiKey=hunter2&a=b", f"jdbc:x?user=bob&apiKey={HIDDEN}&a=b"),
        ("key=k1", "key=k1"),
        (
            'login required username="u" password="hunter 2" x="y"',
            f'login required username="u" password={HIDDEN} x="y"',
        ),
        ("PASSWORD = hunter2 user", f"PASSWORD = {HIDDEN} user"),
        ("passphrase=hunter2", f"passphrase={HIDDEN}"),
        ("client_secret => hunter2", f"client_secret => {HIDDEN}"),
        ("AccountName=a;AccountKey=hunter2==;x=y", f"AccountName=a;AccountKey={HIDDEN};x=y"),
        ('password="hunter2', f"password={HIDDEN}"),
        ("password=", "password="),
        ("Bearer hunter2", f"Bearer {HIDDEN}"),
        ("krn_" + "a" * 43, HIDDEN),
    ],
)
def test_a_secret_within_a_value(value: str, shown: str) -> None:
    """Whatever the setting is called, and as part of a text, too."""
    assert without_secrets({"service.x": value}) == {"service.x": shown}
    assert text_without_secrets(f"a:\n  hook: '{value}'\n") == f"a:\n  hook: '{shown}'\n"


@pytest.mark.parametrize("kind", ["PRIVATE KEY", "RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
def test_a_private_key_within_a_value(kind: str) -> None:
    begin, end = f"-----BEGIN {kind}-----", f"-----END {kind}-----"
    assert without_secrets({"x": f"a {begin}\nhunter2\n{end} b {begin} hunter3"}) == {"x": f"a {HIDDEN} b {HIDDEN}"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ('{"password": "hunter2", "a": 1}', f'{{"password": {HIDDEN}, "a": 1}}'),
        ('{"password":"the \\"hunter2\\" of it","a":1}', f'{{"password":{HIDDEN},"a":1}}'),
        (r'"{\"api_key\": \"hunter2\", \"a\": 1}"', rf'"{{\"api_key\": {HIDDEN}, \"a\": 1}}"'),
        ("{user: bob, token: hunter2, a: 1}", f"{{user: bob, token: {HIDDEN}, a: 1}}"),
        ("password: hunter2", f"password: {HIDDEN}"),
        ("{'secret':'hunter2'", f"{{'secret':{HIDDEN}"),
        ('{"password":["hunter2","hunter3"],"a":1}', f'{{"password":{HIDDEN},"a":1}}'),
        ('{"credentials":{"value":"hunter2"},"a":1}', f'{{"credentials":{HIDDEN},"a":1}}'),
        ("SECRET_KEY_BASE: hunter2", f"SECRET_KEY_BASE: {HIDDEN}"),
        ("client-key-data: hunter2", f"client-key-data: {HIDDEN}"),
        ("DB_PASS=hunter2 PGPASSWORD=hunter3", f"DB_PASS={HIDDEN} PGPASSWORD={HIDDEN}"),
        ("Authorization: Basic aHVudGVyMg==", f"Authorization: Basic {HIDDEN}"),
        ("a token ring: two, http://host:80/token", "a token ring: two, http://host:80/token"),
    ],
)
def test_a_secret_in_a_value_that_is_a_document(value: str, shown: str) -> None:
    """JSON, YAML or headers as the value of a setting."""
    assert without_secrets({"service.x": value}) == {"service.x": shown}
    if "'" not in value:
        assert "hunter2" not in text_without_secrets(f"a:\n  hook: '{value}'\n")


@pytest.mark.parametrize(
    "value",
    [
        "password: |\n  hunter2\nother: 1",
        "a:\n  password: >-\n    hunter2\n    hunter3\n  other: 1",
        "secret:\n  hunter2\nother: 1",
        '{"password":\n"hunter2",\n"other: 1":2}',
        "tokens:\n  - hunter2\n  - hunter3\nother: 1",
    ],
)
def test_a_secret_in_a_value_of_several_lines(value: str) -> None:
    shown = without_secrets({"service.x": value})["service.x"]
    assert "hunter" not in shown
    assert "other: 1" in shown


@pytest.mark.parametrize(
    "text",
    [
        "a:\n  token: |\n    hunter2\n\n    hunter3\n  other: 1\n",
        "a:\n  token:\n    hunter2\n  other: 1\n",
        "a:\n  token: 'hun''ter2, x: y'\n  other: 1\n",
        'a:\n  token: "hunter2\n    hunter3"\n  other: 1\n',
        "a:\n  password: x,hunter2\n  other: 1\n",
        'a: {"token":"hunter2, }","x":2,\n  other: 1}\n',
        "a: {token: {x: hunter2}}\nother: 1\n",
        "- token: >-\n    hunter2\n  other: 1\n",
        "a:\n  token:\t'hunter2'\n  other: 1\n",
    ],
)
def test_a_secret_in_every_form_of_yaml(text: str) -> None:
    shown = text_without_secrets(text)
    assert "hunter" not in shown
    assert "other: 1" in shown
    assert shown.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    "text",
    [
        "resources:\n  max: {vcore: 10, vendor.com/private-fpga: 2, memory: 5G}\n",
        "resources:\n  guaranteed:\n    example.com/token: 4 # cards\n    vcore: 3\n",
        "resources: {max: {example.com/token: '4Gi'}, guaranteed: {\"tls.key\": 1}}\n",
        "resources:\n  max: {vcore: 1,\n        example.com/token: 4}\n",
        "limits:\n  - limit: all\n    users: ['*']\n    maxresources: {example.com/token: 4}\n",
        "  - maxresources:\n      example.com/token: 4\n",
        "nodesortpolicy:\n  resourceweights:\n    example.com/token: 1.5\n",
        "preemption:\n  governor: {lost: {example.com/token: 4}}\n",
    ],
)
def test_an_amount_is_no_secret_whatever_its_type_is_called(text: str) -> None:
    """Whoever reads a configuration, edits it and applies it must not lose limits."""
    assert text_without_secrets(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "properties:\n  max: 5\n  token: 1234\n",
        "properties: {max: 5, token: 1234}\n",
        "a: {resources: {max: {vcore: 1}}, token: 1234}\n",
        "resources:\n  max: {token: 4}\nproperties:\n  token: 1234\n",
        "resources: {max: {vcore: 1}}\ntoken: 1234\n",
        "- max:\n- token: 1234\n",
        "resources:\n  max:\n    token: hunter 1234\n",
    ],
)
def test_a_number_elsewhere_is_a_secret_by_its_name(text: str) -> None:
    assert "1234" not in text_without_secrets(text)


def test_a_text_without_secrets_stays_as_it_is() -> None:
    text = "partitions:\n  - name: default\n    queues: [{name: root, submitacl: '*'}]\n"
    assert text_without_secrets(text) is text


@pytest.mark.long
def test_time_is_in_proportion_to_the_text() -> None:
    for text in (
        "a: " * 200_000 + "token: x",
        "token: x, " * 60_000,
        "token:" * 100_000,
        "key " * 140_000,
        "{" + "token: x, " * 60_000,
        "'token':" * 80_000,
        "://token=" * 60_000,
        "token: '" * 60_000,
        "token:\n" + " x\n" * 100_000,
        'token:"' + "\\\\" * 300_000,
        'token\\\\"":' * 60_000,
        "token=" * 100_000,
        "token = \\" * 60_000,
        'token="' * 60_000,
        "=" * 500_000,
        "max: {" * 30_000 + "token: 1, " * 30_000,
        "max:\n" + " token: 1\n" * 40_000,
    ):
        with paced_time() as took:
            text_without_secrets(text)
            without_secrets({"service.x": text})
        assert took.seconds < 1, text[:10]


@pytest.mark.long
@pytest.mark.parametrize("unit", ["a", "\\a"])
def test_a_long_secret_takes_no_memory_for_each_of_its_characters(unit: str) -> None:
    text = 'password: "' + unit * (200_000 // len(unit))
    tracemalloc.start()
    try:
        shown = without_secrets({"service.x": text})
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert shown == {"service.x": f"password: {HIDDEN}"}
    assert most < 3 * len(text)
