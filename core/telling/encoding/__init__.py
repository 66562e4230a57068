"""Turns records into messages and JSON: by one encoder for all of them, and tables of the fields that are named
differently."""
