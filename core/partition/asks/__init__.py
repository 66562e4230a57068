"""Where asks are, and how they move from one place to the next."""
