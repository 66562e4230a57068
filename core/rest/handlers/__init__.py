"""What answers each route. Handlers read values that the core shows of itself and change nothing but by its services."""
