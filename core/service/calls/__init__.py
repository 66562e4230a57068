"""Receives calls: admits them, reads their requests, bounds them, and divides long requests and answers."""
