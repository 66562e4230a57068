"""Configurations put into force: in a new partition, in a running one, and in one that is only supposed."""
