"""Intake of what the shim sends, entry by entry: checked, answered, put on the books; and how requests leave again."""
