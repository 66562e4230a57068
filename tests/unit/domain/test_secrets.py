"""Which settings are secrets, and what is shown instead."""

from __future__ import annotations

import time

import pytest

from core.domain.secrets import HIDDEN, names_secret, text_without_secrets, without_secrets


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
    ],
)
def test_a_secret(name: str) -> None:
    assert names_secret(name)
    assert without_secrets({name: "hunter2", "service.x": "y"}) == {name: HIDDEN, "service.x": "y"}


@pytest.mark.parametrize(
    "name", ["key", "keys", "service.clusterId", "event.maxStreams", "log.level", "monkey", "keyboard", "pin", ""]
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


def test_a_text_without_secrets_stays_as_it_is() -> None:
    text = "partitions:\n  - name: default\n    queues: [{name: root, submitacl: '*'}]\n"
    assert text_without_secrets(text) is text


def test_time_is_in_proportion_to_the_text() -> None:
    for text in ("a: " * 1_000_000 + "token: x", "token: x, " * 300_000, "token:" * 500_000, "key " * 700_000):
        began = time.process_time()
        text_without_secrets(text)
        assert time.process_time() - began < 5, text[:10]
