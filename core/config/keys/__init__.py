"""Reads the keys of a configuration, each by itself."""
