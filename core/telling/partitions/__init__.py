"""Shows partitions as a whole: their status and gauges, and whether their books agree."""
