"""Random worlds full of limits, priorities, claims and gangs, played on the engine and judged by the rule of claims.

random_worlds  what happens in the world of a number, and its configuration
course         plays a world and has :mod:`tests.oracles.claims` judge every decision and every quiet point
claims_read    reads from the engine what is claimed for whom: the one module that knows how the engine tells it

``python -m tests.properties.claims --worlds 300 --seed 1`` prints the findings by rule, each with its smallest world.
"""
