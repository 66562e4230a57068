"""What applications ask for and hold, live ones and those that have ended."""
