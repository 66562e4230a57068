"""Policies, all of them pure: they read the model and return a key, a score or a plan. None changes the state."""
