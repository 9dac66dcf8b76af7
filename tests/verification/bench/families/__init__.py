"""The rows, families that are alike in one file: each has a function that measures its rows."""
