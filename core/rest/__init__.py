"""Serves the REST interface ``/ws/v1``: HTTP to the engine that gRPC serves, mainly for reading.

========= =======================================================================================================
http      connections, who may ask for what, rules for browsers, compression, errors as answers
serving   paths: rows, the router over them, parameters, lists, and answers that are made in turns
documents what YuniKorn's clients read and no message of ``kornel.v1`` describes, OpenAPI, and messages as JSON
handlers  the paths themselves, each with its row
========= =======================================================================================================
"""
