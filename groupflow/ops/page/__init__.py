"""The page, its HTTP API and health, served by the daemon itself. Nothing here writes unasked."""
