"""Views of users and groups: what they hold, and what limits them."""
