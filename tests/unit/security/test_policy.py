"""The security file: what it grants, and that everything wrong with it is told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from kornel.core.config.text.problems import ConfigError
from kornel.core.security.identity import Identity
from kornel.core.security.policy import Policy, read_policy
from kornel.core.service.connections.callers import Permission

FOLDER = Path("/etc/kornel")


def policy(text: str) -> Policy:
    return read_policy(text, FOLDER)


def test_rules_add_up_over_all_principals_of_a_caller() -> None:
    """Names, groups, ``anyone`` and ``anonymous``; a name with another prefix is another name."""
    found = policy("""
        rules:
          - who: ["cn:ann", "token:bob"]
            managers: [rm-1]
          - who: ["o:ops"]
            permissions: [administer, preempt]
          - who: [anyone]
            permissions: [configure]
          - who: [anonymous]
            permissions: [read]
    """)
    ann = found.grants_for(Identity(("cn:ann", "o:ops"), "ann"))
    assert ann.permissions == set(Permission) - {Permission.TEST_CLOCK}
    assert ann.may_manage("rm-1")
    assert not ann.may_manage("rm-11")
    assert not found.grants_for(Identity(("token:ann",), "ann")).may_manage("rm-1")
    assert found.grants_for(Identity(("token:ann",), "ann")).permissions == {Permission.READ, Permission.CONFIGURE}
    assert found.grants_for(None).permissions == {Permission.READ}
    assert not found.grants_for(None).managers


def test_a_star_is_every_resource_manager() -> None:
    found = policy('rules: [{who: ["cn:a"], managers: ["*"]}]')
    assert found.grants_for(Identity(("cn:a",), "a")).may_manage("whatever")


def test_paths_are_relative_to_the_file() -> None:
    found = policy("""
        tokens: secrets/tokens.yaml
        oidc: {issuer: i, audiences: [a], jwks: keys.json}
        rules: [{who: [anyone], permissions: [read]}]
    """)
    assert found.tokens == FOLDER / "secrets/tokens.yaml"
    assert found.oidc is not None
    assert found.oidc.keys == str(FOLDER / "keys.json")


RULES = "rules: [{who: [anyone], permissions: [read]}]\n"

WRONG = {
    "nothing at all": ("", "no rules"),
    "unknown key": (RULES + "rule: []", "unknown key 'rule'"),
    "unknown permission": ("rules: [{who: [anyone], permissions: [write]}]", "'write' is not known"),
    "empty permission": ("rules: [{who: [anyone], permissions: ['']}]", "an empty permission"),
    "principal without prefix": ("rules: [{who: [ann], permissions: [read]}]", "'ann' names nobody"),
    "principal of nobody": ("rules: [{who: ['cn:'], permissions: [read]}]", "'cn:' names nobody"),
    "nobody": ("rules: [{permissions: [read]}]", "a rule for nobody"),
    "anonymous administrators": ("rules: [{who: [anonymous], permissions: [administer]}]", "nobody knows"),
    "anonymous managers": ("rules: [{who: [anonymous], managers: [rm-1]}]", "nobody knows"),
    "empty rmID": ("rules: [{who: [anyone], managers: ['']}]", "an empty rmID"),
    "no audience": (RULES + "oidc: {issuer: i, jwks: k}", "no audience"),
    "no issuer": (RULES + "oidc: {audiences: [a], jwks: k}", "issuer is missing"),
    "no keys": (RULES + "oidc: {audiences: [a], issuer: i}", "jwks is missing"),
    "alg none": (RULES + "oidc: {issuer: i, audiences: [a], jwks: k, algorithms: [none]}", "algorithm 'none'"),
    "shared secrets": (RULES + "oidc: {issuer: i, audiences: [a], jwks: k, algorithms: [HS256]}", "algorithm 'HS256'"),
    "keys in plain text": (RULES + "oidc: {issuer: i, audiences: [a], jwks: 'http://e.org/k'}", "on the way"),
    "keys from a sly host": (RULES + "oidc: {issuer: i, audiences: [a], jwks: 'http://127.0.0.1:1@e.org/k'}", "way"),
    "keys from elsewhere": (RULES + "oidc: {issuer: i, audiences: [a], jwks: 'ftp://e.org/k'}", "on the way"),
    "clocks far apart": (RULES + "oidc: {issuer: i, audiences: [a], jwks: k, skew-seconds: 3600}", "from 0 to 300"),
    "no calls": (RULES + "limits: {calls-per-second: 0}", "nobody could call"),
    "messages too large": (RULES + "limits: {message-bytes: 99999999999}", "at most 67108864"),
    "messages too small": (RULES + "limits: {message-bytes: 1}", "from 4096"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_with_its_place(case: str) -> None:
    text, said = WRONG[case]
    with pytest.raises(ConfigError) as refused:
        policy(text)
    assert said in str(refused.value)
    assert all(problem.line > 0 for problem in refused.value.problems)


@pytest.mark.parametrize("address", ["https://e.org/keys", "http://127.0.0.1:8080/keys", "http://localhost/keys"])
def test_keys_come_over_https_or_from_this_machine(address: str) -> None:
    found = policy(RULES + f"oidc: {{issuer: i, audiences: [a], jwks: '{address}'}}")
    assert found.oidc is not None
    assert found.oidc.keys == address
