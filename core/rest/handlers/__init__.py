"""What answers each route: reads what the core shows of itself, and changes nothing but through its services."""
