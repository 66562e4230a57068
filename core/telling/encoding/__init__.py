"""Turns records into messages and JSON: one encoder for all of them, and tables of what is named differently."""
