"""Handles the routes. Handlers read what the core shows, and change something only through its services."""
