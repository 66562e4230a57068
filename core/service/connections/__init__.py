"""Knows who is connected: callers and their addresses; and bounds what one connection may send ahead."""
