"""Shows applications, live ones and those that have ended: what they ask for and hold."""
