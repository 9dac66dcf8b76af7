"""Scans: rows of a database, worked through in shards, each a task that never ends."""
