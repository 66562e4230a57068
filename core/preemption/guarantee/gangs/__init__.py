"""The search for gangs, all of whose missing members need a place at once."""
