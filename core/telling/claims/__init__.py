"""What is kept for asks that are not placed yet."""
