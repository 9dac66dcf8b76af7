"""What operators see of a daemon: its log, and what its supervisor is told."""
