"""Moves of asks from one place to the next, the search for a node, and what else names an ask."""
