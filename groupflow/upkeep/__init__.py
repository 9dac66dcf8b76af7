"""What keeps the store true while tasks flow: one duty a file, each a single pass."""
