"""Everything that only reads: what the partitions hold, why something waits, and what would happen after a change."""
