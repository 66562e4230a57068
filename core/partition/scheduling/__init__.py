"""Where asks wait, whose turn it is, where they go, and what the shim is asked before."""
