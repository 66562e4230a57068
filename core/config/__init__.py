"""Reads configurations: turns text into validated and immutable values.

``load`` in :mod:`kornel.core.config.loader` is the only entry. It uses no file, clock or logger: errors and warnings
are returned as values with positions in the text.
"""
