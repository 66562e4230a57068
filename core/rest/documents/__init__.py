"""Makes documents."""
