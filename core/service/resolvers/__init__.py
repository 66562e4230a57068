"""Look-ups of users' groups in the outside world, before an application reaches the engine (config.md 11).

::

    lookups   what the streams call: groups for every application that came without, several at once
    cache     what was found lately, and what was not
    source    what a resolver is
    accounts  type os: the accounts of this machine
    ldap      type ldap: a directory server, by ldap_settings
    sources   which of them work here
"""
