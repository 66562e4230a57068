"""Calls to a core that serves: over a channel with or without credentials, each answer as its message."""
