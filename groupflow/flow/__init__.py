"""The path of a message: intake, exchange, dispatcher, worker, handling, settling."""
