"""The attempts of asks and gangs: when they are made, what the shim says, and the gate of refused asks."""
