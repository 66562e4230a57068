"""Shows asks and allocations, and explains why an ask waits."""
