"""Shows queues: what they hold, and how much they may still take."""
