"""What users and groups hold, and what limits them."""
