"""Views as YuniKorn's clients know them: field names, what is left out, and how values are written (rest.md 4, 8).

Pure functions from a view to what ``orjson`` encodes. Maps and lists come in a fixed order.
"""
