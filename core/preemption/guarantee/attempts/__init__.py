"""The attempts of asks and gangs: when they are made, what the shim says, and what is remembered of refusals."""
