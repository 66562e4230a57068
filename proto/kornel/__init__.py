"""Generated stubs of what Kornel offers beyond the scheduler interface."""
