"""An independent judge of gangs: a shim that drives a served core through random worlds, and judges what it hears.

It was written from the documentation by somebody who had not read the engine. It uses messages and answers over HTTP
alone, and an exact solver of its own.
"""
