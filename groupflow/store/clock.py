"""Redis's clock, the only one that scripts go by: whole microseconds since 1970."""

MICROSECONDS = 1_000_000  # of a second
