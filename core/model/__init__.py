"""The records of a partition: mutable, with their own bookkeeping, and the orders kept over them.

Nothing here decides anything. Policies read these records, :mod:`kornel.core.partition` changes them.
"""
