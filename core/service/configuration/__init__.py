"""Puts configurations into force, keeps their history, and tries others in processes of their own."""
