"""Knows who is connected: callers, their addresses, and the sizes that both ends of a connection keep to."""
