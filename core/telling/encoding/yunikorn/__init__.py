"""Writes records as YuniKorn's clients know them: field names, what is left out, and how values are written (rest.md 4,
8).

Each table yields the document and its schema. Maps and lists come in a fixed order.
"""
