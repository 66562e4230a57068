"""The server: the connection to the core, the connections of agents and commands, and the program that joins them."""
