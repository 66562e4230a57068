"""The resource managers of a core, whether the core leads, and its health."""
