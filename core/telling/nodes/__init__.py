"""Shows nodes: what they offer and hold, and why no node takes an ask."""
