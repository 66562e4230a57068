"""Places applications in queues (config.md 8), by pure functions from rules and the queue tree to a path or to the
reasons why there is none."""
