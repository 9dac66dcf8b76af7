"""Scans: work through rows of a database in shards, each a task that never ends."""
