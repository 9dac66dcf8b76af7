"""Whether two rules can make the same group key, and messages that show it."""
