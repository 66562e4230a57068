"""The versions of the journal's tables; a released one stays as it is."""
