"""Everything of Kornel that can be imported stands below this name; see docs/architecture.md for where it lies."""
