"""The contract cases, one module per group."""
