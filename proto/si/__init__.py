"""Generated stubs of the scheduler interface."""
