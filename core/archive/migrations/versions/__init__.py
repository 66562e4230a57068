"""One module for each version of the history database. A released one is never changed."""
