"""The search of nodes and victims for an ask, and what is kept of its answers."""
