"""The moves of asks from one place to the next, the search for a node, and other records about single asks."""
