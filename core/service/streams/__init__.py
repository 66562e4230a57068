"""Delivers responses to the streams of a shim, and knows its session, its presence and what it has received."""
