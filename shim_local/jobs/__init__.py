"""Jobs: what was submitted, the state of each task, the store that keeps them, and the decisions about them."""
