"""Health and metrics: what the daemon's own process answers, and nothing else by HTTP."""
