"""Keeps the latest events, decisions and refusals, and lets readers follow them."""
