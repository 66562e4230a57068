"""Translates the files of YARN's Capacity Scheduler into a queue configuration."""
