"""The path of a message, in reading order: intake, exchange, hall, worker, handling, settling."""
