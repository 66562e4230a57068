"""Writes records as YuniKorn's clients expect them: the names of fields, which fields are left out, and how values are
written (rest.md 4, 8).

The document and its schema are made from the same table. Maps and lists have a fixed order.
"""
