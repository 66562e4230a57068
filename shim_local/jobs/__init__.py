"""Jobs: what was submitted, what became of each task, the store that remembers them, and the decisions about them."""
