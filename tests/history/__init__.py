"""Histories of runs, the invariants S1 to S9 checked on them, and the auditor of the store."""
