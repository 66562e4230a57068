"""What the shim says, entry by entry: checked, answered, put on the books; and how requests leave again."""
