"""Reads configurations: turns text into validated and immutable values.

``load`` in :mod:`kornel.core.config.loader` is the only entry: ``text`` reads values and reports problems, ``keys``
says what each key accepts, ``checks`` what has to hold between them. No file, clock or logger is used: errors and
warnings are returned as values with positions in the text.
"""
