"""The rules for leaves, nodes and victims: what an ask is owed, what a leaf may lose, and in which order victims go."""
