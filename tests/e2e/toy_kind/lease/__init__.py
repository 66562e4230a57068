"""A toy kind: whoever has run for longer than its lease leaves, as long as its queue keeps what it is guaranteed."""
