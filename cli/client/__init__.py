"""Connects to a running core with or without credentials, and says in words why a call failed."""
