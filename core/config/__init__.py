"""Configuration: text in, validated and immutable values out.

``load`` in :mod:`kornel.core.config.loader` is the only entry. It knows no file, clock or logger: what is wrong or
doubtful comes back as values that carry positions in the text.
"""
