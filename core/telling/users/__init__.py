"""Shows users and groups: what they hold, and what limits them."""
