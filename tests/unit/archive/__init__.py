"""The durable history."""
