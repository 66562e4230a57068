"""The allocation cycle: whose turn it is, where asks go, and what the shim is asked before."""
