"""Puts configurations into force: in a new partition, in a running one, and in a supposed one."""
