"""Checks what has to hold between the keys of a configuration, and warns of what is valid but probably wrong."""
