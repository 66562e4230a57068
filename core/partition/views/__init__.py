"""What a partition shows of itself (rest.md 4): one module for each kind of thing.

Whatever may be long is a generator that looks at one thing at a time: between two of them the engine may go on, and
what is gone by then is left out. A partition pays nothing for what nobody looks at.
"""
