"""Calls a running core over a channel with or without credentials; each answer is a message of the protocol."""
