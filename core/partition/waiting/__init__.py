"""The rooms in which asks and applications wait, and how they are woken."""
