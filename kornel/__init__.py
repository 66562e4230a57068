"""Everything of Kornel that can be imported stands below this name; see docs/architecture.md for where it lies."""

# The build reads it here, so that a checkout that was never installed, or beside another installation, has its own.
__version__ = "0.1.0"
