"""Choices, all pure: they read the model and return a key, a score or a plan. Nothing here changes state."""
