"""What keeps the store true while tasks flow: one duty a file, each with a single `run_once`."""
