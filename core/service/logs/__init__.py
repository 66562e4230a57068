"""Structured logging, and how texts from outside are made safe to show."""
