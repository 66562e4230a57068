"""Handlers of the routes, which read what the core shows of itself, and change nothing but through its services."""
