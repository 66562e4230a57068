"""Everything that only shows: what the partitions hold, why something waits, and what would happen if."""
