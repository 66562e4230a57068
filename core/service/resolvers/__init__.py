"""Look-ups of users' groups outside the core, before an application reaches the engine (config.md 11).

::

    lookups   called by the streams: groups for every application that came without any, several at once
    cache     results found recently, and failures
    source    the interface of a resolver
    accounts  type os: the accounts of this machine
    ldap      type ldap: a directory server, with the settings of ldap_settings
    sources   the resolvers that work on this machine
"""
