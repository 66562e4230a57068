"""The server: its connection to the core, its connections to agents and commands, and the program that combines
them."""
