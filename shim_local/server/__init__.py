"""The server: the connection to the core, connections of agents and commands, and the program that ties them."""
