"""What nodes offer and hold, and why no node takes an ask."""
