"""The vocabulary of the event history, and its records."""
