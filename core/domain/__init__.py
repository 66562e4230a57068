"""Values and rules of the field; imports nothing but the standard library."""
