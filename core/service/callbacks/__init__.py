"""Questions and messages to a shim: which of its callback streams gets them, and what waits for it."""
