"""Duties that keep the store true while tasks flow: one a file, each a single pass."""
