"""Brings a core to the end of a journal, and keeps it there while another core writes."""
