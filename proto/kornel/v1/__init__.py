"""Version 1 of the kornel package: configuration and status services."""
