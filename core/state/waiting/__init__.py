"""Holds the waiting rooms of asks and applications, and wakes them."""
