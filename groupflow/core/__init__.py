"""Vocabulary and pure rules: no I/O, and no import of anything else of ours."""
