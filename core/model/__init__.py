"""The records of a partition: mutable, with their own bookkeeping, and the orders kept over them.

No code here decides anything. Policies read these records, and :mod:`kornel.core.state` changes them.
"""
