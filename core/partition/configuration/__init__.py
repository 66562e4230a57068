"""A configuration into a partition, into a running one, and into one that is only supposed."""
