"""The path of a message, in reading order: intake, dispatch, worker, handling, settling."""
