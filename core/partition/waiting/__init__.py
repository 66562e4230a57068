"""Where asks and applications wait, and who wakes them."""
