"""What queues hold, and how much they may still take."""
