"""What a partition consists of: mutable records with their own bookkeeping, and the orders kept over them.

Nothing here decides anything. Policies read these records, :mod:`core.partition` changes them.
"""
