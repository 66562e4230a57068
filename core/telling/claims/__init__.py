"""Tells what is kept for asks that are not placed yet."""
