"""Shows the placement rules in force, and what another configuration would change."""
