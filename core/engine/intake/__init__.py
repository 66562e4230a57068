"""The intake: checks, answers and books what the shim sends, entry by entry, and carries out releases."""
