"""The placement of applications in queues (config.md 8). Pure: rules and the queue tree in, a path or the reasons
out."""
